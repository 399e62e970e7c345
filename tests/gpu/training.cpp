// SPDX-License-Identifier: Apache-2.0
// Steps of an engine on a GPU give the CPU's results, in whatever order the streams run, and allocate
// nothing.
#include "coeus/engine/engine.hpp"
#include "coeus/state/state_snapshot.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t seq_len = 7;

/// What a run of these tests chooses.
struct Choice {
    Dtype compute = Dtype::f32;
    bool documents = false, graphs = false;
    std::string optimizer = "AdamW";
    Recipe recipe = Recipe::none;  ///< of linear layers, and of experts if it can
    int64_t accumulation = 2;
    bool gradients_in_bf16 = false;
    std::string implementation = "fused";  ///< of the optimizer
};

EngineOptions options(Backend backend, const Choice& choice) {
    return {.types = {.master = Dtype::f32,
                      .compute = choice.compute,
                      .gradients_in_bf16 = choice.gradients_in_bf16},
            .training = {.sequences = 2, .seq_len = seq_len},
            .accumulation = choice.accumulation,
            .validation = {.sequences = 1, .seq_len = 9},
            .optimizer = {.name = choice.optimizer,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .implementation = choice.implementation},
            .machine = {.backend = backend},
            .streams = Stream::Mode::threaded,
            .graphs = choice.graphs};
}

/// Sizes that 8-bit products of GPUs can have, and experts.
void set_recipe(DecoderConfig& config, EngineOptions& with, Recipe recipe) {
    config.dim = config.feed_forward.hidden = config.vocab = 64;
    set_experts(config, 1);
    config.moe.hidden = 64;
    with.training.seq_len = with.validation.seq_len = 16;
    Precision& precision = with.types.precision;
    precision.linear = recipe;
    precision.gather_in_8_bits = recipe == Recipe::tensorwise && with.types.compute == Dtype::bf16;
    if (recipe != Recipe::rowwise && !has_blocks(recipe)) return;
    precision.experts = recipe;
    precision.expert_fqns = {"experts"};
}

struct Result {
    std::vector<double> losses, norms, weights;
    double validation = 0;
    size_t allocations = 0;  // in steps after the first
    int64_t graph_nodes = 0;
};

Result train(const Device& device, const Choice& choice) {
    DecoderConfig config = tiny_config();
    EngineOptions with = options(device.backend(), choice);
    if (choice.recipe != Recipe::none) set_recipe(config, with, choice.recipe);
    Engine engine(config, with);
    engine.allocate(mesh_of_one(), device);
    Parameters& parameters = engine.model().parameters();
    parameters.initialise(engine.exec(), engine.kernels(), 5);
    engine.renew_weights();
    TestBatch batch(2 * choice.accumulation, with.training.seq_len, config.vocab),
        other(1, with.validation.seq_len, config.vocab, 3);
    batch.ignore_every(3);
    if (choice.documents) batch.split_documents(3, false);
    Result result;
    size_t before = 0;
    for (int64_t step = 1; step <= 4; ++step) {
        if (step == 2) before = gpu_allocations();
        batch.tokens[size_t(step)] = int32_t(step);  // each row is different
        engine.compute_gradients(step, 1e-2, batch.valid_labels(),
                                 [&](int64_t i) { return batch.local_batch(2 * i, 2); });
        CHECK(engine.update().taken);
        result.losses.push_back(engine.scalars().loss);
        result.norms.push_back(engine.scalars().grad_norm);
        result.validation = engine.evaluate(other.local_batch(0, 1));
    }
    result.allocations = gpu_allocations() - before;
    result.graph_nodes = engine.graph_nodes();
    for (const Storage& storage : parameters.storages()) {
        OwnedTensor host(storage.master.dtype, storage.master.shape);
        device.copy(host.view.data, storage.master.data, host.view.bytes());
        for (double x : values(host)) result.weights.push_back(x);
    }
    return result;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    return normalised_error(a, b);
}

}  // namespace

TEST_CASE("training on a GPU gives the CPU's results") {
    for (const bool documents : {false, true})
        for (const Dtype compute : {Dtype::f32, Dtype::bf16}) {
            const char* optimizer = documents ? "Muon" : "AdamW";
            INFO(name_of(compute) << (documents ? ", documents, " : ", ") << optimizer);
            const Choice choice = {.compute = compute, .documents = documents, .optimizer = optimizer};
            const Result cpu = train(host_device(), choice), there = train(the_gpu(), choice);
            const double bound = compute == Dtype::f32 ? 1e-5 : 2e-2;
            CHECK(difference(there.losses, cpu.losses) < bound);
            CHECK(difference(there.norms, cpu.norms) < bound);
            CHECK(difference(there.weights, cpu.weights) < (compute == Dtype::f32 ? 1e-4 : 5e-2));
            CHECK(relatively_close(there.validation, cpu.validation, bound));
            CHECK(there.allocations == 0);
        }
}

