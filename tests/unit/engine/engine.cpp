// SPDX-License-Identifier: Apache-2.0
// Steps of the engine: accumulation, a step with values that are not finite, validation in between.
#include "coeus/engine/engine.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t seq_len = 7;

EngineOptions options(Dtype dtype = Dtype::f64, int64_t sequences = 2, int64_t micro_batches = 1) {
    return {.types = {.master = dtype, .compute = dtype},
            .training = {.sequences = sequences, .seq_len = seq_len},
            .accumulation = micro_batches,
            .validation = {.sequences = 2, .seq_len = 9},
            .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}};
}

// An engine with initial weights, ready to run.
struct Ready {
    explicit Ready(const EngineOptions& with = options(), const DecoderConfig& config = tiny_config())
        : engine(config, with) {
        engine.allocate();
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
    }
    Engine engine;

    std::vector<double> state(const StorageTensor& kind = &Storage::master) const {
        std::vector<double> all;
        for (const Storage& storage : engine.model().parameters().storages())
            for (double x : values(kind(storage))) all.push_back(x);
        return all;
    }
};

bool step(Engine& engine, TestBatch& batch, int64_t number, int64_t at_a_time = 2, double rate = 1e-2) {
    engine.compute_gradients(number, rate, batch.valid_labels(),
                             [&](int64_t i) { return batch.local_batch(i * at_a_time, at_a_time); });
    return engine.update().taken;
}

}  // namespace

TEST_CASE("engine: a step of several micro-batches equals a step of one") {
    TestBatch batch(4, seq_len, tiny_config().vocab);
    batch.ignore_every(3).split_documents(4, false);
    Ready whole(options(Dtype::f64, 4)), parts(options(Dtype::f64, 2, 2)), single(options(Dtype::f64, 1, 4));
    for (int64_t number : {1, 2, 3}) {
        CHECK(step(whole.engine, batch, number, 4));
        CHECK(step(parts.engine, batch, number, 2));
        CHECK(step(single.engine, batch, number, 1));
        for (const Ready* other : {&parts, &single}) {
            CHECK(relatively_close(other->engine.scalars().loss, whole.engine.scalars().loss, 1e-13));
            CHECK(
                relatively_close(other->engine.scalars().grad_norm, whole.engine.scalars().grad_norm, 1e-12));
            CHECK(normalised_error(other->state(), whole.state()) < 1e-11);
        }
    }
}

TEST_CASE("engine: the loss is the mean over valid labels and falls") {
    TestBatch batch(2, seq_len, tiny_config().vocab);
    batch.ignore_every(2);
    Ready ready;
    step(ready.engine, batch, 1);
    const double first = ready.engine.scalars().loss;
    CHECK(close(first, std::log(37.0), 1.5));
    for (int64_t number = 2; number <= 30; ++number) CHECK(step(ready.engine, batch, number));
    CHECK(ready.engine.scalars().loss < first / 2);
    CHECK(ready.engine.scalars().step == 30);
    CHECK(ready.engine.scalars().learning_rate == 1e-2);
}

TEST_CASE("engine: clipping scales the gradient, not the reported norm") {
    TestBatch batch(2, seq_len, tiny_config().vocab);
    EngineOptions tight = options(), none = options();
    tight.max_norm = 1e-3;
    none.max_norm = 0;
    Ready a(tight), b(none);
    step(a.engine, batch, 1);
    step(b.engine, batch, 1);
    CHECK(a.engine.scalars().grad_norm == b.engine.scalars().grad_norm);
    CHECK(b.engine.scalars().clip == 1);
    CHECK(relatively_close(a.engine.scalars().clip, 1e-3 / (a.engine.scalars().grad_norm + 1e-6), 1e-14));
    const std::vector<double> clipped = a.state(exp_avg), plain = b.state(exp_avg);
    for (size_t i = 0; i < plain.size(); ++i)
        CHECK(close(clipped[i], plain[i] * a.engine.scalars().clip, 1e-18));
}

