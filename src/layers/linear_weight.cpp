// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/linear_weight.hpp"

#include <algorithm>

namespace coeus {

WeightPart::WeightPart(const Storage& storage, int64_t first_output, int param)
    : storage_(&storage),
      param_(param),
      first_output_(first_output),
      rows_(storage.shape().rows()),
      forms_(forms_of(storage.recipe())) {
    if (param < 0) {
        require(!storage.has_one_scales() || storage.params().size() == 1,
                "each parameter with one scale is a part");
        return;
    }
    first_row_ = storage.params()[size_t(param)].first_row;
    const Extent& local = storage.params()[size_t(param)].local;
    rows_ = local.groups * local.rows;
}

// The largest magnitude of a whole parameter, and the scale of weights that are kept in 8 bits, are computed
// after each update (state/one_scale_weights.hpp).
Tensor WeightPart::operand(Ctx& c, const Form& form) const {
    Tensor w = rows_of_storage();
    if (!form.is_8_bit()) return w;
    if (is_kept_in_8_bits()) {
        w.groups = ScaleGroups::one;
        w.scale = storage_->one_scales[size_t(std::max(0, param_))].scale.data;
        return w;
    }
    if (form.groups == ScaleGroups::one) return as_operand(c, w, form, largest());
    return as_operand(c, w, form, division(c));
}

Division WeightPart::division(const Ctx& c) const {
    const Split split = storage_->params().front().shard.tp;
    return {.row_ranks = alone(),
            .other_row_ranks = split == Split::rows ? c.tp : alone(),
            .column_ranks = split == Split::cols ? c.tp : alone()};
}

Tensor WeightPart::for_forward(Ctx& c) const {
    return kept() ? kept()->of_forward : operand(c, forms_.w);
}

Operand WeightPart::for_input_gradient(Ctx& c) const {
    if (kept()) return kept()->of_input_gradient;
    const Form& form = forms_.w_of_dgrad;
    if (!form.is_8_bit() || is_kept_in_8_bits()) return operand(c, form);
    if (form.groups == ScaleGroups::one) return operand_by_columns(c, rows_of_storage(), form, largest());
    const Division by = division(c);
    return is_transposed_by_columns(c, form, by) ? operand_by_columns(c, rows_of_storage(), form, by)
                                                 : as_operand(c, rows_of_storage(), form, by);
}

// If both have one form and one scale, they share codes or at least the scale.
Storage::KeptOperands WeightPart::room_for_operands(const Ctx& c, Arena& memory) const {
    const Form &form = forms_.w, &of_dgrad = forms_.w_of_dgrad;
    const Tensor w = rows_of_storage();
    const auto room = [&](const Form& of) { return memory.alloc(of.type, w.shape, of.groups); };
    const auto transposed_room = [&] {
        return transposed(memory.alloc(of_dgrad.type, {w.cols(), w.rows()}, transposed(of_dgrad).groups));
    };
    const bool is_transposed =
        multiplies_only_rows(c, of_dgrad) &&
        (of_dgrad.groups == ScaleGroups::one || is_transposed_by_columns(c, of_dgrad, division(c)));
    if (!have_one_form()) return {room(form), is_transposed ? transposed_room() : Operand(room(of_dgrad))};
    if (!is_transposed) {
        const Tensor codes = room(form);
        return {codes, codes};
    }
    const Operand turned = transposed_room();
    Tensor codes = memory.alloc(form.type, w.shape);
    codes.groups = form.groups;
    codes.scale = turned.tensor.scale;
    return {codes, turned};
}

void WeightPart::write_operands(Ctx& c, const Storage::KeptOperands& to) const {
    const Form &form = forms_.w, &of_dgrad = forms_.w_of_dgrad;
    const Tensor w = rows_of_storage();
    const Operand& turned = to.of_input_gradient;
    if (have_one_form()) {
        if (turned.is_transposed)
            c.k.quantize_transposed(c.exec, turned.tensor, to.of_forward, w, largest(), form.rule);
        else
            c.k.quantize(c.exec, to.of_forward, w, largest(), form.rule, {});
        return;
    }
    write_in_form(c, to.of_forward, w, form, division(c));
    if (of_dgrad.groups != ScaleGroups::one) {
        if (turned.is_transposed)
            write_transposed(c, turned.tensor, w, of_dgrad, division(c), false);
        else
            write_in_form(c, turned.tensor, w, of_dgrad, division(c));
    } else if (turned.is_transposed) {
        c.k.quantize_transposed(c.exec, turned.tensor, {}, w, largest(), of_dgrad.rule);
    } else {
        c.k.quantize(c.exec, turned.tensor, w, largest(), of_dgrad.rule, {});
    }
}

LinearWeight::LinearWeight(const std::vector<const Storage*>& storages) {
    int64_t first = 0;
    const auto add = [&](const Storage& storage, int param) {
        parts_.emplace_back(storage, first, param);
        first += parts_.back().rows();
    };
    // a parameter with one scale is multiplied by itself
    for (const Storage* storage : storages)
        if (storage->has_one_scales())
            for (int i = 0; i < int(storage->params().size()); ++i) add(*storage, i);
        else
            add(*storage, -1);
    require(parts_.size() <= most_parts, "a linear layer has too many parts");
}

int64_t LinearWeight::rows() const {
    int64_t sum = 0;
    for (const WeightPart& part : parts_) sum += part.rows();
    return sum;
}

}  // namespace coeus
