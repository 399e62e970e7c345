// SPDX-License-Identifier: Apache-2.0
#include "quantize_options.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/train/describe_run.hpp"
#include "coeus/train/run_options.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

Recipe float8_recipe(const std::string& name) {
    if (name == "tensorwise") return Recipe::tensorwise;
    if (name == "rowwise") return Recipe::rowwise;
    if (name == "rowwise_with_gw_hp") return Recipe::rowwise_with_gw_hp;
    throw LogicError(fmt::format("quantize_from_deck has no recipe \"{}\"", name));
}

std::string converter_of(Recipe recipe, bool of_experts) {
    return fmt::format("quantize.{}.{}", of_experts ? "grouped_mm" : "linear",
                       has_blocks(recipe) ? "mx" : "float8");
}

std::string converter_of_list(const Quantize& quantize, UnusedPart::List list) {
    const bool of_experts = list == UnusedPart::List::expert_fqns;
    return converter_of(of_experts ? quantize.experts : quantize.linear, of_experts);
}

/// A matrix, and how the ranks divide it.
struct DividedMatrix {
    LayerMatrix matrix;
    Split split = Split::none;
};

bool ends_with(const std::string& name, std::initializer_list<const char*> ends) {
    return std::ranges::any_of(ends, [&](const char* end) { return name.ends_with(end); });
}

// The matrices of the whole model with which tokens are multiplied, and its table of tokens.
std::vector<DividedMatrix> matrices_of(const Decoder& decoder) {
    std::vector<DividedMatrix> matrices;
    for (const Storage* storage : decoder.parameters().model())
        for (const Param& param : storage->params()) {
            const bool is_table = param.role == ParamRole::embedding;
            if (param.role != ParamRole::matrix && param.role != ParamRole::output && !is_table) continue;
            matrices.push_back({{.parameter = param.name,
                                 .outputs = param.rows_per_group(),
                                 .inputs = param.shape.cols(),
                                 .of_experts = param.shape.rank == 3,
                                 .recipe = param.recipe,
                                 .always_stays = is_table || ends_with(param.name, {"router.gate.weight",
                                                                                    "eh_proj.weight"})},
                                param.shard.tp});
        }
    if (const DecoderConfig& model = decoder.config(); model.tied)
        matrices.push_back({{.parameter = "output.weight",
                             .outputs = model.vocab,
                             .inputs = model.dim,
                             .always_stays = true}});
    return matrices;
}

std::vector<LayerMatrix> without_splits(const std::vector<DividedMatrix>& matrices) {
    std::vector<LayerMatrix> all;
    for (const DividedMatrix& divided : matrices) all.push_back(divided.matrix);
    return all;
}

bool uses_8_bit_products(const EngineOptions& options) {
    return options.backend == Backend::cuda && !options.types.quantize.emulate;
}

void require_experts(const Config& config, const DecoderConfig& model) {
    if (model.moe.experts > 0) return;
    for (const std::string& converter : config.model.converters)
        if (converter.starts_with("quantize.grouped_mm."))
            throw ConfigError("model.converters: {} converts experts, but {} {} has no experts; remove it",
                              converter, model.family, model.flavor);
}

// The largest divisor d of `degree` with which 1/d of `side` is a multiple of `multiple`, which `side` is.
int64_t largest_degree(int64_t degree, int64_t side, int64_t multiple) {
    int64_t d = degree;
    while (degree % d != 0 || side % (d * multiple) != 0) --d;
    return d;
}

// "attention.wk" of "layers.0.attention.wk"
std::string part_for_filter(const std::string& name) {
    const size_t last = name.rfind('.'),
                 before = last == std::string::npos ? last : name.rfind('.', last - 1);
    return before == std::string::npos ? name : name.substr(before + 1);
}