TEST_CASE("engine: a step with values that are not finite changes nothing") {
    for (Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        CAPTURE(name_of(dtype));
        EngineOptions with = options(dtype);
        if (dtype == Dtype::bf16) with.types.master = Dtype::f32;
        Ready ready(with);
        TestBatch batch(2, seq_len, tiny_config().vocab);
        CHECK(step(ready.engine, batch, 1));
        const Storage& last = ready.engine.model().parameters().storages().back();
        for (double poison :
             {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
            const double good = element(last.w, 3);
            set_element(last.w, 3, poison);
            const auto weights = ready.state(), mean = ready.state(exp_avg), square = ready.state(exp_avg_sq);
            CHECK_FALSE(step(ready.engine, batch, 2));
            CHECK(ready.engine.scalars().refusals == 1);
            set_element(last.w, 3, good);
            // the poisoned weight may itself be the master weight
            const auto after = ready.state();
            for (size_t i = 0; i < after.size(); ++i)
                CHECK((after[i] == weights[i] || !std::isfinite(weights[i])));
            CHECK(ready.state(exp_avg) == mean);
            CHECK(ready.state(exp_avg_sq) == square);
        }
        CHECK(step(ready.engine, batch, 2));
    }
}

TEST_CASE("engine: validation does not affect training") {
    TestBatch batch(2, seq_len, tiny_config().vocab), other(2, 9, tiny_config().vocab, 8);
    Ready with, without;
    for (int64_t number : {1, 2, 3}) {
        with.engine.compute_gradients(number, 1e-2, batch.valid_labels(),
                                      [&](int64_t) { return batch.local_batch(0, 2); });
        const double a = with.engine.evaluate(other.local_batch(0, 2));  // even in the middle of a step
        const double b =
            with.engine.evaluate(other.local_batch(0, 1)) + with.engine.evaluate(other.local_batch(1, 1));
        CHECK(relatively_close(a, b, 1e-13));
        CHECK(a > 0);
        CHECK(with.engine.update().taken);
        step(without.engine, batch, number);
        CHECK(with.engine.scalars().loss == without.engine.scalars().loss);
    }
    CHECK(with.state() == without.state());
}

TEST_CASE("engine: in a pipeline, recomputation reports one frame and the rank's own blocks") {
    const DecoderConfig model = tiny_config(6);
    EngineOptions with = options(Dtype::f64, 4);
    with.validation = {};
    with.mesh.pp = 2;
    with.pipeline = pipeline_of("GPipe", 2, 4, 1, model);
    with.recompute = {.mode = RecomputeOptions::Mode::blocks};
    for (const int rank : {0, 1}) {
        with.rank = rank;
        const Engine engine(model, with);
        const LayerMemory& plan = engine.layer_memory();
        CHECK(engine.recompute().frame == plan.executor.frame);
        CHECK(plan.activations == 4 * plan.executor.frame);  // all are alive
        CHECK_THAT(engine.recompute().text(engine.model().layers_here()),
                   Catch::Contains("3 of 3 blocks; activations per micro-batch " +
                                   bytes_text(double(plan.executor.frame)) + " instead of "));
    }
}

TEST_CASE("engine: the plan counts the exchange of a table that two stages share") {
    const auto plan_of = [](bool tied, Backend backend) {
        EngineOptions with = options(Dtype::f32);
        const DecoderConfig config = tiny_config(4, tied);
        with.mesh = {.pp = 2};
        with.pipeline = pipeline_of("1F1B", 2, 2, 1, config);
        with.machine.backend = backend;
        with.machine.nccl = backend == Backend::cuda;
        return Engine(config, with).plan();
    };
    for (const auto& [backend, place] :
         {std::pair(Backend::cpu, MemoryPlace::device), std::pair(Backend::cuda, MemoryPlace::host)}) {
        const char* name = backend == Backend::cpu ? term::reduction : "token ids and reductions";
        CHECK(plan_of(true, backend).bytes(name, place) ==
              plan_of(false, backend).bytes(name, place) + Communicator::reduction_bytes(2));
    }
    CHECK(plan_of(true, Backend::cuda).bytes(term::nccl) ==
          plan_of(false, Backend::cuda).bytes(term::nccl) + nccl_bytes(2) - nccl_bytes(1));
}

TEST_CASE("engine: a checkpoint copies weights and moments, wherever they are") {
    for (const bool offload : {false, true}) {
        CAPTURE(offload);
        EngineOptions with = options();
        with.types = {.master = Dtype::f32, .compute = Dtype::bf16, .offload = offload};
        with.machine.backend = Backend::cuda;
        with.copies_state = true;
        const MemoryPlan plan = Engine(tiny_config(), with).plan();
        const MemoryPlace place = offload ? MemoryPlace::host : MemoryPlace::device;
        CHECK(plan.bytes(term::moments, place) > 0);
        CHECK(plan.bytes(term::copies, MemoryPlace::host) ==
              plan.bytes(term::weights, place) + plan.bytes(term::moments, place));
        CHECK(plan.bytes(term::copies) == 0);
    }
}

TEST_CASE("engine: a step zeroes only the gradients that are not sums of products") {
    struct Zeroed : KernelObserver {
        int64_t bytes = 0;
        bool zeroes = false;
        void begin(const char* kernel, double, double) override { zeroes = std::string(kernel) == "zero"; }
        void operands(std::span<const Tensor> all) override {
            if (zeroes) bytes += all.front().bytes();
        }
        void end() override {}
    } zeroed;
    Ready ready(options(Dtype::f64, 2, 2));
    TestBatch batch(4, seq_len, tiny_config().vocab);
    const Observation observation = ready.engine.observe(zeroed);
    CHECK(step(ready.engine, batch, 1));
    const Parameters& parameters = ready.engine.model().parameters();
    int64_t others = 0, all = 0;
    for (const Storage& storage : parameters.storages()) {
        all += storage.g.bytes();
        if (storage.params().front().role == ParamRole::norm ||
            storage.params().front().role == ParamRole::embedding)
            others += padded_bytes(storage.g.bytes());
    }
    CHECK(zeroed.bytes == others);
    CHECK(4 * others < all);
}

TEST_CASE("engine: the same steps give the same bits") {
    TestBatch batch(2, seq_len, tiny_config().vocab);
    for (Dtype master : {Dtype::f32, Dtype::bf16}) {
        EngineOptions with = options(Dtype::bf16);
        with.types.master = master;
        with.seed = 11;
        Ready a(with), b(with);
        for (int64_t number : {1, 2, 3}) {
            CHECK(step(a.engine, batch, number));
            CHECK(step(b.engine, batch, number));
        }
        CHECK(a.state() == b.state());
        with.seed = 12;
        Ready c(with);
        for (int64_t number : {1, 2, 3}) CHECK(step(c.engine, batch, number));
        // the seed matters only for stochastic rounding
        CHECK((c.state() == a.state()) == (master == Dtype::f32));
    }
}

TEST_CASE("engine: the loads of experts are those of the last step, in all of its local batches") {
    DecoderConfig config = tiny_config();
    set_experts(config, 1);
    TestBatch batch(2, seq_len, config.vocab);
    Ready ready(options(Dtype::f64, 1, 2), config);
    for (int64_t number : {1, 2, 3}) {
        CHECK(step(ready.engine, batch, number, 1));
        const std::vector<int64_t> loads = ready.engine.counts();
        REQUIRE(int64_t(loads.size()) == config.moe_rows() * config.moe.experts);
        for (auto row = loads.begin(); row != loads.end(); row += config.moe.experts)
            CHECK(std::accumulate(row, row + config.moe.experts, int64_t(0)) ==
                  2 * seq_len * config.moe.top_k);
    }
}

TEST_CASE("engine: weights that were loaded have scales of their own, whatever was trained before") {
    const DecoderConfig config = config_of_16s();
    TestBatch batch(2, seq_len, config.vocab), other(2, 9, config.vocab);
    const auto load = [](Engine& engine) {
        engine.model().parameters().initialise(9, 1);
        for (const Storage& storage : engine.model().parameters().storages())
            for (int64_t i = 0; i < storage.master.count(); ++i)
                set_element(storage.master, i, 3 * element(storage.master, i));
        engine.renew_weights();
    };
    for (const Dtype compute : {Dtype::f32, Dtype::bf16}) {
        EngineOptions with = options(compute);
        with.types.master = Dtype::f32;
        with.types.precision.linear = Recipe::tensorwise;
        Ready used(with, config), fresh(with, config);
        CHECK(step(used.engine, batch, 1));
        load(used.engine);
        load(fresh.engine);
        const double loss = used.engine.evaluate(other.local_batch(0, 2));
        CHECK(loss == fresh.engine.evaluate(other.local_batch(0, 2)));
        // roundings to 8 bits are small
        with.types.precision = {};
        Ready plain(with, config);
        load(plain.engine);
        CHECK(relatively_close(loss, plain.engine.evaluate(other.local_batch(0, 2)), 0.05));
    }
}
