// SPDX-License-Identifier: Apache-2.0
// Modulation of a diffusion transformer's layers by what is known of each sample (Peebles and Xie 2023,
// adaLN-Zero): shifts and scales after a LayerNorm without parameters, and gates of what is added to the
// residual path. S samples of equal length have one row of modulations each.
#pragma once

#include "coeus/layers/linear.hpp"

namespace coeus {

/// The rows of each sample in x [T, D], for `of_samples` with a row for each.
SequenceRows rows_of_samples(Tensor x, Tensor of_samples);

/// cond W^T + b: the modulations of each sample, n parts of the model's width.
class Modulation {
public:
    /// `weight`: [n D, D]; `bias`: [n D].
    Modulation(const Storage& weight, const Storage& bias) : linear_(weight, {}, &bias) {}

    /// cond [S, D] (acc) -> [S, n D] in `type`, kept.
    Tensor forward(Ctx& c, Tensor cond, Dtype type) const;
    /// Adds to dcond [S, D] (acc), for dm [S, n D] (acc). `type`: that of the forward.
    void backward(Ctx& c, Tensor dcond, Tensor dm, Dtype type) const;

private:
    TokenLinear linear_;
};

/// (1 + scale) LayerNorm(x) + shift, with the scale and the shift of the row's sample.
class ModulatedNorm : public Recomputable {
public:
    /// `output`: kept, recomputed, or kept in 8 bits, without groups of scales.
    ModulatedNorm(double eps, Output output) : eps_(eps), output_(output) {}

    /// x [T, D]; shift, scale [S, D]: columns of modulations, kept. Returns [T, D].
    Tensor forward(Ctx& c, Tensor x, Tensor shift, Tensor scale) const;
    Tensor again(Ctx& c) const override;
    /// dx = plus + J^T dy, in the memory of `plus`, or of dy if it is absent. Overwrites dshift and dscale
    /// (acc).
    Tensor backward(Ctx& c, Tensor dshift, Tensor dscale, Tensor dy, Tensor plus) const;

private:
    struct Input {
        Tensor x, mean, rstd, shift, scale;
    };
    Tensor compute(Ctx& c, const Input& in, const Output& output) const;
    void push(Ctx& c, const Input& in) const;
    Input pop(Ctx& c) const;
    double eps_;
    Output output_;
};

/// plus + gate x, with the gate of the row's sample.
class GatedSum {
public:
    /// x [T, D], kept; gate [S, D]: columns of modulations, kept. Writes to `out`, which may be `plus`.
    void forward(Ctx& c, Tensor out, Tensor plus, Tensor x, Tensor gate) const;
    /// Keeps what forward keeps for the backward.
    void rebuild(Ctx& c, Tensor x, Tensor gate) const;
    /// Returns dx in temp, and overwrites dgate (acc). The gradient of `plus` is dout.
    Tensor backward(Ctx& c, Tensor dgate, Tensor dout) const;
};

}  // namespace coeus
