// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/flux.hpp"

#include "coeus/layers/double_stream.hpp"
#include "coeus/layers/flux_head.hpp"
#include "coeus/layers/flux_input.hpp"
#include "coeus/layers/recompute_block.hpp"
#include "coeus/layers/single_stream.hpp"
#include "coeus/models/model_counts.hpp"
#include "coeus/models/precision_plan.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

struct FluxLinear {
    const Storage &weight, &bias;
};

// Declares the parameters of a part of Flux, with torchtitan's initial values.
class FluxParameters {
public:
    FluxParameters(Parameters& parameters, std::string prefix)
        : parameters_(parameters), prefix_(std::move(prefix)) {}

    // A matrix that tokens are multiplied by; `groups`: of its rows, which are matrices of their own to Muon.
    FluxLinear of_tokens(const std::string& name, int64_t outputs, int64_t inputs, int64_t groups = 1) const {
        Param weight = matrix(name, outputs, inputs, xavier(outputs, inputs));
        weight.groups = groups;
        weight.takes_recipe = true;
        weight.recipe = recipe_of_linear(parameters_.types().precision, weight.name, outputs, inputs);
        return add(name, std::move(weight));
    }
    // A matrix that each sample is multiplied by once.
    FluxLinear of_samples(const std::string& name, int64_t outputs, int64_t inputs, const Init& init) const {
        return add(name, matrix(name, outputs, inputs, init));
    }
    FluxLinear output(const std::string& name, int64_t outputs, int64_t inputs) const {
        Param weight = matrix(name, outputs, inputs, {});
        weight.role = ParamRole::output;
        weight.takes_recipe = true;
        weight.recipe = recipe_of_linear(parameters_.types().precision, weight.name, outputs, inputs);
        return add(name, std::move(weight));
    }
    const Storage& norm(const std::string& name, int64_t width) const {
        return parameters_.add(named(name + ".weight", {width}, Init::ones(), ParamRole::norm));
    }

private:
    static Init xavier(int64_t outputs, int64_t inputs) {
        return Init::uniform(std::sqrt(6.0 / double(outputs + inputs)));
    }
    Param named(const std::string& name, const Shape& shape, const Init& init, ParamRole role) const {
        return {.name = prefix_ + name,
                .shape = shape,
                .init = init,
                .role = role,
                .trainable = !parameters_.types().frozen.takes(prefix_ + name)};
    }
    Param matrix(const std::string& name, int64_t outputs, int64_t inputs, const Init& init) const {
        Param weight = named(name + ".weight", {outputs, inputs}, init, ParamRole::matrix);
        weight.sums_products = true;
        return weight;
    }
    FluxLinear add(const std::string& name, Param weight) const {
        const Shape of_bias = {weight.shape.rows()};
        const Storage& stored = parameters_.add(std::move(weight));
        return {stored, parameters_.add(named(name + ".bias", of_bias, {}, ParamRole::bias))};
    }
    Parameters& parameters_;
    std::string prefix_;
};

// The place of an output that this weight multiplies.
Output output_for(const FluxLinear& linear, Recompute recompute) {
    if (recompute == Recompute::operations) return Output::recomputed;
    const bool in_8_bits = forms_of(linear.weight.recipe()).x_of_wgrad.is_8_bit();
    return in_8_bits ? Output::kept_in_8_bits : Output::kept;
}

std::unique_ptr<Block> input_block(const FluxParameters& declare, const FluxConfig& m) {
    const int64_t width = m.hidden_size;
    const auto embedding = [&](const std::string& name, int64_t inputs) -> SampleEmbedding::Weights {
        const FluxLinear in = declare.of_samples(name + ".in_layer", width, inputs, Init::normal(0.02)),
                         out = declare.of_samples(name + ".out_layer", width, width, Init::normal(0.02));
        return {in.weight, in.bias, out.weight, out.bias};
    };
    const FluxLinear patches = declare.of_tokens("img_in", width, m.in_channels);
    const SampleEmbedding::Weights time = embedding("time_in", time_features),
                                   pooled = embedding("vector_in", m.vec_in_dim);
    std::vector<SampleEmbedding::Weights> guidance;
    if (m.guidance_embed) guidance.push_back(embedding("guidance_in", time_features));
    const FluxLinear text = declare.of_tokens("txt_in", width, m.context_in_dim);
    return std::make_unique<FluxInput>(
        FluxInput::Weights{patches.weight, patches.bias, time, pooled, guidance, text.weight, text.bias});
}

