// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: activations that are recomputed in the backward instead of being kept (Chen et
// al. 2016; by operation: Korthikanti et al. 2022). A cheap operation is built to write its output to
// temporary memory, and the linear layer after it to ask for that output again when the weight gradient needs
// it.
#pragma once

#include "coeus/layers/operands.hpp"

namespace coeus {

/// What the backward of a block recomputes.
enum class Recompute : uint8_t {
    nothing,
    operations,  ///< norms and the activation function; outputs of matrix products and of attention are kept
    block        ///< everything except its last matrix product: only the block's input is kept
};

/// What becomes of an operation's output.
struct Output {
    /// The frame keeps it; or it goes to temp, and is recomputed later; or it goes to temp, and the linear
    /// layer after it keeps it in 8 bits.
    enum Place : uint8_t { kept, recomputed, kept_in_8_bits };

    Output(Place p) : place(p) {}  // NOLINT: implicit
    Place place;
    /// The groups of scales that linear layers make of it, in their product and for the weight's gradient. In
    /// the pass in which the operation writes it, it also finds its largest magnitude (one) or rounds it
    /// (rows).
    ScaleGroups of_product = ScaleGroups::none, of_gradient = ScaleGroups::none;

    /// The same for the weight's gradient alone.
    Output again() const {
        Output output = *this;
        output.of_product = of_gradient;
        return output;
    }
};

/// Room for the output: in the frame if it is kept there, else in temp.
Tensor allocate(Ctx& c, Output output, Dtype dtype, const Shape& shape);
/// t with room for what its form with these groups needs: see Output. `parts`: of its columns, if
/// each has one scale.
Tensor with_groups(Ctx& c, Tensor t, ScaleGroups groups, Output::Place place, int64_t parts = 1);

/// An operation whose output can be recomputed in the backward.
class Recomputable {
public:
    virtual ~Recomputable() = default;
    /// In a backward: computes the output of forward() again, in temp. What forward() pushed is on top of the
    /// frame and stays there.
    virtual Tensor again(Ctx& c) const = 0;
};

/// The input x of a linear layer, which its weight gradient needs: kept by the operation that made it, or
/// recomputed by it, or kept in 8 bits here.
class LinearInput {
public:
    /// `source`: the operation that recomputes it, which outlives it; null: it is kept.
    LinearInput(const Recomputable* source = nullptr)  // NOLINT: implicit
        : place_(source ? Output::recomputed : Output::kept), source_(source) {}
    /// The output of `source` goes to `output`.
    LinearInput(Output output, const Recomputable& source)
        : place_(output.place), source_(output.place == Output::recomputed ? &source : nullptr) {}

    /// Returns x in the form of the forward's product, in temp or in the frame, and keeps what recall()
    /// needs.
    Tensor take(Ctx& c, Tensor x, const RecipeForms& forms, const Division& division) const;
    /// Only keeps it.
    void keep(Ctx& c, Tensor x, const RecipeForms& forms, const Division& division) const;
    /// Returns x in the form of the weight's gradient, whose product sums the columns, in the backward.
    Operand recall(Ctx& c, const RecipeForms& forms, const Division& division) const;
    /// True if what recall() returns is in temp.
    bool is_lent(const RecipeForms& forms) const {
        return place_ == Output::recomputed || (place_ == Output::kept && forms.x_of_wgrad.is_8_bit());
    }

private:
    /// Returns the codes of x, which may be in temp, if they are needed.
    Tensor keep_in_8_bits(Ctx& c, Tensor x, const Form& form, const Division& division,
                          bool needs_codes) const;
    Output::Place place_ = Output::kept;
    const Recomputable* source_ = nullptr;
};

}  // namespace coeus
