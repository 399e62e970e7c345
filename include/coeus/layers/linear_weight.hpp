// SPDX-License-Identifier: Apache-2.0
// LinearWeight: the weight [O, I] of a linear layer, as its products need it.
#pragma once

#include "coeus/layers/operands.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace coeus {

/// Adjacent rows of a weight that are multiplied together: all rows of a storage, or those of a parameter
/// that has a scale of its own.
class WeightPart {
public:
    /// `first_output`: the number of its first row among those of the whole weight. `param`: the number of
    /// the parameter in the storage, if it has a scale of its own; -1: all of them.
    WeightPart(const Storage& storage, int64_t first_output, int param = -1);

    const Storage& storage() const { return *storage_; }
    const RecipeForms& forms() const { return forms_; }
    /// The first of its rows in the storage's w and g, and their number.
    int64_t first_row() const { return first_row_; }
    int64_t rows() const { return rows_; }
    /// False if it is frozen: then nobody needs the operands of its gradient's product.
    bool is_trained() const { return storage_->trainable(); }
    /// Its columns of the layer's outputs y, or of their gradient.
    Tensor of(Tensor y) const { return y.slice_cols(first_output_, rows_); }
    /// The operand of the forward's product, and of the input's gradient: kept, or in temp, or the weight
    /// itself.
    Tensor for_forward(Ctx& c) const;
    Operand for_input_gradient(Ctx& c) const;
    /// Room in `memory` for both in 8 bits, and what writes them there.
    Storage::KeptOperands room_for_operands(const Ctx& c, Arena& memory) const;
    void write_operands(Ctx& c, const Storage::KeptOperands& to) const;

    /// True if its operands in 8 bits are kept from update to update.
    bool keeps_operands() const { return kept() != nullptr; }

private:
    const Storage::KeptOperands* kept() const {
        return storage_->kept_operands.empty() ? nullptr
                                               : &storage_->kept_operands[size_t(std::max(0, param_))];
    }
    bool have_one_form() const {
        return forms_.w == forms_.w_of_dgrad && forms_.w.groups == ScaleGroups::one;
    }
    bool is_kept_in_8_bits() const { return is_8_bit_float(storage_->w.dtype); }
    Tensor rows_of_storage() const { return storage_->w.slice_rows(first_row_, rows_); }
    Tensor largest() const { return storage_->one_scales[size_t(std::max(0, param_))].largest; }
    /// The ranks that have its other rows and columns.
    Division division(const Ctx& c) const;
    Tensor operand(Ctx& c, const Form& form) const;
    const Storage* storage_;
    int param_;
    int64_t first_output_, first_row_ = 0, rows_;
    RecipeForms forms_;
};

class LinearWeight {
public:
    static constexpr size_t most_parts = WeightGradient::Parts::most;

    LinearWeight(const Storage& storage)  // NOLINT: implicit
        : LinearWeight(std::vector<const Storage*>{&storage}) {}
    /// Storages that are stacked by rows. They have equal columns, and at most two recipes: none and another.
    LinearWeight(const std::vector<const Storage*>& storages);  // NOLINT: implicit

    const std::vector<WeightPart>& parts() const { return parts_; }
    int64_t rows() const;
    int64_t cols() const { return parts_.front().storage().shape().cols(); }
    /// True if some parts are computed in 8 bits and others are not.
    bool is_mixed() const {
        return std::ranges::any_of(
            parts_, [&](const WeightPart& part) { return part.forms() != parts_.front().forms(); });
    }
    /// One if the gradients of some part's outputs have one scale in 8 bits, whose largest magnitude the
    /// operation before can find; else none.
    ScaleGroups groups_found_for_gradients() const {
        return recipe_forms().dy.groups == ScaleGroups::one ? ScaleGroups::one : ScaleGroups::none;
    }
    /// The forms of the input, if it is not mixed; the compute type if it is.
    RecipeForms forms() const { return is_mixed() ? RecipeForms{} : parts_.front().forms(); }
    /// Those of the parts in 8 bits.
    RecipeForms recipe_forms() const {
        const auto part =
            std::ranges::find_if(parts_, [](const WeightPart& one) { return one.forms() != RecipeForms{}; });
        return part == parts_.end() ? RecipeForms{} : part->forms();
    }
    /// What a layer computes in temp from each part.
    template <class T>
    using OfParts = std::array<T, most_parts>;

private:
    std::vector<WeightPart> parts_;
};

}  // namespace coeus
