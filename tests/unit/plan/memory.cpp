// SPDX-License-Identifier: Apache-2.0
// The plan against the memory that runs use: arenas of exactly the planned sizes suffice for a training step
// and a validation, their peaks equal the plan, and the process grows by the planned size.
#include "coeus/plan/memory.hpp"

#include "coeus/base/text.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/optim/grad_norm.hpp"
#include "coeus/optim/param_groups.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::test;

namespace {

void train_once(TestModel& model, TestBatch& batch) {
    const ParamGroups adam({});
    model.scalars = adam.begin_step(1, 1e-3, batch.valid_labels());
    model.zero_gradients();
    model.forward_backward(batch);
    measure_norm(model.exec, cpu_kernels(), model.parameters(), model.scalars, 1);
    adam.update(model.exec, cpu_kernels(), model.parameters(), model.scalars);
}

int64_t bytes_of(const TestModel& model) {
    return model.decoder.parameters().bytes(true).total() + model.layers.activations +
           model.layers.temporaries + model.layers.workspace + model.decoder.tables().bytes();
}

}  // namespace

TEST_CASE("a training step and a validation use exactly the planned memory") {
    for (const StateTypes& types :
         {StateTypes{Dtype::f64, Dtype::f64}, StateTypes{Dtype::f32, Dtype::f32},
          StateTypes{Dtype::f32, Dtype::bf16}, StateTypes{Dtype::bf16, Dtype::bf16}})
        for (const bool tied : {false, true})
            for (const NormType norm : {NormType::rms_norm, NormType::layer_norm, NormType::np_layer_norm})
                for (const BatchShape& shape : {BatchShape{1, 1}, BatchShape{3, 7}, BatchShape{2, 131}})
                    for (const int threads : {1, 2}) {
                        if (threads == 2 && (shape.seq_len != 131 || tied || norm != NormType::rms_norm))
                            continue;
                        CAPTURE(name_of(types.master), name_of(types.compute), tied, int(norm), shape.seq_len,
                                threads);
                        DecoderConfig config = tiny_config();
                        config.tied = tied;
                        config.norm_type = norm;
                        config.mtp.layers = int64_t(norm);
                        config.z_loss_weight = tied ? 0.05 : 0;
                        TestModel model(config, types, shape, threads);
                        TestBatch batch(shape.sequences, shape.seq_len, config.vocab);
                        if (shape.seq_len > 1) batch.split_documents(3, true);
                        train_once(model, batch);
                        CHECK(std::isfinite(model.scalars.loss));
                        CHECK(model.frame.peak_bytes() == model.layers.activations);
                        CHECK(model.frame.peak_entries() == model.layers.executor.frame_entries);
                        CHECK(model.temp.peak() == model.layers.temporaries);
                        CHECK(model.exec.workspace.peak() == model.layers.workspace);
                        model.evaluate(batch);  // throws if it needs more
                        model.logits(batch);
                    }
}

TEST_CASE("a plan for several chunks of logits is right") {
    DecoderConfig config = tiny_config();
    config.vocab = 6601;
    for (const StateTypes& types :
         {StateTypes{Dtype::f32, Dtype::f32}, StateTypes{Dtype::f32, Dtype::bf16}}) {
        TestModel model(config, types, {3, 257});
        TestBatch batch(3, 257, config.vocab);
        train_once(model, batch);
        CHECK(model.temp.peak() == model.layers.temporaries);
        CHECK(model.exec.workspace.peak() == model.layers.workspace);
        model.evaluate(batch);
    }
}

TEST_CASE("the plan is the larger of training and validation") {
    const Decoder decoder(tiny_config(), {}, 64);
    const BatchShape small = {1, 8}, large = {4, 64}, none = {};
    const LayerMemory training = measure_training(decoder, large, none, {1}),
                      both = measure_training(decoder, large, small, {1}),
                      validation = measure_training(decoder, small, large, {1}),
                      least = measure_training(decoder, small, none, {1});
    CHECK(both.activations == training.activations);
    CHECK(both.workspace == training.workspace);
    CHECK(validation.activations > least.activations);
    CHECK(validation.activations < training.activations);  // evaluation holds one block at a time
    CHECK(validation.temporaries > least.temporaries);
}