void require_parts_fit(const DecoderConfig& model, const EngineOptions& options) {
    const Decoder decoder(model, options.types, 1);
    for (const auto& [matrix, split] : matrices_of(decoder)) {
        const bool mx = has_blocks(matrix.recipe), by_rows = split == Split::rows;
        if (matrix.recipe == Recipe::none || (!by_rows && split != Split::cols)) continue;
        if (!mx && !uses_8_bit_products(options)) continue;
        const int64_t multiple = multiple_of(matrix.recipe), side = by_rows ? matrix.outputs : matrix.inputs,
                      degree = options.mesh.size(matrix.of_experts ? axis::etp : axis::tp);
        if (side % (degree * multiple) == 0) continue;
        const std::string name = matrix.parameter.substr(0, matrix.parameter.rfind(".weight"));
        const std::string list = converter_of(matrix.recipe, matrix.of_experts);
        throw ConfigError(
            "{} [{}, {}]: parallelism.{} = {} leaves {} {}, {} products need multiples of {}; the largest "
            "degree is {}, or {}",
            name, matrix.outputs, matrix.inputs,
            matrix.of_experts && options.mesh.ep > 1 ? "expert_tensor_parallel_degree"
                                                     : "tensor_parallel_degree",
            degree, double(side) / double(degree), by_rows ? "rows" : "columns", mx ? "MXFP8" : "8-bit",
            multiple, largest_degree(degree, side, multiple),
            matrix.of_experts ? fmt::format("remove {} from model.converters", list)
                              : fmt::format("add \"{}\" to {}.filter_fqns", part_for_filter(name), list));
    }
}

