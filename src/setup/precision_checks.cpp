// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/precision_checks.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "precision_from_deck.hpp"

#include <algorithm>
#include <numeric>

namespace coeus {

namespace {

void require_experts(const Config& config, const ModelConfig& model) {
    if (model->experts().all > 0) return;
    for (const std::string& converter : config.model.converters) {
        if (!converter.starts_with("quantize.grouped_mm.")) continue;
        const std::string kind = converter.substr(converter.rfind('.') + 1);
        throw ConfigError(
            "model.converters: {} converts experts, but {} has no experts; remove it{}", converter,
            model->name(),
            uses_converter(config, "quantize.linear." + kind)
                ? fmt::format(", or {0}.moe_fqns_prototype, which adds it to quantize.linear.{0}", kind)
                : "");
    }
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

void require_parts_fit(const ModelConfig& model, const EngineOptions& options) {
    const auto built = model->build(options.types, 1, {}, {model.whole()}, {});
    for (const LayerMatrix& matrix : built->matrices()) {
        const bool mx = has_blocks(matrix.recipe), by_rows = matrix.split == Split::rows;
        if (matrix.recipe == Recipe::none || (!by_rows && matrix.split != Split::cols)) continue;
        if (!mx && (matrix.of_experts || !multiplies_in_8_bits(options))) continue;
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

// Parts of a sequence that have matrices of their own. Their lengths follow from the data, so the number of
// samples must fit. If ranks divide them, blocks of MX lie within one part, as on one rank.
void require_streams_fit(const EngineOptions& options, const std::vector<int64_t>& streams,
                         const std::string& what, int64_t multiple) {
    const int64_t ranks = options.mesh.cp, micro_batches = options.pipeline.timetable.microbatches;
    int64_t common = multiple;
    std::vector<std::string> lengths;
    for (const int64_t tokens : streams) {
        common = std::gcd(common, tokens / ranks);
        lengths.push_back(std::to_string(tokens / ranks));
    }
    if (ranks > 1 && common < multiple && has_blocks(options.types.precision.linear))
        throw ConfigError(
            "parallelism.context_parallel_degree = {}: leaves {} tokens of a sample's streams on each rank, "
            "and {} "
            "needs multiples of {}; set it to 1",
            ranks, join(lengths, " and "), what, multiple);
    const int64_t step = multiple / common * micro_batches, samples = options.training.sequences;
    if (samples % step == 0) return;
    throw ConfigError(
        "training.local_batch_size = {}: {} needs multiples of {} tokens of each stream in a micro-batch, "
        "and a "
        "sample has {} on each rank; the nearest valid value is {}",
        samples, what, multiple, join(lengths, " and "),
        std::max<int64_t>(1, (samples + step / 2) / step) * step);
}

// GPUs multiply multiples of 16 tokens in 8 bits. With MX, the gradient of a weight sums over blocks of 32.
void require_tokens_fit(const ModelConfig& model, const EngineOptions& options) {
    const Recipe recipe = options.types.precision.linear;
    const bool mx = has_blocks(recipe);
    if (recipe == Recipe::none || (!mx && !multiplies_in_8_bits(options))) return;
    const MeshShape& mesh = options.mesh;
    const int64_t sequences = options.training.sequences / options.pipeline.timetable.microbatches,
                  parts = mesh.cp > 1 && options.exchanges.context.balancing == Balancing::head_tail
                              ? 2 * mesh.cp
                              : mesh.cp,
                  multiple = multiple_of(recipe);
    const auto fits = [&](int64_t seq_len) {
        return sequences * (seq_len / mesh.cp) / mesh.tp % multiple == 0 &&
               (!mx || mesh.cp == 1 || seq_len / parts % multiple == 0);
    };
    const std::string what = mx ? "MXFP8" : fmt::format("{} on GPUs", converter_of(recipe, false));
    if (const std::vector<int64_t> streams = model->streams(); !streams.empty())
        return require_streams_fit(options, streams, what, multiple);
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
        seq_len, what, multiple, sequences, mx && mesh.cp > 1 ? ", and in each part of a sequence" : "",
        nearest);
}

}  // namespace

bool multiplies_in_8_bits(const EngineOptions& options) {
    return options.machine.backend == Backend::cuda && !options.types.precision.emulate;
}

bool multiplies_experts_in_8_bits(const EngineOptions& options) {
    return multiplies_in_8_bits(options) && !has_blocks(options.types.precision.experts) &&
           experts_multiply_8_bits(options.machine.architecture, options.experts_in_8_bits);
}

void require_precision_fits(const Config& config, const ModelConfig& model, const EngineOptions& options) {
    require_experts(config, model);
    require_parts_fit(model, options);
    require_tokens_fit(model, options);
}

void require_8_bit_products(const EngineOptions& options, const std::string& gpu, int capability) {
    constexpr int float8_since = 89, mx_since = 100;
    const Recipe recipe = options.types.precision.linear;
    if (recipe == Recipe::none || !multiplies_in_8_bits(options) || capability == 0) return;
    const std::string name = gpu.starts_with("an ") ? gpu.substr(3) : gpu;
    if (capability >= (has_blocks(recipe) ? mx_since : float8_since)) return;
    if (!has_blocks(recipe))
        throw ConfigError(
            "{} (sm_{}) has no 8-bit products (sm_{} has); set quantize.linear.float8.emulate = true", name,
            capability, float8_since);
    throw ConfigError(
        "{} (sm_{}) has no MXFP8 products (sm_{} has); set quantize.linear.mx.recipe_name = "
        "\"mxfp8_emulated{}\"",
        name, capability, mx_since, recipe == Recipe::mx_rceil ? "_rceil" : "");
}

}  // namespace coeus
