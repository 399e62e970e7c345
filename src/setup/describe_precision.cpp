// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/describe_precision.hpp"

#include "coeus/base/function_ref.hpp"
#include "coeus/base/text.hpp"
#include "coeus/setup/precision_checks.hpp"
#include "precision_from_deck.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace coeus {

namespace {

bool converts_some(const std::vector<LayerMatrix>& matrices, bool of_experts) {
    return std::ranges::any_of(matrices, [&](const LayerMatrix& matrix) {
        return matrix.of_experts == of_experts && matrix.recipe != Recipe::none;
    });
}

std::string converter_of_list(const Precision& precision, UnusedPart::List list) {
    const bool of_experts = list == UnusedPart::List::expert_fqns;
    return converter_of(of_experts ? precision.experts : precision.linear, of_experts);
}

std::string why_it_stays(const MatrixGroup& group, const Precision& precision) {
    switch (group.stays) {
        case Stays::no: return "";
        case Stays::unasked:
            return group.of_experts ? "no converter of experts" : "no converter of linear layers";
        case Stays::filtered: return fmt::format("filter_fqns has \"{}\"", group.filter);
        case Stays::unlisted: return "fqns does not name it";
        case Stays::side:
            return fmt::format("a side is not a multiple of {}",
                               multiple_of(group.of_experts ? precision.experts : precision.linear));
        case Stays::too_small: return fmt::format("it is small ({})", auto_filter);
        case Stays::always: return "never in 8 bits";
    }
    return "";
}

std::string size_text(const MatrixGroup& group) {
    return fmt::format("[{}, {}]", group.outputs, group.inputs);
}

// Layers in 8 bits whose outputs share rows with those of layers that stay, if a row's length is not a
// multiple of 16: there, GPUs cannot write the result of an 8-bit product. Layers of a module with equal
// inputs share rows (wq, wk, wv; w1, w3), but not those that divide their inputs (wo, w2).
std::vector<LayerMatrix> in_uneven_rows(const std::vector<LayerMatrix>& matrices, int tp) {
    const auto shares_rows = [](const LayerMatrix& matrix) {
        return !matrix.of_experts && matrix.split != Split::cols;
    };
    const auto place_of = [](const LayerMatrix& matrix) {
        const std::string layer = matrix.parameter.substr(0, matrix.parameter.rfind('.'));
        return std::pair(layer.substr(0, layer.rfind('.')), matrix.inputs);
    };
    std::map<std::pair<std::string, int64_t>, int64_t> lengths;
    for (const LayerMatrix& matrix : matrices)
        if (shares_rows(matrix))
            lengths[place_of(matrix)] += matrix.outputs / (matrix.split == Split::rows ? tp : 1);
    std::vector<LayerMatrix> uneven;
    std::ranges::copy_if(matrices, std::back_inserter(uneven), [&](const LayerMatrix& matrix) {
        return matrix.recipe != Recipe::none && shares_rows(matrix) && lengths[place_of(matrix)] % 16 != 0;
    });
    return uneven;
}

// "layers.0-31.attention.wq [4096, 4096]" of each group for which `is_meant` holds.
std::string names_of(const std::vector<MatrixGroup>& groups, FunctionRef<bool(const MatrixGroup&)> is_meant) {
    std::vector<std::string> names;
    for (const MatrixGroup& group : groups)
        if (is_meant(group)) names.push_back(fmt::format("{} {}", group.name, size_text(group)));
    return join(names, ", ");
}

}  // namespace

int64_t parameters_in_8_bits(const Engine& engine) {
    int64_t sum = 0;
    for (const LayerMatrix& matrix : engine.model().matrices())
        if (matrix.recipe != Recipe::none) sum += matrix.number * matrix.outputs * matrix.inputs;
    return sum;
}

