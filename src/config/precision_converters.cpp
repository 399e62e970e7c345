// SPDX-License-Identifier: Apache-2.0
#include "precision_converters.hpp"

#include "coeus/deck_names/precision_filter.hpp"

#include <algorithm>

namespace coeus {

bool uses_converter(const Config& config, const std::string& converter) {
    return std::ranges::count(config.model.converters, converter) > 0;
}

}  // namespace coeus

namespace coeus::config {

std::string missing_converter(const Option& option, const Config& config) {
    const std::string section = option.section();
    return section.starts_with("quantize.") && !uses_converter(config, section) ? section : "";
}

void name_converters_uniquely(Config& config) {
    for (std::string& converter : config.model.converters)
        if (converter == "float8" || converter == "mx") converter = "quantize.linear." + converter;
    std::string& float8 = config.quantize.linear.float8.recipe_name;
    if (float8 == "none") float8 = "tensorwise";
    std::string& mx = config.quantize.linear.mx.recipe_name;
    if (mx == "mxfp8") mx = "mxfp8_cublas";
}

namespace {

// Each part is looked for in the name of every layer.
void check_parts(Errors& errors, const char* option, const Words& parts) {
    constexpr size_t most_parts = 1000, longest_part = 256;
    errors.demand(parts.size() <= most_parts, "quantize.{}: has {} parts of names; at most {} are possible",
                  option, parts.size(), most_parts);
    for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].size() > longest_part)
            return errors.demand(false,
                                 "quantize.{}: part {} of a name has {} bytes; at most {} are possible",
                                 option, i + 1, parts[i].size(), longest_part);
}

}  // namespace

void check_converters(Errors& errors, const Config& config) {
    const auto& linear = config.quantize.linear;
    const auto& experts = config.quantize.grouped_mm;
    const auto uses = [&](const std::string& converter) {
        return uses_converter(config, "quantize." + converter);
    };
    for (const auto& [kind, what] : {std::pair("linear", "linear layers"), {"grouped_mm", "experts"}}) {
        const std::string start = kind;
        errors.demand(
            !uses(start + ".float8") || !uses(start + ".mx"),
            "model.converters: quantize.{0}.float8 and quantize.{0}.mx both convert {1}; leave one out", kind,
            what);
    }
    const auto has_auto_filter = [](const Words& filter) {
        return std::ranges::count(filter, auto_filter) > 0;
    };
    if (uses("linear.float8")) {
        const std::string& recipe = linear.float8.recipe_name;
        errors.demand(!linear.float8.enable_fsdp_float8_all_gather || recipe == "tensorwise",
                      "quantize.linear.float8.enable_fsdp_float8_all_gather = true: needs one scale for a "
                      "weight, recipe_name = \"{}\" has one for each row; set recipe_name = \"tensorwise\"",
                      recipe);
        errors.demand(
            !linear.float8.enable_fsdp_float8_all_gather || !config.training.enable_cpu_offload,
            "quantize.linear.float8.enable_fsdp_float8_all_gather = true: makes 8-bit weights of the "
            "optimizer's weights, which training.enable_cpu_offload = true moves to host memory; remove one "
            "of the two");
        errors.demand(
            recipe != "rowwise_with_gw_hp" || !has_auto_filter(linear.float8.filter_fqns),
            "quantize.linear.float8.filter_fqns: \"{}\" has no sizes for recipe_name = \"{}\"; name "
            "the layers",
            auto_filter, recipe);
    }
    if (uses("linear.mx"))
        errors.demand(!has_auto_filter(linear.mx.filter_fqns),
                      "quantize.linear.mx.filter_fqns: \"{}\" has no sizes for MXFP8; name the layers",
                      auto_filter);
    const auto names_some = [&](const std::string& converter, const Words& fqns) {
        errors.demand(!uses(converter) || !fqns.empty(),
                      "quantize.{}.fqns is empty: nothing would be converted; name \"experts\"", converter);
    };
    names_some("grouped_mm.float8", experts.float8.fqns);
    names_some("grouped_mm.mx", experts.mx.fqns);
    check_parts(errors, "linear.float8.filter_fqns", linear.float8.filter_fqns);
    check_parts(errors, "linear.mx.filter_fqns", linear.mx.filter_fqns);
    check_parts(errors, "linear.mx.fqns", linear.mx.fqns);
    check_parts(errors, "grouped_mm.float8.fqns", experts.float8.fqns);
    check_parts(errors, "grouped_mm.mx.fqns", experts.mx.fqns);
}

}  // namespace coeus::config
