// SPDX-License-Identifier: Apache-2.0
// Activations that are computed again in the backward instead of being kept (Chen et al. 2016; by operation:
// Korthikanti et al. 2022). A cheap operation is built to hand its output out for a moment only, and the
// linear layer behind it to ask for it again when it needs its input for the weight's gradient.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// What the backward of a block computes again.
enum class Recompute : uint8_t {
    nothing,
    operations,  ///< norms and the activation function; outputs of matrix products and of attention are kept
    block        ///< all of it but its last matrix product: only its input is kept
};

/// Where the output of an operation goes: on the frame, or into temp, to be computed again.
enum class Output : uint8_t { kept, recomputed };

inline Tensor allocate(Ctx& c, Output output, Dtype dtype, const Shape& shape) {
    return output == Output::kept ? c.frame.keep(dtype, shape) : c.temp.alloc(dtype, shape);
}

class Recomputable {
public:
    virtual ~Recomputable() = default;
    /// In a backward: the output of forward() again, in temp. What forward() pushed is on top of the frame
    /// and stays there.
    virtual Tensor again(Ctx& c) const = 0;
};

/// The input of a linear layer, which its weight's gradient needs: kept, or computed again by what made it.
class LinearInput {
public:
    LinearInput(const Recomputable* source = nullptr) : source_(source) {}  // NOLINT: implicit

    void keep(Ctx& c, Tensor x) const {
        if (!source_) c.frame.push(this, x);
    }
    bool is_recomputed() const { return source_ != nullptr; }
    /// In the backward.
    Tensor recall(Ctx& c) const { return source_ ? source_->again(c) : c.frame.pop(this); }

private:
    const Recomputable* source_;
};

}  // namespace coeus