TEST_CASE("ranks that divide each sequence keep only their part of its activations") {
    const Decoder decoder(tiny_config(), {Dtype::f64, Dtype::f64}, 64);
    const BatchShape shape = {2, 64};
    const LayerMemory whole = measure_training(decoder, shape, shape, {1});
    for (const auto exchange : {ContextExchange::all_gather, ContextExchange::ring}) {
        const LayerMemory part = measure_training(decoder, shape, shape, {1}, Mesh::planned({.cp = 4}, 2),
                                                  {.context = {.exchange = exchange}});
        CHECK(4 * part.activations == whole.activations);
        CHECK(part.executor.frame_entries == whole.executor.frame_entries);
    }
}

TEST_CASE("state and tables of a plan") {
    const DecoderConfig& config = find_flavor(find_family("llama3"), "debugmodel");
    const Engine engine(config, {.types = {Dtype::f32, Dtype::bf16}, .training = {1, 100}});
    const MemoryPlan& plan = engine.plan();
    const LayerMemory& layers = engine.layer_memory();
    const int64_t n = config.parameters();
    CHECK(plan.bytes(term::weights) == 4 * n);
    CHECK(plan.bytes(term::compute_weights) == 2 * n);
    CHECK(plan.bytes(term::gradients) == 4 * n);
    CHECK(plan.bytes(term::moments) == 8 * n);
    CHECK(plan.bytes(term::position_tables) == 100 * 16 * 4);
    const TokenBatches ids;
    CHECK(plan.bytes(ids.name()) == ids.bytes({{1, 100}}, {}).host);
    CHECK(plan.total() == 18 * n + 100 * 16 * 4 + layers.activations + layers.temporaries + layers.workspace +
                              plan.bytes(ids.name()) + library_bytes(Dtype::bf16, 1));
    CHECK(plan.total(MemoryPlace::host) == 0);
    // tokens, labels, document starts: two steps of 3 micro-batches and a validation batch; tokens, labels
    // and positions of this rank's part of a micro-batch
    CHECK(ids.bytes({{2, 5}, 3}, {1, 7}).host == 4 * (3 * (2 * 3 * 10 + 7) + 2 * (3 * 10 + 7) + (10 + 7)));
    CHECK(TokenBatches(2).bytes({{2, 5}, 3}, {1, 7}).host ==
          ids.bytes({{2, 5}, 3}, {1, 7}).host + 4 * 2 * 2 * 3 * 10);
    CHECK(ids.bytes({{2, 8}}, {1, 8}, 4).host == 4 * (3 * (2 * 16 + 8) + 3 * (4 + 2)));
    const BatchBytes of_gpu = ids.bytes({{2, 8}, 3}, {1, 8}, 4, Backend::cuda);
    CHECK(of_gpu.host == 4 * (3 * (2 * 3 * 16 + 8) + 2 * (3 * 4 + 2) + 3 * 16 + 8));
    CHECK(of_gpu.device == 4 * (3 * (4 + 2) + 16 + 8));
    const BatchBytes further = TokenBatches(2).bytes({{2, 8}, 3}, {1, 8}, 4, Backend::cuda);
    CHECK(further.host == of_gpu.host + 4 * 2 * 2 * 3 * 4);
    CHECK(further.device == of_gpu.device + 4 * 2 * 2 * 4);
}