Findings describe_precision(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    const Precision& precision = types.precision;
    if (!precision.any()) return {};
    const std::vector<LayerMatrix> matrices = engine.model().matrices();
    std::vector<std::string> recipes;
    Findings found;
    const auto fact = [&](const std::string& text) { found.add(Finding::Topic::plan, text); };
    const auto notice = [&](const std::string& text) {
        found.add(Finding::Topic::plan, text, Finding::Severity::notice);
    };
    const bool linear = converts_some(matrices, false), experts = converts_some(matrices, true),
               on_gpu = engine.options().machine.backend == Backend::cuda;
    if (linear) recipes.push_back(fmt::format("linear layers {}", name_of(precision.linear)));
    if (experts) recipes.push_back(fmt::format("experts {}", name_of(precision.experts)));
    if (!recipes.empty())
        fact(fmt::format("In 8 bits: {} of {} parameters ({}); MFU is not reported",
                         with_commas(parameters_in_8_bits(engine)),
                         with_commas(engine.config()->parameters()), join(recipes, ", ")));
    if (!recipes.empty() && !on_gpu)
        fact("CPUs have no products of 8-bit numbers: they are computed exactly, in software");
    if (linear && on_gpu && precision.emulate)
        fact("Products of linear layers are emulated: they are computed exactly, in software");
    if (experts && on_gpu)
        fact(multiplies_experts_in_8_bits(engine.options())
                 ? "Products of experts multiply 8-bit numbers on this GPU"
                 : "Products of experts are computed in bfloat16 from 8-bit numbers on this GPU");
    for (const UnusedPart& part : unused_parts(precision, matrices)) {
        using enum UnusedPart::List;
        notice(fmt::format("{}.{}: no layer's name has \"{}\"{}", converter_of_list(precision, part.list),
                           part.list == filter_fqns ? "filter_fqns" : "fqns", part.part,
                           part.nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", part.nearest)));
    }
    const std::vector<MatrixGroup> groups = matrix_groups(precision, matrices);
    for (const bool of_experts : {false, true}) {
        const std::string odd = names_of(groups, [&](const MatrixGroup& group) {
            return group.stays == Stays::side && group.of_experts == of_experts;
        });
        if (!odd.empty())
            notice(fmt::format("{} with a side that is not a multiple of {} stay in {}: {}",
                               of_experts ? "experts" : "linear layers",
                               multiple_of(of_experts ? precision.experts : precision.linear),
                               name_of(types.compute), odd));
    }
    if (multiplies_in_8_bits(engine.options()))
        if (const std::string uneven =
                names_of(matrix_groups(precision, in_uneven_rows(matrices, engine.options().mesh.tp)),
                         [](const MatrixGroup&) { return true; });
            !uneven.empty())
            notice(
                "GPUs compute the outputs of these layers in bfloat16, since they share rows with "
                "other outputs, and the length of a row is not a multiple of 16: " +
                uneven);
    return found;
}

std::vector<std::string> describe_linear_layers(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    if (!types.precision.any()) return {};
    std::string text = "Linear layers:";
    const std::vector<MatrixGroup> groups = matrix_groups(types.precision, engine.model().matrices());
    size_t widest = 0, widest_size = 0;
    for (const MatrixGroup& group : groups) {
        widest = std::max(widest, group.name.size());
        widest_size = std::max(widest_size, size_text(group).size());
    }
    for (const MatrixGroup& group : groups)
        text += fmt::format("\n  {:<{}}  {:<{}}  {}", group.name, widest, size_text(group), widest_size,
                            group.stays == Stays::no ? name_of(group.recipe)
                                                     : fmt::format("{} ({})", name_of(types.compute),
                                                                   why_it_stays(group, types.precision)));
    return {text};
}

std::vector<std::string> idle_converters(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    const std::vector<LayerMatrix> matrices = engine.model().matrices();
    std::vector<std::string> warnings;
    const auto look = [&](Recipe recipe, bool of_experts) {
        if (recipe != Recipe::none && !converts_some(matrices, of_experts))
            warnings.push_back(fmt::format(
                "{} converts nothing: all {} stay in {} (model.print_after_conversion prints why)",
                converter_of(recipe, of_experts), of_experts ? "experts" : "linear layers",
                name_of(types.compute)));
    };
    look(types.precision.linear, false);
    look(types.precision.experts, true);
    return warnings;
}

}  // namespace coeus
