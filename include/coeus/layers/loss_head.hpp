// SPDX-License-Identifier: Apache-2.0
// LossHead: output projection and cross entropy in chunks of tokens, so that the logits [T, V] never exist as
// a whole; their gradient overwrites them. The kernel scales losses by 1/(number of labels in the step), so
// that every later reduction is a plain sum.
//
// Tensor-parallel ranks have V/P columns of the logits of all T tokens. They exchange two numbers a token
// (loss parallel, Shoeybi et al. 2019, section 3), and each knows the whole loss.
//
// If the projection has a recipe, its operands are written in 8 bits: x over all tokens of the micro-batch,
// and the gradient of the logits over those of a chunk. If tokens share scales, a chunk has the same tokens
// on every mesh.
#pragma once

#include "coeus/layers/linear_weight.hpp"

#include <optional>

namespace coeus {

/// A z-loss: the loss of each label in training also has weight * (log sum exp of its logits)^2. Their sum is
/// added to the part of the loss (StepScalars::losses) of this number. Weight 0: there is none.
struct ZLoss {
    double weight = 0;
    size_t part = 0;
};

class LossHead {
public:
    /// `output`: [V/P, D]; the table of the embedding if the two are tied. The logits are `scale`, above 0,
    /// times its products: the kernels that read them multiply them.
    explicit LossHead(const Storage& output, double scale = 1)
        : output_(&output), projection_(output, 0), scale_(scale) {}
    /// The same with losses that are multiplied by `weight`. `part`: the number of the part of the loss
    /// (StepScalars::losses) that gets their sum too.
    LossHead(const Storage& output, double scale, double weight, std::optional<size_t> part, ZLoss z = {})
        : output_(&output), projection_(output, 0), scale_(scale), weight_(weight), part_(part), z_(z) {}

    /// Adds the scaled loss of x [T/P, D] (after the final norm) for labels i32[T] to scalars.loss. The
    /// gradients of the logits are used at once, since they are not kept: the weight gradient is added, and
    /// the gradient of x is kept for backward(). The backward does not need x, which may be in temp.
    void forward(Ctx& c, Tensor x, Tensor labels) const;
    /// Returns the gradient of x, [T/P, D].
    Tensor backward(Ctx& c) const;
    /// Only adds the scaled loss, without a z-loss. Writes what it knows of each token, if the context asks
    /// (Ctx::scored).
    void evaluate(Ctx& c, Tensor x, Tensor labels) const;
    /// Computes this rank's columns of the logits, [rows of x, V/P] (acc). All tensor-parallel ranks pass the
    /// same x.
    void logits(Ctx& c, Tensor logits, Tensor x) const;

private:
    template <class Each>
    void for_each_chunk(Ctx& c, Tensor all, Tensor w, const Each& each) const;
    void losses_of(Ctx& c, Tensor losses, Tensor at_label, Tensor dlogits, Tensor logits, Tensor labels,
                   double z) const;
    const Storage* output_;
    WeightPart projection_;
    double scale_;
    double weight_ = 1;
    std::optional<size_t> part_;
    ZLoss z_;
};

}  // namespace coeus
