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
    rows_ = storage.params()[size_t(param)].local.rows;
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

Operand WeightPart::for_input_gradient(Ctx& c) const {
    const Form& form = forms_.w_of_dgrad;
    if (!form.is_8_bit() || is_kept_in_8_bits()) return operand(c, form);
    if (form.groups == ScaleGroups::one) return operand_by_columns(c, rows_of_storage(), form, largest());
    const Division by = division(c);
    return is_transposed_by_columns(c, form, by) ? operand_by_columns(c, rows_of_storage(), form, by)
                                                 : as_operand(c, rows_of_storage(), form, by);
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