TEST_CASE("training on a GPU with gradients in bfloat16 gives the CPU's results") {
    for (const char* implementation : {"fused", "fused_opt_states_bf16"}) {
        INFO(implementation);
        const Choice choice = {
            .compute = Dtype::bf16, .gradients_in_bf16 = true, .implementation = implementation};
        const Result cpu = train(host_device(), choice), there = train(the_gpu(), choice);
        CHECK(difference(there.losses, cpu.losses) < 2e-2);
        CHECK(difference(there.norms, cpu.norms) < 2e-2);
        CHECK(difference(there.weights, cpu.weights) < 5e-2);
        CHECK(there.allocations == 0);
    }
}

TEST_CASE("the gradients of a local batch on a GPU are those in float32, rounded once to bfloat16") {
    DecoderConfig config = tiny_config();
    config.dim = config.feed_forward.hidden = config.vocab = 64;
    set_experts(config, 1);
    config.moe.hidden = 64;
    TestBatch batch(2, seq_len, config.vocab);
    std::vector<std::vector<double>> exact, rounded;
    for (const bool in_bf16 : {false, true}) {
        Engine engine(config,
                      options(Backend::cuda,
                              {.compute = Dtype::bf16, .accumulation = 1, .gradients_in_bf16 = in_bf16}));
        engine.allocate(mesh_of_one(), the_gpu());
        engine.model().parameters().initialise(engine.exec(), engine.kernels(), 5);
        engine.renew_weights();
        engine.compute_gradients(1, 1e-2, batch.valid_labels(),
                                 [&](int64_t) { return batch.local_batch(0, 2); });
        for (const Storage& storage : engine.model().parameters().storages()) {
            CHECK((storage.g.dtype == Dtype::bf16) ==
                  (in_bf16 && storage.sums_products() && !storage.is_partial()));
            OwnedTensor host(storage.g.dtype, storage.g.shape);
            the_gpu().copy(host.view.data, storage.g.data, host.view.bytes());
            (in_bf16 ? rounded : exact).push_back(values(host));
        }
    }
    size_t differ = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
        // a library may sum in another order if the result has another type
        double largest = 0;
        for (const double x : exact[i]) largest = std::max(largest, std::abs(x));
        for (size_t j = 0; j < exact[i].size(); ++j) {
            const double error = std::abs(rounded[i][j] - exact[i][j]);
            differ += error > 0;
            CHECK(error <= 0x1p-8 * std::abs(exact[i][j]) + 1e-5 * largest);
        }
    }
    CHECK(differ > 1000);
}

TEST_CASE("a GPU's chunks of logits are planned as large as they are used") {
    // 514 tokens: three chunks on the CPU, one on a GPU
    DecoderConfig config = tiny_config();
    config.vocab = 9001;
    constexpr int64_t tokens = 257;
    std::vector<int64_t> temporaries;
    for (const Device* device : {&host_device(), &the_gpu()}) {
        EngineOptions with = options(device->backend(), {});
        with.training = {.sequences = 2, .seq_len = tokens};
        with.accumulation = 1;
        with.validation = {};
        Engine engine(config, with);
        engine.allocate(mesh_of_one(), *device);
        engine.model().parameters().initialise(engine.exec(), engine.kernels(), 5);
        engine.renew_weights();
        TestBatch batch(2, tokens, config.vocab);
        engine.compute_gradients(1, 1e-2, batch.valid_labels(),
                                 [&](int64_t) { return batch.local_batch(0, 2); });
        CHECK(engine.update().taken);
        CHECK(engine.used().temporaries == engine.layer_memory().temporaries);
        temporaries.push_back(engine.layer_memory().temporaries);
    }
    CHECK(temporaries[1] - temporaries[0] > int64_t(200) * config.vocab * size_of(Dtype::f32));
}

TEST_CASE("training on a GPU gives the same bits whatever the order of the streams") {
    set_order(1);
    const Result first = train(the_gpu(), {.compute = Dtype::bf16});
    for (uint64_t seed = 2; seed <= 4; ++seed) {
        set_order(seed);
        const Result again = train(the_gpu(), {.compute = Dtype::bf16});
        CHECK(again.losses == first.losses);
        CHECK(again.weights == first.weights);
    }
}

