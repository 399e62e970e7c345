// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/model_counts.hpp"

#include "coeus/base/error.hpp"
#include "coeus/models/build_block.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/registry.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace coeus {

namespace {

// What some equal parts of a model declare.
struct PartCounts {
    ElementCounts of_one;
    int64_t parts = 1;
};

void add(ElementCounts& sum, const ElementCounts& more, int64_t parts = 1) {
    sum.all += parts * more.all;
    sum.active += parts * more.active;
    sum.multiplied += parts * more.multiplied;
}

ElementCounts counts_in(const Parameters& parameters, const DecoderConfig& model) {
    ElementCounts counts;
    for (const Storage* storage : parameters.model())
        for (const Param& param : storage->params()) add(counts, count_elements(param, model));
    return counts;
}

// How often a token is multiplied by each element of a parameter.
int64_t products_of(ParamRole role, const DecoderConfig& model) {
    const bool is_table = role == ParamRole::embedding,
               is_head = role == ParamRole::output || (is_table && model.tied);
    return is_head ? 1 + model.mtp.layers : is_table ? 0 : 1;
}

// A block that a family builds by itself may differ from layer to layer in any way.
std::vector<LayerKind> kinds_of_blocks(const DecoderConfig& model) {
    if (!find_family(model.family).own_block) return model.layer_kinds();
    std::vector<LayerKind> kinds;
    for (int64_t layer = 0; layer < model.all_layers(); ++layer)
        kinds.push_back({.config = model.layer(layer), .layers = {layer}});
    return kinds;
}

// A family that another program has registered counts as if its blocks were the usual ones.
std::string family_to_build(const DecoderConfig& model) {
    const std::vector<ModelFamily>& all = model_families();
    if (std::ranges::find(all, model.family, &ModelFamily::name) != all.end()) return model.family;
    return std::ranges::find(all, nullptr, &ModelFamily::own_block)->name;
}

std::vector<PartCounts> counts_of_parts(DecoderConfig model) {
    model.family = family_to_build(model);
    DecoderConfig without_layers = model;
    without_layers.layers = without_layers.mtp.layers = 0;
    const Decoder others(without_layers, {}, 1);
    std::vector<PartCounts> all = {{counts_in(others.parameters(), model)}};
    for (const LayerKind& kind : kinds_of_blocks(model)) {
        Parameters parameters({});
        build_layer({parameters, model, "", kind.layers.front()}, others.tables(), Recompute::nothing);
        all.push_back({counts_in(parameters, model), kind.count()});
    }
    if (model.mtp.layers > 0) {  // what they have besides a layer
        Parameters with_layer({}), layer({});
        build_mtp_layer(with_layer, model, 0, others.tables(), Recompute::nothing);
        build_layer({layer, model, "", model.layers}, others.tables(), Recompute::nothing);
        const int64_t more = counts_in(with_layer, model).all - counts_in(layer, model).all;
        all.push_back({{more, more, more}, model.mtp.layers});
    }
    return all;
}

}  // namespace

ElementCounts count_elements(const Param& param, const DecoderConfig& model) {
    if (param.is_exact) return {};
    const int64_t all = param.shape.count(), active = all / param.choices * param.chosen;
    return {.all = all, .active = active, .multiplied = active * products_of(param.role, model)};
}

ModelCounts count_model(const DecoderConfig& model) {
    ModelCounts sum;
    for (const auto& [of_one, parts] : counts_of_parts(model)) add(sum.elements, of_one, parts);
    for (const LayerKind& kind : model.layer_kinds())
        sum.score_width += kind.count() * kind.config.head_sizes().score_width();
    return sum;
}

int64_t DecoderConfig::parameters() const {
    return count_model(*this).elements.all;
}

int64_t DecoderConfig::active_parameters() const {
    return count_model(*this).elements.active;
}

double DecoderConfig::flops_per_token(int64_t seq_len) const {
    return count_model(*this).flops_per_token(seq_len);
}

double DecoderConfig::score_flops_per_token(int64_t seq_len) const {
    return count_model(*this).score_flops_per_token(seq_len);
}

void require_countable(double elements) {
    if (elements > most_elements)
        throw ConfigError(
            "model: {:.1e} parameters are more than the maximum of 1e15; reduce model.dim, model.n_layers or "
            "model.ffn_hidden",
            elements);
}

void require_countable(const DecoderConfig& model) {
    double elements = 0;
    for (const auto& [of_one, parts] : counts_of_parts(model)) elements += double(parts) * double(of_one.all);
    require_countable(elements);
}

}  // namespace coeus
