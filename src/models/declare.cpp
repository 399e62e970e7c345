// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/declare.hpp"

#include "coeus/models/model_counts.hpp"
#include "coeus/models/precision_plan.hpp"
#include "coeus/models/registry.hpp"

#include <algorithm>

namespace coeus {

namespace {

// The role by which optimizers choose parameters.
ParamRole role_of(WeightRole role) {
    switch (role) {
        case WeightRole::embedding: return ParamRole::embedding;
        case WeightRole::output: return ParamRole::output;
        case WeightRole::norm: return ParamRole::norm;
        case WeightRole::attention_bias:
        case WeightRole::router_bias:
        case WeightRole::expert_bias:
        case WeightRole::balance:
        case WeightRole::sink: return ParamRole::bias;
        default: return ParamRole::matrix;
    }
}

}  // namespace

Param Declare::weight(const std::string& name, const Shape& shape, WeightRole role, Split split) const {
    return named(name + ".weight", shape, role, split);
}

Param Declare::named(const std::string& name, const Shape& shape, WeightRole role, Split split) const {
    double elements = 1;  // their number may be too large for 64 bits
    for (int i = 0; i < shape.rank; ++i) elements *= double(shape[i]);
    require_countable(elements);
    // models are counted without layers too
    const int64_t layer = std::max<int64_t>(0, std::min(layer_, model_.layers - 1));
    return {.name = prefix_ + name,
            .shape = shape,
            .init = find_family(model_.family).init(role, layer, model_),
            .shard = {.tp = split},
            .role = role_of(role),
            .trainable = !parameters_.types().frozen.takes(prefix_ + name)};
}

Param Declare::linear(const std::string& name, const Shape& shape, WeightRole role, Split split) const {
    Param param = weight(name, shape, role, split);
    param.takes_recipe = param.sums_products = true;
    param.recipe = recipe_of_linear(parameters_.types().precision, param.name, shape.rows(), shape.cols());
    return param;
}

LinearWeight Declare::add_stack(std::vector<Param> params) const {
    std::vector<const Storage*> storages;
    for (size_t first = 0, end = 0; first < params.size(); first = end) {
        while (end < params.size() && params[end].recipe == params[first].recipe &&
               params[end].trainable == params[first].trainable)
            ++end;
        storages.push_back(
            &parameters_.add({params.begin() + int64_t(first), params.begin() + int64_t(end)}));
    }
    return storages;
}

const Storage& Declare::norm_weight(const std::string& name) const {
    return parameters_.add(weight(name, {model_.dim}, WeightRole::norm, Split::partial));
}

std::unique_ptr<Norm> Declare::norm(const std::string& name, Output output) const {
    if (model_.norm_type == NormType::np_layer_norm)
        return std::make_unique<LayerNorm>(nullptr, model_.hidden_eps(), output);
    const Storage& stored = norm_weight(name);
    if (model_.norm_type == NormType::layer_norm)
        return std::make_unique<LayerNorm>(&stored, model_.hidden_eps(), output);
    return std::make_unique<RmsNorm>(stored, NormForm{model_.hidden_eps(), norm_form().offset}, output);
}

std::unique_ptr<ResidualNorm> Declare::residual_norm(const std::string& name, Output output) const {
    return std::make_unique<ResidualNorm>(norm_weight(name), norm_form(), output);
}

Output output_for(const Declare& declare, const std::vector<Param>& weights, Output output) {
    const bool in_8_bits = std::ranges::all_of(
        weights, [](const Param& weight) { return forms_of(weight.recipe).x_of_wgrad.is_8_bit(); });
    if (output.place == Output::kept && in_8_bits) output.place = Output::kept_in_8_bits;
    for (const Param& weight : weights) {
        const RecipeForms forms = forms_of(weight.recipe);
        if (!forms.x.is_8_bit()) continue;
        output.of_product = forms.x.groups;
        output.of_gradient = forms.x_of_wgrad.groups;
        // a rank that has some columns of a row does not know its scale
        const bool has_whole_rows = weight.shard.tp != Split::cols || declare.parameters().place().tp == 1;
        if (output.of_product == ScaleGroups::rows && !has_whole_rows) output.of_product = ScaleGroups::none;
    }
    return output;
}

int64_t columns_together(int64_t width, int tp) {
    constexpr int64_t pack = 8, narrow = 16 * pack;
    return width / tp >= narrow ? pack : 1;
}

}  // namespace coeus
