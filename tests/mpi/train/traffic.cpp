// SPDX-License-Identifier: Apache-2.0
// The bytes that a rank sends in a step are those of the formulas in doc/parallelism.md, counted where MPI is
// called (its profiling interface, MPI 3.1 section 14.2).
#include "support/mesh_run.hpp"

#include <catch2/catch.hpp>
#include <mpi.h>

#include <atomic>

using namespace coeus;
using namespace coeus::test;

namespace {

std::atomic<int64_t> bytes_sent = 0;  // by this rank, on all threads

void count(int64_t count, MPI_Datatype type, int64_t receivers = 1) {
    int size = 0;
    MPI_Type_size(type, &size);
    bytes_sent += count * size * receivers;
}

int others(MPI_Comm comm) {
    int size = 1;
    MPI_Comm_size(comm, &size);
    return size - 1;
}

}  // namespace

extern "C" {
int MPI_Isend(const void* data, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
    count(n, type);
    return PMPI_Isend(data, n, type, peer, tag, comm, request);
}
int MPI_Issend(const void* data, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
               MPI_Request* request) {
    count(n, type);
    return PMPI_Issend(data, n, type, peer, tag, comm, request);
}
int MPI_Send(const void* data, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
    count(n, type);
    return PMPI_Send(data, n, type, peer, tag, comm);
}
int MPI_Allgather(const void* data, int n, MPI_Datatype type, void* all, int m, MPI_Datatype other,
                  MPI_Comm comm) {
    count(m, other, others(comm));
    return PMPI_Allgather(data, n, type, all, m, other, comm);
}
int MPI_Alltoall(const void* data, int n, MPI_Datatype type, void* all, int m, MPI_Datatype other,
                 MPI_Comm comm) {
    count(m, other, others(comm));
    return PMPI_Alltoall(data, n, type, all, m, other, comm);
}
int MPI_Allreduce(const void* data, void* result, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    count(n, type, others(comm));
    return PMPI_Allreduce(data, result, n, type, op, comm);
}
int MPI_Sendrecv(const void* data, int n, MPI_Datatype type, int to, int tag, void* other, int m,
                 MPI_Datatype other_type, int from, int other_tag, MPI_Comm comm, MPI_Status* status) {
    count(n, type, 1);
    return PMPI_Sendrecv(data, n, type, to, tag, other, m, other_type, from, other_tag, comm, status);
}
int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    if (rank == root) count(n, type, others(comm));
    return PMPI_Bcast(data, n, type, root, comm);
}
}

namespace {

// A sum over P ranks: scattered and gathered in parts of n/P; the rest, fewer than P elements, goes to
// everyone.
int64_t all_reduce(int64_t n, int64_t ranks, int64_t element) {
    return (2 * (n - n % ranks) / ranks + n % ranks) * (ranks - 1) * element;
}

// Keys and values, their gradients, and what goes with them, of a layer and micro-batch.
int64_t exchanged(const MeshCase& c) {
    const int64_t P = c.mesh.cp, T = c.sequences * c.seq_len / P, H = c.model.heads / c.mesh.tp,
                  K = c.model.kv_heads / c.mesh.tp, d = c.model.head_dim, e = 8, a = 8;
    if (P == 1) return 0;
    switch (c.exchanges.context.exchange) {
        case ContextExchange::all_gather: return (P - 1) * T * 2 * K * d * (2 * e + a);
        case ContextExchange::ring: return (P - 1) * T * 2 * K * d * 2 * e + P * T * 2 * K * d * a;
        case ContextExchange::heads: return (P - 1) * T * (6 * H + 6 * K) * d * e / P;
    }
    return 0;
}

// The formulas of doc/parallelism.md for a float64 run (e = a = 8) without a pipeline.
int64_t expected_bytes(const MeshCase& c, const Decoder& decoder) {
    const Parameters& parameters = decoder.parameters();
    const int64_t layers = c.model.layers, batches = c.micro_batches, ranks = c.mesh.size(fsdp), e = 8;
    const auto elements = [&](size_t unit) {
        int64_t n = 0;
        for (size_t i = 0; i < parameters.units()[unit].count; ++i)
            n += parameters.storages()[parameters.units()[unit].first + i].padded_count();
        return n;
    };
    int64_t sent = 0;
    // shards: each unit for each use, but what is still there; gradients in each micro-batch
    for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
        const bool is_block = unit != decoder.embedding_unit() && unit != decoder.head_unit();
        int64_t gathers = is_block ? 2 * batches : batches;
        if (is_block && unit == decoder.block_unit(size_t(layers - 1)))
            gathers -= batches;  // kept by the head
        if (is_block && unit == decoder.block_unit(0))
            gathers -= batches - 1;  // kept by the next micro-batch
        if (c.gather.weights == Keep::all) gathers = 1;
        if (ranks > 1) sent += (gathers + batches) * elements(unit) / ranks * (ranks - 1) * e;
    }
    // replicas, a part for norms and one for the rest of each unit, aligned to 8 elements
    for (size_t unit = 0; unit < parameters.units().size(); ++unit)
        for (const Tensor& part : parameters.gradients_of(unit))
            sent += all_reduce(part.count(), c.mesh.dp_replicate, e);
    // tensor parallel
    const int64_t tokens = c.sequences * c.seq_len / c.mesh.cp, tp_ranks = c.mesh.tp;
    const int64_t stream = tokens * c.model.dim / tp_ranks * (tp_ranks - 1) * e;
    sent += batches * (10 * layers + 4) * stream;
    sent += batches * ((tp_ranks - 1) * tokens * e + all_reduce(tokens, tp_ranks, e));
    sent += all_reduce(parameters.partial_gradients().count(), tp_ranks, e);
    // context parallel
    sent += batches * layers * exchanged(c);
    // loss and norm, one number each
    return sent + (c.mesh.size(loss_axes) - 1 + c.mesh.size(owner_axes) - 1) * e;
}