// `name`: "img" or "txt".
std::unique_ptr<StreamLayers> stream_layers(const FluxParameters& declare, const FluxConfig& m,
                                            const StreamSizes& sizes, const std::string& name,
                                            Recompute recompute) {
    const int64_t width = m.hidden_size;
    const FluxLinear modulation = declare.of_samples(name + "_mod.lin", 6 * width, width, {}),
                     qkv = declare.of_tokens(name + "_attn.qkv", 3 * width, width, 3);
    const Storage &q_norm = declare.norm(name + "_attn.norm.query_norm", m.head_dim()),
                  &k_norm = declare.norm(name + "_attn.norm.key_norm", m.head_dim());
    const FluxLinear proj = declare.of_tokens(name + "_attn.proj", width, width),
                     in = declare.of_tokens(name + "_mlp.0", m.mlp_hidden(), width),
                     out = declare.of_tokens(name + "_mlp.2", width, m.mlp_hidden());
    const StreamLayers::Outputs outputs = {output_for(qkv, recompute), output_for(in, recompute),
                                           output_for(out, recompute)};
    return std::make_unique<StreamLayers>(
        StreamLayers::Weights{modulation.weight, modulation.bias, qkv.weight, qkv.bias, q_norm, k_norm,
                              proj.weight, proj.bias, in.weight, in.bias, out.weight, out.bias},
        sizes, outputs);
}

std::unique_ptr<Block> double_block(const FluxParameters& declare, const FluxConfig& m,
                                    const StreamSizes& sizes, const RopeTable& table, Recompute recompute) {
    auto patches = stream_layers(declare, m, sizes, "img", recompute),
         text = stream_layers(declare, m, sizes, "txt", recompute);
    return std::make_unique<DoubleStream>(std::move(text), std::move(patches), sizes, table);
}

std::unique_ptr<Block> single_block(const FluxParameters& declare, const FluxConfig& m,
                                    const StreamSizes& sizes, const RopeTable& table, Recompute recompute) {
    const int64_t width = m.hidden_size;
    const FluxLinear linear1 = declare.of_tokens("linear1", 3 * width + m.mlp_hidden(), width),
                     linear2 = declare.of_tokens("linear2", width, width + m.mlp_hidden());
    const Storage &q_norm = declare.norm("norm.query_norm", m.head_dim()),
                  &k_norm = declare.norm("norm.key_norm", m.head_dim());
    const FluxLinear modulation = declare.of_samples("modulation.lin", 3 * width, width, {});
    return std::make_unique<SingleStream>(
        SingleStream::Weights{modulation.weight, modulation.bias, linear1.weight, linear1.bias,
                              linear2.weight, linear2.bias, q_norm, k_norm},
        sizes, table, SingleStream::Outputs{output_for(linear1, recompute), output_for(linear2, recompute)});
}

std::unique_ptr<Objective> head(const FluxParameters& declare, const FluxConfig& m, double norm_eps) {
    const FluxLinear linear = declare.output("linear", m.in_channels, m.hidden_size),
                     modulation =
                         declare.of_samples("adaLN_modulation.1", 2 * m.hidden_size, m.hidden_size, {});
    return std::make_unique<FluxHead>(
        FluxHead::Weights{modulation.weight, modulation.bias, linear.weight, linear.bias}, norm_eps,
        output_for(linear, Recompute::operations));
}

