// SPDX-License-Identifier: Apache-2.0
// Frozen parameters: what their absence saves by the formula, what it changes in a step, and mistakes.
#include "coeus/state/frozen.hpp"

#include "coeus/base/error.hpp"
#include "coeus/engine/engine.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"
#include "unit/state/counted.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

using Patterns = std::vector<std::string>;

// A Llama of four layers whose storages end at multiples of the alignment, so that there are no gaps.
constexpr int64_t dim = 32, hidden = 48, vocab = 64, length = 16;
DecoderConfig llama(bool tied = false) {
    DecoderConfig config = tiny_config(4, tied);
    config.dim = dim;
    config.attention = GroupedAttentionConfig{.heads = 4, .kv_heads = 4, .head_dim = 8};
    config.feed_forward.hidden = hidden;
    config.vocab = vocab;
    return config;
}
constexpr int64_t of_attention = 4 * dim * dim, of_feed_forward = 3 * dim * hidden,
                  of_layer = of_attention + of_feed_forward + 2 * dim, table = vocab * dim;
const Patterns lower_half = {"tok_embeddings", R"(layers\.[01]\.)"};

EngineOptions freezing(const Patterns& frozen, Dtype dtype = Dtype::f32) {
    return {.types = {.master = dtype, .compute = dtype, .frozen = Frozen(frozen)},
            .training = {.sequences = 2, .seq_len = length},
            .max_norm = 0};
}

MemoryPlan plan_freezing(const Patterns& frozen, const MeshShape& mesh = {}) {
    EngineOptions with = freezing(frozen);
    with.mesh = mesh;
    return Engine(llama(), with).plan();
}

// A step of the same run with other parameters frozen: its loss and norm, and what it leaves by name.
struct FrozenStep {
    double loss, norm;
    std::map<std::string, std::vector<double>> before, gradients, after;

    FrozenStep(const Patterns& frozen, const DecoderConfig& config) {
        Engine engine(config, freezing(frozen, Dtype::f64));
        engine.allocate();
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
        before = all(engine, &Storage::master);
        TestBatch batch(2, length, config.vocab);
        engine.compute_gradients(1, 1e-2, batch.valid_labels(),
                                 [&](int64_t) { return batch.local_batch(0, 2); });
        CHECK(engine.update().taken);
        loss = engine.scalars().loss;
        norm = engine.scalars().grad_norm;
        gradients = all(engine, &Storage::gradient);
        after = all(engine, &Storage::master);
    }

private:
    static std::map<std::string, std::vector<double>> all(const Engine& engine, Tensor Storage::*what) {
        std::map<std::string, std::vector<double>> found;
        for (const Storage& storage : engine.model().parameters().storages())
            for (const Param& param : storage.params())
                if (storage.*what) found[param.name] = values(storage.rows_of(param, storage.*what));
        return found;
    }
};

