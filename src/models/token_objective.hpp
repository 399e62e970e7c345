// SPDX-License-Identifier: Apache-2.0
// TokenObjective: the next token of a text, by its cross entropy.
#pragma once

#include "coeus/layers/loss_head.hpp"
#include "coeus/layers/objective.hpp"

namespace coeus {

class TokenObjective : public Objective {
public:
    TokenObjective(std::unique_ptr<Norm> norm, const Storage& output) : head_(std::move(norm), output) {}

    void forward(Ctx& c, Flow in) const override { head_.forward(c, in.hidden()); }
    Flow backward(Ctx& c) const override { return head_.backward(c); }
    void evaluate(Ctx& c, Flow in) const override { head_.evaluate(c, in.hidden()); }
    void predict(Ctx& c, Tensor out, Flow in) const override { head_.logits(c, out, in.hidden()); }

private:
    LossHead head_;
};

}  // namespace coeus