TEST_CASE("generation plans no gradients, and uses exactly the planned memory") {
    for (const StateTypes& types :
         {StateTypes{Dtype::f64, Dtype::f64}, StateTypes{Dtype::f32, Dtype::bf16}}) {
        Decoder decoder(tiny_config(), types, 19);
        KvCache cache(tiny_config().layers, 3, 19, 12, 12, types.compute);
        const LayerMemory layers = measure_generation(decoder, decoder.config().vocab, cache, {2});
        const MemoryPlan plan = plan_generation(decoder, cache, cache.sequences(), layers);
        CHECK(plan.bytes(term::gradients) == 0);
        CHECK(plan.bytes(term::moments) == 0);
        CHECK(plan.bytes(term::cache) ==
              2 * 2 * 3 * 19 * 12 * size_of(types.compute));  // keys, values of two layers
        CHECK(layers.activations < measure_training(decoder, {1, 19}, {}, {2}).activations);
        CHECK(plan.total() == decoder.parameters().bytes(false).total() + layers.activations +
                                  layers.temporaries + layers.workspace + 4 * (2 * 19 + 3) +
                                  decoder.tables().bytes() + plan.bytes(term::cache));
        decoder.allocate(false);
        decoder.parameters().initialise(1, 1);
        cache.allocate();
        Exec exec;
        exec.threads = 2;
        exec.workspace = Arena(layers.workspace, "workspace");
        decoder.parameters().refresh_compute(exec, cpu_kernels());
        Frame frame(layers.activations, layers.executor.frame_entries);
        Arena temp(layers.temporaries, "temporaries");
        StepScalars scalars;
        const auto run = [&](TestBatch& batch, const KvExchange& exchange) {
            const Batch view = batch.view();
            Ctx c{exec, cpu_kernels(), frame, temp, view, scalars, exchange};
            const OwnedTensor logits(types.accumulate(), {view.sequences, 37});
            Stage(decoder).last_logits(c, logits);
            CHECK(std::isfinite(element(logits, view.sequences * 37 - 1)));
        };
        TestBatch prompt(1, 19, 37), next(3, 1, 37);
        next.positions = {18, 0, 4};
        std::vector<int32_t> slots = {2, 0, 1};
        run(prompt, PromptExchange(cache, 2, 19));
        run(next, CachedExchange(cache, Tensor(slots.data(), Dtype::i32, {3})));
        CHECK(frame.peak_bytes() == layers.activations);
        CHECK(temp.peak() == layers.temporaries);
        CHECK(exec.workspace.peak() == layers.workspace);
    }
}

TEST_CASE("the process grows by the planned memory") {
    DecoderConfig config = find_flavor(find_family("llama3"), "debugmodel");
    config.layers = 2;
    const BatchShape shape = {1, 128};
    TestBatch batch(shape.sequences, shape.seq_len, config.vocab);
    {
        TestModel first(config, {}, shape);  // the memory that libraries and threads take once
        train_once(first, batch);
    }
    // what the libraries take for each model depends on their versions and on the processor
    const auto libraries = [&] {
        const int64_t before = resident_bytes();
        DecoderConfig small = config;
        small.vocab = 64;
        TestModel model(small, {}, shape);
        TestBatch of_small(shape.sequences, shape.seq_len, small.vocab);
        train_once(model, of_small);
        return resident_bytes() - before - bytes_of(model);
    }();
    const int64_t before = resident_bytes();
    TestModel model(config, {}, shape);
    train_once(model, batch);
    const double grown = double(resident_bytes() - before), planned = double(bytes_of(model));
    INFO(bytes_text(grown) << " grown, " << bytes_text(planned) << " planned, "
                           << bytes_text(double(libraries)) << " taken by libraries for a small model");
    CHECK(grown >= 0.97 * planned);
    CHECK(grown <= 1.03 * planned + double(std::max(library_allowance, libraries)));
    // a leak is in both
    int64_t least_growth = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < 2; ++i) {
        const int64_t after = resident_bytes();
        train_once(model, batch);
        least_growth = std::min(least_growth, resident_bytes() - after);
    }
    CHECK(least_growth <= growth_allowance);
}

TEST_CASE("terms of a plan add up by name and place") {
    MemoryPlan plan;
    plan.add("b", 2);
    plan.add("a", 2);
    plan.add("none", 0);
    plan.add("a", 5, MemoryPlace::host);
    CHECK(plan.bytes("a") == 2);
    CHECK(plan.bytes("a", MemoryPlace::host) == 5);
    CHECK(plan.bytes("c") == 0);
    CHECK(plan.total() == 4);
    CHECK(plan.total(MemoryPlace::host) == 5);
    CHECK(plan.largest_first().size() == 2);
    CHECK(plan.largest_first()[0].name == "b");  // as large as "a", and added before it
    plan.add("a", 3);
    CHECK(plan.bytes("a") == 5);
    CHECK(plan.largest_first().size() == 2);
    CHECK(plan.largest_first()[0].name == "a");
    CHECK_THROWS_AS(plan.add("a", -1), LogicError);
}

