// SPDX-License-Identifier: Apache-2.0
#include "precision_from_deck.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

namespace coeus {

namespace {

Recipe float8_recipe(const std::string& name) {
    if (name == "tensorwise") return Recipe::tensorwise;
    if (name == "rowwise") return Recipe::rowwise;
    if (name == "rowwise_with_gw_hp") return Recipe::rowwise_with_gw_hp;
    throw LogicError(fmt::format("precision_from_deck has no recipe \"{}\"", name));
}

}  // namespace

Precision precision_from_deck(const Config& config) {
    const auto& linear = config.quantize.linear;
    const auto& experts = config.quantize.grouped_mm;
    Precision precision;
    if (uses_converter(config, "quantize.linear.float8")) {
        precision.linear = float8_recipe(linear.float8.recipe_name);
        precision.filter_fqns = linear.float8.filter_fqns;
        precision.gather_in_8_bits = linear.float8.enable_fsdp_float8_all_gather;
        precision.emulate = linear.float8.emulate;
    }
    if (uses_converter(config, "quantize.linear.mx")) {
        precision.linear = linear.mx.recipe_name.ends_with("rceil") ? Recipe::mx_rceil : Recipe::mx_floor;
        precision.filter_fqns = linear.mx.filter_fqns;
        precision.fqns = linear.mx.fqns;
        precision.emulate = linear.mx.recipe_name.starts_with("mxfp8_emulated");
    }
    if (uses_converter(config, "quantize.grouped_mm.float8")) {
        precision.experts = Recipe::rowwise;
        precision.expert_fqns = experts.float8.fqns;
    }
    if (uses_converter(config, "quantize.grouped_mm.mx")) {
        precision.experts = Recipe::mx_rceil;
        precision.expert_fqns = experts.mx.fqns;
    }
    return precision;
}

std::string converter_of(Recipe recipe, bool of_experts) {
    return fmt::format("quantize.{}.{}", of_experts ? "grouped_mm" : "linear",
                       has_blocks(recipe) ? "mx" : "float8");
}

}  // namespace coeus
