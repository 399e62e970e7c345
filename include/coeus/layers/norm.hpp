// SPDX-License-Identifier: Apache-2.0
// Norms over the last dimension: RMSNorm (Zhang and Sennrich 2019), and LayerNorm (Ba et al. 2016) with or
// without a weight. They never have a bias.
#pragma once

#include "coeus/layers/recompute.hpp"

#include <memory>
#include <string>

namespace coeus {

class Norm : public Recomputable {
public:
    explicit Norm(Output output) : output_(output) {}
    /// [T, D] -> [T, D], kept or in temp, as the constructor was told.
    virtual Tensor forward(Ctx& c, Tensor x) const = 0;
    /// dx = plus + J^T dy, written to the memory of `plus` (the gradient from the residual path), or to that
    /// of dy if `plus` is absent. Finds its largest magnitude if `plus` has room for that (Tensor::largest).
    virtual Tensor backward(Ctx& c, Tensor dy, Tensor plus) const = 0;

protected:
    Output output_;
};

class RmsNorm : public Norm {
public:
    RmsNorm(const Storage& weight, const NormForm& form, Output output = Output::kept)
        : Norm(output), weight_(&weight), form_(form) {}
    Tensor forward(Ctx& c, Tensor x) const override;
    Tensor again(Ctx& c) const override;
    Tensor backward(Ctx& c, Tensor dy, Tensor plus) const override;

private:
    const Storage* weight_;
    NormForm form_;
};

/// residual + RMSNorm(x): the norm of a sublayer's result, in one pass with its addition.
class ResidualNorm {
public:
    /// `output`: kept, with the groups of scales that the linear layers after it make of it.
    ResidualNorm(const Storage& weight, const NormForm& form, Output output = Output::kept)
        : weight_(&weight), form_(form), output_(output) {}
    /// x, residual [T, D] -> [T, D], kept. x must be kept.
    Tensor forward(Ctx& c, Tensor x, Tensor residual) const;
    /// Keeps what forward keeps for the backward.
    void rebuild(Ctx& c, Tensor x) const;
    /// Returns the gradient of x, in the memory of x, with its largest magnitude if the context has room for
    /// that (Ctx::largest_of_gradient). The gradient of the residual is dy.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    void compute(Ctx& c, Tensor y, Tensor x, Tensor residual) const;
    const Storage* weight_;
    NormForm form_;
    Output output_;
};

class LayerNorm : public Norm {
public:
    /// `weight` null: the variant without parameters.
    LayerNorm(const Storage* weight, double eps, Output output = Output::kept)
        : Norm(output), weight_(weight), eps_(eps) {}
    Tensor forward(Ctx& c, Tensor x) const override;
    Tensor again(Ctx& c) const override;
    Tensor backward(Ctx& c, Tensor dy, Tensor plus) const override;

private:
    const Storage* weight_;
    double eps_;
};

}  // namespace coeus
