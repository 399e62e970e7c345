// SPDX-License-Identifier: Apache-2.0
// The bytes that a rank sends in a step are those of the formulas in doc/parallelism.md, counted where MPI is
// called (its profiling interface, MPI 3.1 section 14.2).
#include "coeus/base/random.hpp"
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
int MPI_Sendrecv(const void* out, int n, MPI_Datatype type, int to, int tag, void* in, int m,
                 MPI_Datatype other, int from, int tag_in, MPI_Comm comm, MPI_Status* status) {
    count(n, type);
    return PMPI_Sendrecv(out, n, type, to, tag, in, m, other, from, tag_in, comm, status);
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

// Keys and values, their gradients, and what goes with them, of a layer and micro-batch of T tokens of this
// rank; the forward's part once more where the block is computed again.
int64_t exchanged(const MeshCase& c, int64_t T, bool again) {
    const int64_t P = c.mesh.cp, H = c.model.heads / c.mesh.tp, K = c.model.kv_heads / c.mesh.tp,
                  d = c.model.head_dim, e = 8, a = 8, forwards = again ? 2 : 1;
    if (P == 1) return 0;
    switch (c.exchanges.context.exchange) {
        case ContextExchange::all_gather: return (P - 1) * T * 2 * K * d * ((forwards + 1) * e + a);
        case ContextExchange::ring:
            return (P - 1) * T * 2 * K * d * (forwards + 1) * e + P * T * 2 * K * d * a;
        case ContextExchange::heads: return (P - 1) * T * (2 * forwards + 4) * (H + K) * d * e / P;
    }
    return 0;
}

// How often a unit's weights are gathered in a step where they leave after use: for each use, but what is
// still there. `batches` one after the other, no pipeline.
int64_t gathers_of(const Decoder& decoder, size_t unit, int64_t batches) {
    const size_t first = decoder.block_unit(0),
                 last = decoder.block_unit(size_t(decoder.config().layers - 1));
    int64_t gathers = 0;
    if (unit == decoder.embedding_unit()) gathers += batches;
    if (unit == decoder.head_unit()) gathers += batches;
    if (gathers > 0) return gathers;
    gathers = 2 * batches;
    if (unit == last) gathers -= batches;       // the head left it there
    if (unit == first) gathers -= batches - 1;  // the embedding of the next micro-batch did
    return gathers;
}

// The formulas of doc/parallelism.md for a float64 run (e = a = 8).
int64_t expected_bytes(const MeshCase& c, const Engine& engine) {
    const Decoder& decoder = engine.decoder();
    const Parameters& parameters = decoder.parameters();
    const Timetable& table = c.pipeline.timetable;
    const int64_t batches = c.micro_batches * table.microbatches, ranks = c.mesh.size(fsdp), e = 8;
    int64_t sent = 0;
    for (size_t u = 0; u < parameters.units().size(); ++u) {
        const Unit& unit = parameters.units()[u];
        int64_t elements = 0;
        for (size_t i = unit.first; i < unit.first + unit.count; ++i)
            elements += parameters.storages()[i].padded_count();
        const int64_t gathers = c.gather.weights == Keep::all ? 1 : gathers_of(decoder, u, batches),
                      reductions = c.gather.gradients == Keep::all ? 1 : batches * unit.uses;
        if (ranks > 1) sent += (gathers + reductions) * elements / ranks * (ranks - 1) * e;
        // replicas, a part for norms and one for the rest of each unit, aligned to 8 elements
        for (const Tensor& part : parameters.gradients_of(u))
            sent += all_reduce(part.count(), c.mesh.dp_replicate, e);
    }
    // tensor parallel
    const int64_t tokens = c.sequences / table.microbatches * c.seq_len / c.mesh.cp, tp_ranks = c.mesh.tp;
    const int64_t stream = tokens * c.model.dim / tp_ranks * (tp_ranks - 1) * e;
    const std::vector<Recompute>& recomputed = engine.recompute().blocks;
    for (const DecoderPart& part : decoder.parts()) {
        if (part.embedding) sent += batches * 2 * stream;
        if (part.head) sent += batches * 2 * stream;
        const int64_t columns = div_ceil(c.model.vocab, tp_ranks);
        if (part.head && tp_ranks > 1)
            sent += batches * (c.exchanges.split_loss
                                   ? (tp_ranks - 1) * tokens * e + all_reduce(tokens, tp_ranks, e)
                                   : (tp_ranks - 1) * tokens * columns * e);
        for (int64_t layer = part.first_layer; layer < part.last_layer; ++layer) {
            const bool again = !recomputed.empty() && recomputed[size_t(layer)] == Recompute::block;
            sent += batches * ((again ? 13 : 10) * stream + exchanged(c, tokens, again));
        }
    }
    sent += all_reduce(parameters.partial_gradients().count(), tp_ranks, e);
    // pipeline
    const int rank = engine.options().mesh.coordinate(engine.options().rank, pp);
    for (int stage = 0; stage + 1 < table.stages(); ++stage) {
        const int from = table.placement.rank_of(stage), to = table.placement.rank_of(stage + 1);
        if (from != to)
            sent += ((from == rank) + (to == rank)) * batches * tokens / tp_ranks * c.model.dim * e;
    }
    if (decoder.shared_table()) sent += all_reduce(decoder.shared_table()->gradient.count(), 2, e);
    // loss and norm, one number each
    return sent + (c.mesh.size(loss_axes) - 1 + c.mesh.size(owner_axes) - 1) * e;
}

void check_traffic(const MeshCase& c, const Communicator& world) {
    INFO(c.name());
    const Mesh mesh(world.split(0, "world"), c.mesh);
    MeshRun run(c, mesh);
    for (const int64_t step : {1, 2}) {
        TestBatch batch = batch_of_step(c, uint64_t(step));
        world.barrier();
        bytes_sent = 0;
        CHECK(run.step(step, batch));
        CHECK(bytes_sent == expected_bytes(c, run.engine));
    }
}

// 8 ranks for mixes of three axes, fewer for all others.
bool is_new(const MeshShape& shape) {
    int axes = 0;
    for (const Axis axis : {pp, dp_replicate, dp_shard, cp, tp}) axes += shape.degree(axis) > 1;
    return shape.ranks() <= 4 || axes > 2;
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

// Sizes that no degree divides but where they must.
DecoderConfig uneven_model() {
    DecoderConfig model = even_model();
    model.dim = 30;
    model.ffn_hidden = 23;
    model.vocab = 37;
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
                check_traffic(c, world);
            }
}

TEST_CASE("traffic: uneven shards, tied tables, recomputed blocks, whole losses, on any mesh") {
    const Communicator world = Communicator::world("world");
    const RandomStream random(7, "cases of traffic");
    uint64_t draws = 0;
    const auto draw = [&](int choices) { return int(random.u64(draws++) % uint64_t(choices)); };
    using Mode = RecomputeOptions::Mode;
    for (const MeshShape& shape : meshes_of(world.size(), {dp_replicate, dp_shard, cp, tp})) {
        if (!is_new(shape)) continue;
        for (const Mode recomputed : {Mode::nothing, Mode::operations, Mode::blocks}) {
            MeshCase c = {.mesh = shape, .model = uneven_model(), .seq_len = 16};
            c.model.tied = draw(2) == 0;
            c.micro_batches = 1 + draw(2);
            c.exchanges.split_loss = draw(2) == 0;
            c.recompute = {.mode = recomputed, .every = 1 + draw(2)};
            c.gather.weights = draw(2) ? Keep::neighbours : Keep::all;
            c.gather.gradients = draw(2) ? Keep::neighbours : Keep::all;
            c.exchanges.context.exchange = ContextExchange(draw(3));
            check_traffic(c, world);
        }
    }
}

TEST_CASE("traffic: overlapped tokens are as many bytes") {
    const Communicator world = Communicator::world("world");
    MeshCase c = {.mesh = {.tp = world.size()}, .model = even_model(), .micro_batches = 2, .seq_len = 16};
    c.exchanges.overlap_tokens = true;
    check_traffic(c, world);
}

TEST_CASE("traffic: a pipeline sends each flow and its gradient once, beside what its stages send") {
    const Communicator world = Communicator::world("world");
    int number = 0;
    for (const MeshShape& shape : meshes_of(world.size(), {pp, dp_replicate, dp_shard, cp, tp})) {
        if (shape.pp == 1 || !is_new(shape)) continue;
        for (const bool tied : {false, true})
            for (const char* schedule : {"1F1B", "Interleaved1F1B", "ZBVZeroBubble"}) {
                // all of them on a pipeline alone, one in turn on other meshes
                if (shape.pp < world.size() && ++number % 3 != 0) continue;
                MeshCase c = {.mesh = shape, .model = uneven_model(), .micro_batches = 2, .seq_len = 16};
                c.sequences = 2 * shape.pp;
                c.model.layers = 2 * shape.pp;
                c.model.tied = tied;
                c.pipeline = pipeline_of(schedule, shape.pp, 2 * shape.pp,
                                         find_schedule(schedule)->default_virtual_stages, c.model);
                c.gather = {.weights = Keep::all, .gradients = Keep::all};
                c.exchanges.context.exchange = ContextExchange(number % 3);
                c.recompute.mode =
                    number % 2 ? RecomputeOptions::Mode::blocks : RecomputeOptions::Mode::nothing;
                check_traffic(c, world);
            }
    }
}
