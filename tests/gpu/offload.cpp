// SPDX-License-Identifier: Apache-2.0
// Offloading to pinned host memory: the same bits whatever the order of the copies, less GPU memory, and no
// allocation in a step.
#include "coeus/layers/block_inputs.hpp"
#include "coeus/layers/context.hpp"
#include "gpu/gpu.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::test;

namespace {

using Mode = RecomputeOptions::Mode;

MeshCase tiny_case(Dtype master, Dtype compute, const RecomputeOptions& recompute = {.mode = Mode::blocks}) {
    MeshCase c = {.model = tiny_config(3), .types = {master, compute}};
    c.sequences = c.local_batches = 2;
    c.validated = 1;
    c.seq_len = 7;
    c.recompute = recompute;
    c.device = &the_gpu();
    return c;
}

// The elements of one kind of tensor of all parameters, read on the host.
std::vector<double> all_of(const Parameters& parameters, const StorageTensor& kind) {
    std::vector<double> all;
    for (const Storage& storage : parameters.storages()) {
        const Tensor from = kind(storage);
        OwnedTensor host(from.dtype, from.shape);
        parameters.device().copy(host.view.data, from.data, host.view.bytes());
        for (double x : values(host)) all.push_back(x);
    }
    return all;
}

}  // namespace

TEST_CASE("offloading changes no bit, whatever the order of the copies") {
    const std::pair<Dtype, Dtype> types[] = {
        {Dtype::f32, Dtype::f32}, {Dtype::f32, Dtype::bf16}, {Dtype::bf16, Dtype::bf16}};
    const RecomputeOptions recompute[] = {
        {.mode = Mode::blocks}, {.mode = Mode::blocks, .every = 2}, {.mode = Mode::nothing}};
    for (uint64_t seed = 0; seed < 6; ++seed)
        for (size_t i = 0; i < 3; ++i) {
            set_order(seed);
            let_streams_starve(seed >= 2);
            MeshCase c = tiny_case(types[i].first, types[i].second, recompute[(i + seed) % 3]);
            c.model.tied = seed % 2 == 1;
            // kernel by kernel, captured, replayed
            c.graphs = seed < 2;
            if (c.graphs) c.local_batches = 4;
            if (i == 1) {
                set_recipe(c, 1 + int(seed % 4));
                c.types.precision.gather_in_8_bits = false;
            }
            if ((seed + i) % 3 == 1) c.optimizer.name = "Muon";
            if ((seed + i) % 3 == 2) c.optimizer.implementation = "fused_opt_states_bf16";
            c.types.gradients_in_bf16 = i == 2 && c.optimizer.name == "AdamW";
            CHECK(differs_when_offloaded(c, Communicator::self(), c.graphs ? 3 : 2) == "");
        }
    let_streams_starve(false);
}

TEST_CASE("chunks of offloaded state may have any size") {
    // one row, which need not end at a cache line; some rows; all rows
    for (const int64_t chunk : {160, 1000, 12345, 1 << 20}) {
        INFO(chunk);
        MeshCase c = tiny_case(Dtype::f32, Dtype::bf16);
        c.model.dim = 18;
        c.offload_chunk = chunk;
        const bool is_muon = chunk == 1000 || chunk == 12345;
        if (is_muon) c.optimizer.name = "Muon";
        c.types.gradients_in_bf16 = !is_muon;
        if (chunk == 12345) c.optimizer.implementation = "fused_opt_states_bf16";
        CHECK(differs_when_offloaded(c, Communicator::self()) == "");
    }
    MeshCase c = tiny_case(Dtype::f32, Dtype::bf16);
    c.types.offload = true;
    c.offload_chunk = 64;
    CHECK_THROWS_WITH(MeshRun(c, mesh_of_one()), Catch::Contains("longer than the place of a chunk"));
}

TEST_CASE("offloaded tensors are on the host, and take no GPU memory") {
    MeshCase c = tiny_case(Dtype::f32, Dtype::bf16);
    const MeshRun here(c, mesh_of_one());
    c.types.offload = true;
    const MeshRun there(c, mesh_of_one());
    const MemoryPlan with = there.engine.plan(), without = here.engine.plan();
    CHECK(with.bytes(term::weights) == 0);
    CHECK(with.bytes(term::moments) == 0);
    CHECK(with.bytes(term::weights, MemoryPlace::host) == without.bytes(term::weights));
    CHECK(with.bytes(term::moments, MemoryPlace::host) == without.bytes(term::moments));
    CHECK(with.bytes(term::compute_weights) == without.bytes(term::compute_weights));
    const int64_t flow = c.sequences * c.seq_len * c.model.dim * size_of(Dtype::bf16);
    CHECK(with.bytes(term::activations, MemoryPlace::host) == c.model.layers * padded_bytes(flow));
    CHECK(with.bytes(term::activations) ==
          without.bytes(term::activations) - c.model.layers * padded_bytes(flow));
    CHECK(with.bytes(term::offloading) == 2 * 3 * 4096 + 2 * padded_bytes(flow));
    for (const Storage& storage : there.engine.model().parameters().storages()) {
        // the host can read it
        CHECK(element(exp_avg(storage), 0) == 0);
        CHECK(std::isfinite(element(storage.master, 0)));
    }
    // layers that compute in the type of the master weights read these directly
    MeshCase same = tiny_case(Dtype::bf16, Dtype::bf16, {});
    same.types.offload = true;
    const MeshRun state(same, mesh_of_one());
    CHECK(state.engine.plan().bytes(term::weights) > 0);
    CHECK(state.engine.plan().bytes(term::weights, MemoryPlace::host) == 0);
    CHECK(state.engine.plan().bytes(term::activations, MemoryPlace::host) == 0);
}

