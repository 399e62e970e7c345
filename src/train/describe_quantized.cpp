// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/describe_quantized.hpp"

#include "coeus/base/text.hpp"
#include "coeus/train/quantize_checks.hpp"
#include "layer_matrices.hpp"
#include "quantize_options.hpp"

#include <algorithm>

namespace coeus {

namespace {

std::string converter_of_list(const Quantize& quantize, UnusedPart::List list) {
    const bool of_experts = list == UnusedPart::List::expert_fqns;
    return converter_of(of_experts ? quantize.experts : quantize.linear, of_experts);
}

std::string why_it_stays(const MatrixGroup& group, const Quantize& quantize) {
    switch (group.stays) {
        case Stays::no: return "";
        case Stays::unasked:
            return group.of_experts ? "no converter of experts" : "no converter of linear layers";
        case Stays::filtered: return fmt::format("filter_fqns has \"{}\"", group.filter);
        case Stays::unlisted: return "fqns does not name it";
        case Stays::side:
            return fmt::format("a side is not a multiple of {}",
                               multiple_of(group.of_experts ? quantize.experts : quantize.linear));
        case Stays::too_small: return fmt::format("it is small ({})", auto_filter);
        case Stays::always: return "never in 8 bits";
    }
    return "";
}

std::string size_text(const MatrixGroup& group) {
    return fmt::format("[{}, {}]", group.outputs, group.inputs);
}

}  // namespace

int64_t parameters_in_8_bits(const Engine& engine) {
    int64_t sum = 0;
    for (const LayerMatrix& matrix : layer_matrices(engine.decoder()))
        if (matrix.recipe != Recipe::none)
            sum += matrix.outputs * matrix.inputs *
                   (matrix.of_experts ? engine.decoder().config().moe.experts : 1);
    return sum;
}

std::vector<std::string> describe_quantized(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    const Quantize& quantize = types.quantize;
    if (!quantize.any()) return {};
    const DecoderConfig& model = engine.decoder().config();
    const std::vector<LayerMatrix> matrices = layer_matrices(engine.decoder());
    std::vector<std::string> recipes, lines;
    if (quantize.linear != Recipe::none)
        recipes.push_back(fmt::format("linear layers {}", name_of(quantize.linear)));
    if (quantize.experts != Recipe::none)
        recipes.push_back(fmt::format("experts {}", name_of(quantize.experts)));
    lines.push_back(fmt::format("In 8 bits: {} of {} parameters ({}); MFU is not reported",
                                with_commas(parameters_in_8_bits(engine)), with_commas(model.parameters()),
                                join(recipes, ", ")));
    if (!multiplies_in_8_bits(engine.options()))
        lines.push_back(fmt::format("{}: they are computed exactly, in software",
                                    engine.options().backend == Backend::cpu
                                        ? "CPUs have no products of 8-bit numbers"
                                        : "Products of 8-bit numbers are emulated"));
    for (const UnusedPart& part : unused_parts(quantize, matrices)) {
        using enum UnusedPart::List;
        lines.push_back(
            fmt::format("Notice: {}.{}: no layer's name has \"{}\"{}", converter_of_list(quantize, part.list),
                        part.list == filter_fqns ? "filter_fqns" : "fqns", part.part,
                        part.nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", part.nearest)));
    }
    const std::vector<MatrixGroup> groups = matrix_groups(quantize, matrices);
    for (const bool of_experts : {false, true}) {
        std::vector<std::string> odd;
        for (const MatrixGroup& group : groups)
            if (group.stays == Stays::side && group.of_experts == of_experts)
                odd.push_back(fmt::format("{} {}", group.name, size_text(group)));
        if (!odd.empty())
            lines.push_back(fmt::format("Notice: {} with a side that is not a multiple of {} stay in {}: {}",
                                        of_experts ? "experts" : "linear layers",
                                        multiple_of(of_experts ? quantize.experts : quantize.linear),
                                        name_of(types.compute), join(odd, ", ")));
    }
    return lines;
}

std::vector<std::string> describe_linear_layers(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    if (!types.quantize.any()) return {};
    std::string text = "Linear layers:";
    const std::vector<MatrixGroup> groups = matrix_groups(types.quantize, layer_matrices(engine.decoder()));
    size_t widest = 0, widest_size = 0;
    for (const MatrixGroup& group : groups) {
        widest = std::max(widest, group.name.size());
        widest_size = std::max(widest_size, size_text(group).size());
    }
    for (const MatrixGroup& group : groups)
        text += fmt::format("\n  {:<{}}  {:<{}}  {}", group.name, widest, size_text(group), widest_size,
                            group.stays == Stays::no ? name_of(group.recipe)
                                                     : fmt::format("{} ({})", name_of(types.compute),
                                                                   why_it_stays(group, types.quantize)));
    return {text};
}

std::vector<std::string> idle_converters(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    const std::vector<LayerMatrix> matrices = layer_matrices(engine.decoder());
    std::vector<std::string> warnings;
    const auto look = [&](Recipe recipe, bool of_experts) {
        const auto is_converted = [&](const LayerMatrix& matrix) {
            return matrix.of_experts == of_experts && matrix.recipe != Recipe::none;
        };
        if (recipe != Recipe::none && std::ranges::none_of(matrices, is_converted))
            warnings.push_back(fmt::format(
                "{} converts nothing: all {} stay in {} (model.print_after_conversion prints why)",
                converter_of(recipe, of_experts), of_experts ? "experts" : "linear layers",
                name_of(types.compute)));
    };
    look(types.quantize.linear, false);
    look(types.quantize.experts, true);
    return warnings;
}

}  // namespace coeus
