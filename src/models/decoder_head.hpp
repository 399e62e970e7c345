// SPDX-License-Identifier: Apache-2.0
// DecoderHead: the objective of a language model, with the last norm and the loss of the next token. MtpHead:
// the loss of a token further ahead.
#pragma once

#include "coeus/layers/loss_head.hpp"
#include "coeus/layers/norm.hpp"
#include "coeus/layers/objective.hpp"
#include "coeus/models/decoder_config.hpp"

namespace coeus {

class DecoderHead : public Objective {
public:
    /// `norm`: its output may be in temp, since no backward pass needs it. `output`: see LossHead.
    /// `z_weight`: that of the z-loss, which is also added to its part of scalars.losses. `scale`: of the
    /// logits.
    DecoderHead(std::unique_ptr<Norm> norm, const Storage& output, double z_weight, double scale = 1)
        : norm_(std::move(norm)), loss_(output, scale, 1, {}, {z_weight, decoder_loss::z}) {}

    /// `in`: x [T/P, D]. The labels are those of the batch.
    void forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c) const override { return norm_->backward(c, loss_.backward(c), {}); }
    void evaluate(Ctx& c, Flow in) const override;
    /// Logits [rows of x, V/P] (acc), see LossHead::logits().
    void predict(Ctx& c, Tensor out, Flow in) const override;

private:
    std::unique_ptr<Norm> norm_;
    LossHead loss_;
};

class MtpHead : public Objective {
public:
    /// The labels are `depth` places further ahead than those of the batch. `output`, `weight`, `scale`: see
    /// LossHead. The loss is also added to its part of scalars.losses.
    MtpHead(const Storage& output, int64_t depth, double weight, double scale)
        : loss_(output, scale, weight, decoder_loss::mtp), depth_(depth) {}

    /// `in`: x [T/P, D].
    void forward(Ctx& c, Flow in) const override {
        loss_.forward(c, in.hidden(), c.batch.labels_ahead(depth_));
    }
    Flow backward(Ctx& c) const override { return loss_.backward(c); }

private:
    LossHead loss_;
    int64_t depth_;
};

}  // namespace coeus