DecoderConfig even_model() {
    DecoderConfig model = tiny_config();
    model.dim = 32;
    model.layers = 3;
    model.heads = model.kv_heads = 8;
    model.head_dim = 4;
    model.ffn_hidden = 24;
    model.vocab = 48;
    return model;
}

}  // namespace

TEST_CASE("traffic: a step sends what the formulas say") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 4) return;  // nothing new
    int number = 0;
    for (const MeshShape& shape : meshes_of(world.size(), {dp_replicate, dp_shard, cp, tp}))
        for (const int64_t micro_batches : {1, 2})
            for (const Keep keep : {Keep::neighbours, Keep::all}) {
                MeshCase c = {
                    .mesh = shape, .model = even_model(), .micro_batches = micro_batches, .seq_len = 16};
                c.gather.weights = keep;
                c.exchanges.context.exchange = ContextExchange(number++ % 3);
                INFO(c.name());
                const Mesh mesh(world.split(0, "world"), shape);
                MeshRun run(c, mesh);
                for (const int64_t step : {1, 2}) {
                    TestBatch batch = batch_of_step(c, uint64_t(step));
                    world.barrier();
                    bytes_sent = 0;
                    CHECK(run.step(step, batch));
                    CHECK(bytes_sent == expected_bytes(c, run.engine.decoder()));
                }
            }
}

TEST_CASE("traffic: overlapped tokens are as many bytes") {
    const Communicator world = Communicator::world("world");
    MeshCase c = {.mesh = {.tp = world.size()}, .model = even_model(), .micro_batches = 2, .seq_len = 16};
    c.exchanges.overlap_tokens = true;
    const Mesh mesh(world.split(0, "world"), c.mesh);
    MeshRun run(c, mesh);
    TestBatch batch = batch_of_step(c, 1);
    world.barrier();
    bytes_sent = 0;
    CHECK(run.step(1, batch));
    CHECK(bytes_sent == expected_bytes(c, run.engine.decoder()));
}

TEST_CASE("traffic: a pipeline sends each flow and its gradient once") {
    const Communicator world = Communicator::world("world");
    const MeshShape shape = {.pp = world.size()};
    for (const bool tied : {false, true})
        for (const char* schedule : {"1F1B", "Interleaved1F1B", "ZBVZeroBubble"}) {
            DecoderConfig model = even_model();
            model.layers = 2 * world.size();
            model.tied = tied;
            const int virtual_stages = find_schedule(schedule)->default_virtual_stages;
            MeshCase c = {.mesh = shape, .model = model, .sequences = 2 * world.size(), .seq_len = 16};
            c.micro_batches = 2;
            c.pipeline = pipeline_of(schedule, world.size(), 2 * world.size(), virtual_stages, model);
            INFO(c.name());
            const Mesh mesh(world.split(0, "world"), shape);
            MeshRun run(c, mesh);
            TestBatch batch = batch_of_step(c, 1);
            world.barrier();
            bytes_sent = 0;
            CHECK(run.step(1, batch));
            const Placement& placement = c.pipeline.timetable.placement;
            const int64_t flows = c.micro_batches * c.sequences * c.seq_len * model.dim * 8;
            int64_t expected = (c.mesh.size(loss_axes) - 1 + c.mesh.size(owner_axes) - 1) * 8;
            for (int stage = 0; stage + 1 < placement.stages(); ++stage) {
                const int from = placement.rank_of(stage), to = placement.rank_of(stage + 1);
                if (from != to) expected += ((from == world.rank()) + (to == world.rank())) * flows;
            }
            if (run.engine.decoder().shared_table()) expected += all_reduce(model.vocab * model.dim, 2, 8);
            CHECK(bytes_sent == expected);
        }
}