// Position 0 is that of text, which is not rotated; 1 + p that of patch p.
RopeTable rope_table(const FluxConfig& m, Dtype dtype) {
    return RopeTable(
        1 + m.patches(), m.head_dim(),
        [m](int64_t position, int64_t pair) {
            const int64_t patch = position - 1;
            return position == 0 ? 0
                                 : flux_angle(m, {0, patch / m.patch_columns, patch % m.patch_columns}, pair);
        },
        dtype);
}

}  // namespace

double flux_angle(const FluxConfig& config, const std::array<int64_t, 3>& place, int64_t pair) {
    size_t axis = 0;
    while (pair >= config.axes_dim[axis] / 2) pair -= config.axes_dim[axis++] / 2;
    return double(place[axis]) * std::pow(config.theta, -2 * double(pair) / double(config.axes_dim[axis]));
}

Flux::Flux(const FluxConfig& config, const StateTypes& types, const ModelPlace& place,
           const std::vector<ModelPart>& parts, const std::vector<Recompute>& recompute)
    : Model(types, place),
      width_(config.hidden_size),
      batches_(config.sizes(), types.compute),
      rope_(rope_table(config, types.accumulate())) {
    const auto blocks = size_t(config.depth + config.depth_single_blocks);
    require(recompute.empty() || recompute.size() == blocks, "each block says what it recomputes");
    parts_ = parts;
    const StreamSizes sizes = {
        .heads = config.num_heads, .head_dim = config.head_dim(), .qk_norm_eps = config.qk_norm_eps};
    add_block("input", Segment::Kind::block, [&](const std::string&) {
        return input_block({parameters_, ""}, config);
    });
    for (int64_t i = 0; i < int64_t(blocks); ++i) {
        const bool is_double = i < config.depth;
        const int64_t number = is_double ? i : i - config.depth;
        const Recompute what = recompute.empty() ? Recompute::nothing : recompute[size_t(i)];
        const auto make = [&](const std::string& name) {
            const FluxParameters declare(parameters_, name + ".");
            std::unique_ptr<Block> block =
                (is_double ? double_block : single_block)(declare, config, sizes, rope_, what);
            if (!is_double && number == 0) block = std::make_unique<FromStreamOrder>(std::move(block));
            if (what == Recompute::block) block = std::make_unique<RecomputeBlock>(std::move(block));
            return block;
        };
        add_block(fmt::format("{}_blocks.{}", is_double ? "double" : "single", number), Segment::Kind::layer,
                  make);
    }
    std::unique_ptr<Objective> objective;
    add_block("final_layer", Segment::Kind::objective, [&](const std::string& name) {
        objective = head({parameters_, name + "."}, config, sizes.norm_eps);
        return nullptr;
    });
    if (has(segments_.size() - 1)) segments_.back().objective = std::move(objective);
    find_first_trained();
}

bool Flux::has(size_t segment) const {
    return std::ranges::any_of(
        parts_, [&](const ModelPart& part) { return segment >= part.first && segment < part.last; });
}

void Flux::add_block(const std::string& name, Segment::Kind kind,
                     FunctionRef<std::unique_ptr<Block>(const std::string&)> make) {
    const bool here = has(segments_.size());
    parameters_.set_here(here);
    const size_t unit = here ? parameters_.begin_unit() : 0, declared = parameters_.model().size();
    std::unique_ptr<Block> block = make(name);
    const std::vector<const Storage*>& all = parameters_.model();
    segments_.push_back({.name = name,
                         .kind = kind,
                         .unit = unit,
                         .storages = {all.begin() + int64_t(declared), all.end()},
                         .block = here ? std::move(block) : nullptr});
}

Flow Flux::flow_into(size_t segment, const BatchShape& local) const {
    if (segment == 0) return {};
    const StateTypes& types = parameters_.types();
    return Flow({Tensor(nullptr, types.compute, {local.count(), width_}),
                 Tensor(nullptr, types.accumulate(), {local.sequences, width_})});
}

}  // namespace coeus