TEST_CASE(
    "offloading allocates nothing in a step, and a step with values that are not finite changes nothing") {
    MeshCase c = tiny_case(Dtype::f32, Dtype::bf16);
    c.types.offload = true;
    MeshRun run(c, mesh_of_one());
    TestBatch batch = batch_of_step(c, 1);
    CHECK(run.step(1, batch));  // the search for fast products makes its events
    const size_t before = gpu_allocations();
    for (int64_t step = 2; step <= 4; ++step) CHECK(run.step(step, batch));
    run.evaluate(batch);
    CHECK(gpu_allocations() == before);
    const Parameters& parameters = run.engine.model().parameters();
    const StorageTensor kinds[] = {&Storage::master, exp_avg, exp_avg_sq};
    std::vector<std::vector<double>> state;
    for (const StorageTensor& kind : kinds) state.push_back(all_of(parameters, kind));
    run.engine.compute_gradients(5, 1e-2, batch.valid_labels(),
                                 [&](int64_t i) { return batch.local_batch(i * c.sequences, c.sequences); });
    const float nan = std::numeric_limits<float>::quiet_NaN();
    c.device->copy(parameters.gradients().data, &nan, sizeof(nan));
    CHECK_FALSE(run.engine.update().taken);
    for (size_t i = 0; i < state.size(); ++i) CHECK(all_of(parameters, kinds[i]) == state[i]);
}

TEST_CASE("a block's input of several tensors is offloaded and recalled, whatever the order of the copies") {
    constexpr int64_t rows = 3, widths[] = {5, 40};
    constexpr int blocks = 4;
    const Flow like(
        {Tensor(nullptr, Dtype::f32, {rows, widths[0]}), Tensor(nullptr, Dtype::f32, {rows, widths[1]})});
    for (uint64_t seed = 0; seed < 6; ++seed) {
        set_order(seed);
        let_streams_starve(seed >= 2);
        Exec exec(the_gpu());
        OffloadedInputs inputs(like, exec);
        Frame frame(like.bytes(), 0, 0, the_gpu().memory(), blocks * like.bytes(), the_gpu().staging());
        Arena temp;
        StepScalars scalars;
        Ctx c{exec, cuda_kernels(), frame, temp, Batch{}, scalars};
        // values that are unique to a block's tensor
        const auto fill = [&](const Flow& flow, int block) {
            for (const Tensor& tensor : flow.all()) {
                const OwnedTensor host(tensor.dtype, tensor.shape, "input", the_gpu().staging());
                for (int64_t i = 0; i < tensor.count(); ++i)
                    set_element(host, i, double(1000 * block + 100 * tensor.shape[1] + i));
                exec.queue->copy(tensor.data, host.view.data, tensor.bytes());
                exec.queue->finish();
            }
        };
        const Flow flow = keep_like(c, like);
        const Frame::Mark begin = frame.mark();
        for (int block = 0; block < blocks; ++block) {
            fill(flow, block);
            BlockInputs::Kept kept = inputs.keep(c, &widths[0] + block, flow);
            CHECK(kept.room.count() == 2);
            kept.left.join();
        }
        CHECK(frame.last_on_host().size() == 2);
        inputs.expect_recall(c);
        for (int block = blocks; block-- > 0;) {
            const Flow back = inputs.recall(c, &widths[0] + block, 2);
            for (const Tensor& tensor : back.all()) {
                const OwnedTensor host(tensor.dtype, tensor.shape, "input", the_gpu().staging());
                exec.queue->copy(host.view.data, tensor.data, tensor.bytes());
                exec.queue->finish();
                CAPTURE(seed, block, tensor.shape[1]);
                CHECK(element(host, 0) == 1000 * block + 100 * tensor.shape[1]);
                CHECK(element(host, tensor.count() - 1) ==
                      1000 * block + 100 * tensor.shape[1] + tensor.count() - 1);
            }
        }
        CHECK(frame.last_on_host().empty());
        frame.rewind(begin);
        inputs.keep(c, &c, flow).left.join();
        CHECK_THROWS_WITH(
            inputs.recall(c, &c, 1),
            Catch::Contains("a block's input and its gradient have different numbers of tensors"));
        exec.queue->finish();  // while its memory still exists
    }
    let_streams_starve(false);
}