// The gradient of a weight is a product that sums over tokens.
void require_tokens_fit(const Config& config, const DecoderConfig& model, const EngineOptions& options) {
    const Recipe recipe = options.types.quantize.linear;
    const bool mx = has_blocks(recipe);
    if (!forms_of(recipe).x_of_weight.is_8_bit() || (!mx && !uses_8_bit_products(options))) return;
    const MeshShape& mesh = options.mesh;
    const int64_t sequences = options.training.sequences / options.pipeline.timetable.microbatches,
                  parts = mesh.cp > 1 && options.exchanges.context.balancing == Balancing::head_tail
                              ? 2 * mesh.cp
                              : mesh.cp,
                  multiple = multiple_of(recipe),
                  tp = mx || model.attention.is_latent() ? mesh.tp : 1;  // latents are of a rank's own tokens
    const auto fits = [&](int64_t seq_len) {
        return sequences * (seq_len / mesh.cp) / tp % multiple == 0 &&
               (!mx || mesh.cp == 1 || seq_len / parts % multiple == 0);
    };
    const int64_t seq_len = options.training.seq_len;
    if (fits(seq_len)) return;
    const int64_t step = mesh.tp * parts, middle = seq_len / step;
    int64_t nearest = 0;
    for (int64_t distance = 1; nearest == 0; ++distance)
        for (const int64_t steps : {middle - distance, middle + distance})
            if (nearest == 0 && steps > 0 && fits(steps * step)) nearest = steps * step;
    throw ConfigError(
        "training.seq_len = {}: {} needs multiples of {} tokens of a micro-batch ({} x seq_len) on each "
        "rank{}; the nearest valid value is {}",
        seq_len, mx ? "MXFP8" : fmt::format("{} on GPUs", config.model.converters.front()), multiple,
        sequences, mx && mesh.cp > 1 ? ", and in each part of a sequence" : "", nearest);
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

Quantize quantize_from_deck(const Config& config) {
    const auto& linear = config.quantize.linear;
    const auto& experts = config.quantize.grouped_mm;
    const auto uses = [&](const char* converter) { return uses_converter(config, converter); };
    const bool linear8 = uses("quantize.linear.float8"), experts8 = uses("quantize.grouped_mm.float8");
    Quantize quantize;
    quantize.emulate = (linear8 || experts8) && linear.float8.emulate;
    if (linear8) {
        quantize.linear = float8_recipe(linear.float8.recipe_name);
        quantize.filter_fqns = linear.float8.filter_fqns;
        quantize.gather_in_8_bits = linear.float8.enable_fsdp_float8_all_gather;
    }
    if (experts8) {
        quantize.experts = Recipe::rowwise;
        quantize.expert_fqns = experts.float8.fqns;
    }
    if (uses("quantize.linear.mx")) {
        quantize.linear = linear.mx.recipe_name.ends_with("rceil") ? Recipe::mx_rceil : Recipe::mx_floor;
        quantize.filter_fqns = linear.mx.filter_fqns;
        quantize.fqns = linear.mx.fqns;
        quantize.emulate = quantize.emulate || linear.mx.recipe_name.starts_with("mxfp8_emulated");
    }
    if (uses("quantize.grouped_mm.mx")) {
        quantize.experts = Recipe::mx_rceil;
        quantize.expert_fqns = experts.mx.fqns;
        quantize.emulate = quantize.emulate || experts.mx.recipe_name == "mxfp8_emulated";
    }
    return quantize;
}

void require_quantized_fits(const Config& config, const DecoderConfig& model, const EngineOptions& options) {
    require_experts(config, model);
    require_parts_fit(model, options);
    require_tokens_fit(config, model, options);
}

void require_8_bit_products(const EngineOptions& options, const std::string& gpu, int capability) {
    constexpr int float8_since = 89, mx_since = 100;
    const Quantize& quantize = options.types.quantize;
    if (!uses_8_bit_products(options) || !quantize.any() || capability == 0) return;
    const std::string name = gpu.starts_with("an ") ? gpu.substr(3) : gpu;
    const bool mx_linear = has_blocks(quantize.linear), mx = mx_linear || has_blocks(quantize.experts);
    if (capability >= (mx ? mx_since : float8_since)) return;
    if (!mx)
        throw ConfigError(
            "{} (sm_{}) has no 8-bit products (sm_{} has); set quantize.linear.float8.emulate = true", name,
            capability, float8_since);
    throw ConfigError(
        "{} (sm_{}) has no MXFP8 products (sm_{} has); set {}.recipe_name = \"mxfp8_emulated{}\"", name,
        capability, mx_since, converter_of(Recipe::mx_floor, !mx_linear),
        quantize.linear == Recipe::mx_rceil ? "_rceil" : "");
}

std::vector<std::string> describe_quantized(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    const Quantize& quantize = types.quantize;
    if (!quantize.any()) return {};
    const DecoderConfig& model = engine.decoder().config();
    const std::vector<DividedMatrix> divided = matrices_of(engine.decoder());
    const std::vector<LayerMatrix> matrices = without_splits(divided);
    int64_t converted = 0;
    for (const LayerMatrix& matrix : matrices)
        if (matrix.recipe != Recipe::none)
            converted += matrix.outputs * matrix.inputs * (matrix.of_experts ? model.moe.experts : 1);
    std::vector<std::string> recipes, lines;
    if (quantize.linear != Recipe::none)
        recipes.push_back(fmt::format("linear layers {}", name_of(quantize.linear)));
    if (quantize.experts != Recipe::none)
        recipes.push_back(fmt::format("experts {}", name_of(quantize.experts)));
    lines.push_back(fmt::format("In 8 bits: {} of {} parameters ({}); MFU is not reported",
                                with_commas(converted), with_commas(model.parameters()),
                                join(recipes, ", ")));
    if (!uses_8_bit_products(engine.options()))
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
    const std::vector<MatrixGroup> groups =
        matrix_groups(types.quantize, without_splits(matrices_of(engine.decoder())));
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
    const std::vector<DividedMatrix> matrices = matrices_of(engine.decoder());
    std::vector<std::string> warnings;
    const auto look = [&](Recipe recipe, bool of_experts) {
        const auto is_converted = [&](const DividedMatrix& divided) {
            return divided.matrix.of_experts == of_experts && divided.matrix.recipe != Recipe::none;
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