TEST_CASE("training on a GPU with graphs gives the same bits as kernel by kernel") {
    std::vector<Choice> choices = {{.documents = true},
                                   {.compute = Dtype::bf16, .documents = true, .optimizer = "Muon"}};
    for (const Recipe recipe :
         {Recipe::tensorwise, Recipe::rowwise, Recipe::rowwise_with_gw_hp, Recipe::mx_rceil})
        choices.push_back({.compute = Dtype::bf16, .recipe = recipe});
    choices.push_back({.documents = true, .accumulation = 1});
    choices.push_back({.compute = Dtype::bf16, .accumulation = 3, .gradients_in_bf16 = true});
    choices.push_back({.compute = Dtype::bf16, .documents = true, .accumulation = 5});
    for (Choice choice : choices) {
        INFO(name_of(choice.compute) << ", " << choice.optimizer << ", " << name_of(choice.recipe));
        set_order(5);
        const Result one_by_one = train(the_gpu(), choice);
        choice.graphs = true;
        const bool is_usual = choice.recipe == Recipe::none && choice.accumulation == 2;
        for (uint64_t seed = 6; seed <= (is_usual ? 8 : 6); ++seed) {
            set_order(seed);
            const Result by_graphs = train(the_gpu(), choice);
            CHECK(by_graphs.losses == one_by_one.losses);
            CHECK(by_graphs.norms == one_by_one.norms);
            CHECK(by_graphs.weights == one_by_one.weights);
            CHECK(by_graphs.validation == one_by_one.validation);
            CHECK(by_graphs.allocations == 0);
        }
    }
}

TEST_CASE("graphs do not grow with the number of local batches") {
    const auto nodes_of = [](int64_t accumulation) {
        return train(the_gpu(), {.graphs = true, .accumulation = accumulation}).graph_nodes;
    };
    const int64_t one = nodes_of(1), two = nodes_of(2), three = nodes_of(3);
    CHECK(one > 0);
    CHECK(nodes_of(8) == three);
    CHECK(three - two == two - one);  // the micro-batch between
    CHECK(two - one < one);
}

TEST_CASE(
    "a GPU refuses a step beyond its limits and restores a snapshot, with graphs too, and waits for "
    "neither") {
    for (const bool graphs : {false, true}) {
        EngineOptions with = options(Backend::cuda, {.compute = Dtype::bf16, .graphs = graphs});
        with.limits = with.snapshot = true;
        Engine engine(tiny_config(), with);
        CHECK(engine.plan().bytes(term::snapshot) == 0);
        CHECK(engine.plan().bytes(term::snapshot, MemoryPlace::host) > 0);
        engine.allocate(mesh_of_one(), the_gpu());
        const Parameters& parameters = engine.model().parameters();
        engine.model().parameters().initialise(engine.exec(), engine.kernels(), 5);
        engine.renew_weights();
        TestBatch batch(4, seq_len, tiny_config().vocab);
        const auto step = [&](int64_t number, const StepLimits& limits = {}) {
            engine.compute_gradients(
                number, 1e-2, batch.valid_labels(), [&](int64_t i) { return batch.local_batch(2 * i, 2); },
                limits);
            return engine.update().taken;
        };
        const auto weights = [&] {
            std::vector<double> all;
            for (const Storage& storage : parameters.storages())
                for (const Tensor& from : {storage.master, exp_avg_sq(storage), storage.w}) {
                    OwnedTensor host(from.dtype, from.shape);
                    the_gpu().copy(host.view.data, from.data, host.view.bytes());
                    for (double x : values(host)) all.push_back(x);
                }
            return all;
        };
        StateSnapshot snapshot(parameters, engine.exec());
        for (int64_t number = 1; number <= 3; ++number) CHECK(step(number));
        const auto before = weights();
        const size_t waits = gpu_waits(), allocations = gpu_allocations();
        CHECK(step(4, {.loss = 1e9, .norm = 1e9}));
        const size_t of_a_step = gpu_waits() - waits;
        const double loss = engine.scalars().loss, norm = engine.scalars().grad_norm;
        snapshot.take();
        CHECK_FALSE(step(5, {.loss = loss / 2}));
        CHECK(engine.scalars().refusals == 1);
        CHECK_FALSE(step(5, {.norm = norm / 1e3}));
        std::vector<double> losses;
        for (int time = 0; time < 2; ++time) {
            for (int64_t number = 5; number <= 6; ++number) {
                CHECK(step(number, {.loss = 1e9}));
                losses.push_back(engine.scalars().loss);
            }
            snapshot.restore();
            engine.renew_weights();
        }
        CHECK(gpu_waits() - waits == 7 * of_a_step);
        CHECK(gpu_allocations() == allocations);
        CHECK(losses[0] == losses[2]);
        CHECK(losses[1] == losses[3]);
        const auto at_snapshot = weights();
        CHECK(at_snapshot != before);
        CHECK_FALSE(step(5, {.loss = 0}));
        CHECK(weights() == at_snapshot);
        engine.forget_graphs();
    }
}