std::string error_of_freezing(const Patterns& frozen) {
    try {
        Engine(llama(), freezing(frozen));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("frozen: a half-frozen Llama has gradients and moments of the other half only") {
    // every parameter in float32: 4 bytes for the weight; if trained, 4 for the gradient, 8 for the moments
    const int64_t all = 4 * of_layer + 2 * table + dim;
    const auto check = [&](const Patterns& frozen, int64_t trained) {
        CAPTURE(Frozen(frozen).text());
        const MemoryPlan plan = plan_freezing(frozen);
        CHECK(plan.bytes(term::weights) == 4 * all);
        CHECK(plan.bytes(term::gradients) == 4 * trained);
        CHECK(plan.bytes(term::moments) == 8 * trained);
    };
    check({}, all);
    check(lower_half, 2 * of_layer + table + dim);
    // a part of each unit, and a part of a stack
    check({R"(attention\.)", "norm"}, 4 * of_feed_forward + 2 * table);
    check({R"(attention\.w[qk])"}, all - 4 * of_attention / 2);
    // two ranks own half of each storage, and reduce the gradients of two neighbours at a time
    const MemoryPlan none = plan_freezing({}, {.dp_shard = 2}),
                     half = plan_freezing(lower_half, {.dp_shard = 2}),
                     parts = plan_freezing({R"(attention\.)"}, {.dp_shard = 2});
    CHECK(half.bytes(term::gathered_weights) == none.bytes(term::gathered_weights));
    CHECK(half.bytes(term::gradients) == 2 * (2 * of_layer + table + dim));
    CHECK(half.bytes(term::moments) == 4 * (2 * of_layer + table + dim));
    CHECK(none.bytes(term::unreduced_gradients) == 4 * 2 * of_layer);
    CHECK(half.bytes(term::unreduced_gradients) == 4 * 2 * of_layer);
    CHECK(parts.bytes(term::unreduced_gradients) == 4 * 2 * (of_layer - of_attention));
    CHECK(plan_freezing({R"(layers\.)"}, {.dp_shard = 2}).bytes(term::unreduced_gradients) ==
          4 * (table + dim));
}

TEST_CASE("frozen: a half-frozen run takes what is planned for it, and keeps activations of one half") {
    const MeshCase whole = {
        .mesh = {}, .model = llama(), .types = {Dtype::f32, Dtype::f32}, .sequences = 2, .seq_len = length};
    int64_t of_whole = 0;
    for (const Patterns& frozen : {Patterns{}, lower_half, Patterns{R"(attention\.w[qk])", "norm"}}) {
        CAPTURE(Frozen(frozen).text());
        const CountedHost host;
        MeshCase c = whole;
        c.types.frozen = Frozen(frozen);
        c.device = &host;
        MeshRun run(c, mesh_of_one());
        TestBatch batch = batch_of_step(c, 1);
        CHECK(run.step(1, batch));
        CHECK(use_differs_from_plan(c, run.engine).empty());
        const MemoryPlan& plan = run.engine.plan();
        CHECK(host.taken["weights"] == plan.bytes(term::weights));
        CHECK(host.taken["gradients"] == plan.bytes(term::gradients));
        CHECK(host.taken["optimizer moments"] == plan.bytes(term::moments));
        const int64_t activations = plan.bytes(term::activations);
        if (frozen.empty()) of_whole = activations;
        if (frozen == lower_half) CHECK(double(activations) < 0.6 * double(of_whole));
    }
}

TEST_CASE("frozen: a step changes nothing that is frozen, and all else as if nothing were") {
    for (const bool tied : {false, true}) {
        const FrozenStep all({}, llama(tied));
        for (const Patterns& frozen : {lower_half, Patterns{"norm", R"(w2\.)"}, Patterns{R"(layers\.3)"},
                                       Patterns{R"(layers\.)", "tok"}}) {
            CAPTURE(tied, Frozen(frozen).text());
            const FrozenStep some(frozen, llama(tied));
            const Frozen is_frozen(frozen);
            CHECK(some.loss == all.loss);
            double squares = 0;
            for (const auto& [name, before] : some.before) {
                INFO(name);
                CHECK(some.gradients.contains(name) != is_frozen.takes(name));
                CHECK(some.after.at(name) == (is_frozen.takes(name) ? before : all.after.at(name)));
                if (is_frozen.takes(name)) continue;
                CHECK(some.gradients.at(name) == all.gradients.at(name));
                for (const double g : some.gradients.at(name)) squares += g * g;
            }
            CHECK(relatively_close(some.norm, std::sqrt(squares), 1e-14));
        }
    }
}

TEST_CASE("frozen: a backward ends at the first segment that is trained") {
    const auto first_trained = [](const Patterns& frozen, const DecoderConfig& config) {
        return Decoder(config, {.frozen = Frozen(frozen)}, 1).first_trained();
    };
    CHECK(first_trained({}, llama()) == 0);
    CHECK(first_trained({"tok_embeddings"}, llama()) == 1);
    CHECK(first_trained({R"(layers\.0)"}, llama()) == 0);
    CHECK(first_trained(lower_half, llama()) == 3);
    CHECK(first_trained({"tok_embeddings", R"(layers\.0\.attention)"}, llama()) == 1);
    CHECK(first_trained({"tok_embeddings", R"(layers\.)"}, llama()) == 5);
    // a loss of the sequence's experts is computed in the backward of their layer
    DecoderConfig experts = llama();
    set_experts(experts, 1);
    CHECK(first_trained(lower_half, experts) == 3);
    experts.moe.sequence_balance = 0.1;
    CHECK(first_trained(lower_half, experts) == 0);
}

TEST_CASE("frozen: a table that two stages share is not summed, and not planned for that") {
    const auto plan = [](const Patterns& frozen, bool tied) {
        EngineOptions with = freezing(frozen);
        with.mesh = {.pp = 2};
        with.pipeline = pipeline_of("1F1B", 2, 2, 1, llama(tied));
        return Engine(llama(tied), with).plan();
    };
    CHECK(plan({}, true).bytes(term::reduction) ==
          plan({}, false).bytes(term::reduction) + Communicator::reduction_bytes(2));
    CHECK(plan({"tok_embeddings"}, true).bytes(term::reduction) == plan({}, false).bytes(term::reduction));
}

TEST_CASE("frozen: stages that train nothing get no gradients") {
    const auto messages_and_flows = [](const Patterns& frozen, int rank) {
        EngineOptions with = freezing(frozen);
        with.mesh = {.pp = 2};
        with.rank = rank;
        with.pipeline = pipeline_of("1F1B", 2, 2, 1, llama());
        const Engine engine(llama(), with);
        return std::pair(engine.executor().training().messages, engine.plan().bytes(term::flows));
    };
    const int64_t flow = 4 * length * dim;  // of a micro-batch of one sequence
    // each rank has places for what is received, and one more
    const std::pair both(4, 2 * flow), forward_only(2, int64_t(0));
    for (const int rank : {0, 1}) {
        CHECK(messages_and_flows({}, rank).first == both.first);
        CHECK(messages_and_flows({"tok_embeddings", R"(layers\.0\.)"}, rank) == messages_and_flows({}, rank));
        CHECK(messages_and_flows(lower_half, rank).first == forward_only.first);
    }
    CHECK(messages_and_flows({}, 0) == both);
    CHECK(messages_and_flows(lower_half, 0) == forward_only);
    CHECK(messages_and_flows(lower_half, 1).second < messages_and_flows({}, 1).second);
}

TEST_CASE("frozen: the optimizer counts what it updates, and biases that balance experts are not frozen") {
    const Engine half(llama(), freezing(lower_half));
    const Parameters& parameters = half.model().parameters();
    CHECK(half.optimizer().text(parameters) == "AdamW for 20 parameters");
    CHECK(Frozen::text(parameters) == "19 of 39 parameters, 19,584 of 39,200 elements");
    CHECK(Frozen::text(Engine(llama(), freezing({})).model().parameters()).empty());
    DecoderConfig config = llama();
    set_experts(config, 2);
    config.moe.balance_rate = 0.1;
    const Engine experts(config, freezing({R"(layers\.)"}));
    int64_t biases = 0;
    for (const Storage& storage : experts.model().parameters().storages())
        if (storage.is_exact()) {
            ++biases;
            CHECK_FALSE(storage.is_frozen());
        }
    CHECK(biases > 0);
}

TEST_CASE("frozen: mistakes name the pattern") {
    CHECK(error_of_freezing(lower_half).empty());
    CHECK_THAT(error_of_freezing({"tok_embeddings", "layer.9"}),
               Contains("model.frozen: \"layer.9\" matches no parameter; `coeus info DECK --model` lists"));
    CHECK_THAT(error_of_freezing({"weight"}), Contains("model.frozen matches every parameter"));
    CHECK_THAT(error_of_freezing({"("}), Contains("model.frozen: \"(\": is not a regular expression"));
    DecoderConfig biased = llama();
    biased.grouped().bias = AttentionBias::qkv;
    CHECK_THROWS_WITH(Engine(biased, freezing({R"(attention\.wq)"})),
                      Contains("model.frozen: layers.0.attention.wq.bias and layers.0.attention.wk.bias are "
                               "stored together, so that both must be frozen or neither"));
    CHECK_NOTHROW(Engine(biased, freezing({R"(attention\.wq\.weight)"})));
}
