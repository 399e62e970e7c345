// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: activations that are recomputed in the backward instead of being kept (Chen et
// al. 2016; by operation: Korthikanti et al. 2022). A cheap operation is built to write its output to
// temporary memory, and the linear layer after it to ask for that output again when the weight gradient needs
// it.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// What the backward of a block recomputes.
enum class Recompute : uint8_t {
    nothing,
    operations,  ///< norms and the activation function; outputs of matrix products and of attention are kept
    block        ///< everything except its last matrix product: only the block's input is kept
};

/// The destination of an operation's output: the frame, or temp, from which it must be recomputed later.
enum class Output : uint8_t { kept, recomputed };

inline Tensor allocate(Ctx& c, Output output, Dtype dtype, const Shape& shape) {
    return output == Output::kept ? c.frame.keep(dtype, shape) : c.temp.alloc(dtype, shape);
}

/// An operation whose output can be recomputed in the backward.
class Recomputable {
public:
    virtual ~Recomputable() = default;
    /// In a backward: computes the output of forward() again, in temp. What forward() pushed is on top of the
    /// frame and stays there.
    virtual Tensor again(Ctx& c) const = 0;
};

/// The input of a linear layer, which its weight gradient needs: kept, or recomputed by the operation that
/// made it.
class LinearInput {
public:
    LinearInput(const Recomputable* source = nullptr) : source_(source) {}  // NOLINT: implicit

    void keep(Ctx& c, Tensor x) const {
        if (!source_) c.frame.push(this, x);
    }
    bool is_recomputed() const { return source_ != nullptr; }
    /// Returns the input in the backward.
    Tensor recall(Ctx& c) const { return source_ ? source_->again(c) : c.frame.pop(this); }

private:
    const Recomputable* source_;
};

}  // namespace coeus