TEST_CASE("a plan is printed with the largest terms first") {
    MemoryPlan plan;
    plan.add(term::weights, int64_t(1) << 30);
    plan.add(term::moments, int64_t(2) << 30);
    plan.add(term::activations, int64_t(3) << 30);
    plan.add(term::temporaries, 512);
    CHECK(plan.text(int64_t(8) << 30) ==
          "memory plan per rank:\n"
          "  activations                     3.00 GiB\n"
          "  optimizer moments               2.00 GiB\n"
          "  weights                         1.00 GiB\n"
          "  temporaries                        512 B\n"
          "  total                           6.00 GiB of 8.00 GiB");
    plan.add(term::moments, int64_t(4) << 30, MemoryPlace::host);
    plan.add(term::activations, int64_t(1) << 30, MemoryPlace::host);
    plan.add(term::offloading, 1024);
    CHECK_THAT(plan.text(int64_t(8) << 30),
               Catch::EndsWith("  offloading buffers              1.00 KiB\n"
                               "  temporaries                        512 B\n"
                               "  total                           6.00 GiB of 8.00 GiB\n"
                               "  on the host                     5.00 GiB\n"
                               "    optimizer moments             4.00 GiB\n"
                               "    activations                   1.00 GiB"));
}

TEST_CASE("a run that does not fit is refused with its largest terms and a remedy") {
    MemoryPlan plan;
    plan.add(term::weights, int64_t(1) << 30);
    plan.add(term::moments, int64_t(2) << 30);
    plan.add(term::gradients, int64_t(1) << 29);
    plan.add(term::activations, int64_t(3) << 30);
    const auto never = []() -> std::string { throw LogicError("asked for a remedy without need"); };
    const auto remedy = [] { return "Take a larger machine"; };
    CHECK_NOTHROW(require_fits(plan, plan.total(), never));
    CHECK_THROWS_AS(require_fits(plan, plan.total() - 1, remedy), ConfigError);
    CHECK_THROWS_WITH(require_fits(plan, int64_t(4) << 30, remedy),
                      "the run needs 6.50 GiB per rank, but only 4.00 GiB is available; the largest terms: "
                      "activations 3.00 GiB, optimizer moments 2.00 GiB, weights 1.00 GiB. Take a larger "
                      "machine");
    plan.add(term::moments, int64_t(4) << 30, MemoryPlace::host);
    CHECK_NOTHROW(require_fits_on_host(plan, int64_t(4) << 30));
    CHECK_THROWS_WITH(
        require_fits_on_host(plan, int64_t(1) << 30),
        "the run needs 4.00 GiB of host memory per rank besides its GPU's, but this host allows "
        "1.00 GiB; the largest terms: optimizer moments 4.00 GiB. If more ranks shard the "
        "parameters (parallelism.data_parallel_shard_degree), each needs less; without "
        "training.enable_cpu_offload the GPU holds the state");
}

TEST_CASE("a 405B model is planned without allocating its memory") {
    const int64_t before = resident_bytes();
    const Engine engine(
        find_flavor(find_family("llama3"), "405B"),
        {.types = {Dtype::f32, Dtype::bf16}, .training = {1, 8192}, .machine = {.threads = 8}});
    const MemoryPlan& plan = engine.plan();
    CHECK(plan.total() > int64_t(18) * 405853388800);
    CHECK(resident_bytes() - before < (int64_t(64) << 20));
    CHECK_THAT(plan.text(1), Catch::Contains("optimizer moments"));
}

TEST_CASE("memory plan: each communicator has its own NCCL buffers") {
    CHECK(nccl_bytes(0) == 0);
    constexpr int64_t mib = int64_t(1) << 20;
    CHECK(nccl_bytes(1) == (150 + 400) * mib);
    CHECK(nccl_bytes(3) == (150 + 3 * 400) * mib);
    CHECK(nccl_bytes(3, true) == (150 + 3 * 656) * mib);
    CHECK(nccl_bytes(0, true) == 0);
}
