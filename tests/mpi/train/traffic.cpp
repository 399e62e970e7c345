// SPDX-License-Identifier: Apache-2.0
// The bytes that a rank sends in a step match the formulas of doc/parallelism.md. They are counted where MPI
// is called (its profiling interface, MPI 3.1 section 14.2).
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

std::atomic<int64_t> bytes_sent = 0, messages_sent = 0;  // by this rank, on all threads

void count(int64_t count, MPI_Datatype type, int64_t receivers = 1) {
    int size = 0;
    MPI_Type_size(type, &size);
    bytes_sent += count * size * receivers;
    messages_sent += receivers;
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

// A sum over P ranks, scattered and gathered in parts of n/P. The rest, fewer than P elements, goes to every
// rank.
int64_t all_reduce(int64_t n, int64_t ranks, int64_t element) {
    return (2 * (n - n % ranks) / ranks + n % ranks) * (ranks - 1) * element;
}

// Keys and values, their gradients, and the data that go with them, of a layer and a micro-batch of T tokens
// on this rank. If the block is recomputed, the forward counts twice.
int64_t exchanged(const MeshCase& c, int64_t T, bool again) {
    const int64_t P = c.mesh.cp, H = c.model.head_sizes().heads / c.mesh.tp,
                  K = c.model.head_sizes().kv_heads / c.mesh.tp, d = c.model.head_sizes().head_dim, e = 8,
                  a = 8, forwards = again ? 2 : 1;
    if (P == 1) return 0;
    switch (c.exchanges.context.exchange) {
        case ContextExchange::all_gather: return (P - 1) * T * 2 * K * d * ((forwards + 1) * e + a);
        case ContextExchange::ring:
            return (P - 1) * T * 2 * K * d * (forwards + 1) * e + P * T * 2 * K * d * a;
        case ContextExchange::heads: return (P - 1) * T * (2 * forwards + 4) * (H + K) * d * e / P;
    }
    return 0;
}

// A matrix, as tensor parallelism divides it (a norm has a row per element), and the part of it that a rank
// owns.
struct Matrix {
    int64_t rows, cols;
    bool is_norm = false;
    int64_t gathered_bytes = 8;  // of an element of the gathered weights

    int64_t padded(int64_t ranks) const { return div_ceil(rows, ranks) * ranks * cols; }
    int64_t owned(int64_t ranks, int64_t rank) const {
        const int64_t share = div_ceil(rows, ranks);
        return std::clamp<int64_t>(rows - rank * share, 0, share) * cols;
    }
};

// Matrices that are gathered and summed together, and how often in a step.
struct Piece {
    std::vector<Matrix> matrices;
    int64_t gathers, reductions;

    int64_t padded(int64_t ranks) const {
        int64_t elements = 0;
        for (const Matrix& matrix : matrices) elements += matrix.padded(ranks);
        return elements;
    }
    int64_t gathered_bytes(int64_t ranks) const {
        int64_t bytes = 0;
        for (const Matrix& matrix : matrices) bytes += matrix.padded(ranks) * matrix.gathered_bytes;
        return bytes;
    }
};

// The model's sizes on one rank.
class Sizes {
public:
    Sizes(const MeshCase& c, int rank)
        : c_(c), m_(c.model), tp_(c.mesh.tp), tp_rank_(c.mesh.coordinate(rank, axis::tp)) {}

    Matrix table() const { return {part(m_.vocab), m_.dim}; }
    Matrix norm() const { return {m_.dim, 1, true}; }
    std::vector<Matrix> block() const {
        const int64_t hidden = part(m_.feed_forward.hidden), heads = m_.head_sizes().heads / tp_,
                      kv_heads = m_.head_sizes().kv_heads / tp_, d = m_.head_sizes().head_dim;
        std::vector<Matrix> all = {norm(), {(heads + 2 * kv_heads) * d, m_.dim}, {m_.dim, heads * d}, norm()};
        if (m_.moe.experts > 0) {  // the router; for the others see sent_for_shards_of_experts
            all.push_back({m_.moe.experts, m_.dim, true});
        } else {
            all.push_back({2 * hidden, m_.dim});
            all.push_back({m_.dim, hidden});
        }
        if (c_.types.precision.gather_in_8_bits)
            for (Matrix& matrix : all)
                if (!matrix.is_norm) matrix.gathered_bytes = 1;
        return all;
    }
    // The pieces of these stages. A pipeline keeps each gathered from its first use to its last.
    std::vector<Piece> pieces(const std::vector<DecoderPart>& parts, int64_t batches) const {
        std::vector<Piece> all;
        bool embedding = false, head = false;
        for (const DecoderPart& part : parts) {
            embedding |= part.embedding;
            head |= part.head;
            for (int64_t layer = part.first_layer; layer < part.last_layer; ++layer)
                all.push_back({block(), block_gathers(layer, batches), batches});
        }
        if (m_.tied && (embedding || head)) {
            std::vector<Matrix> matrices = {table()};
            if (head) matrices.push_back(norm());
            const int64_t uses = embedding && head ? 2 : 1;
            all.push_back({matrices, all_have_places() ? 1 : uses * batches, uses * batches});
        }
        if (embedding && !m_.tied) all.push_back({{table()}, batches, batches});
        if (head && !m_.tied) all.push_back({{norm(), table()}, batches, batches});
        for (Piece& piece : all) {
            if (c_.gather.weights == Keep::all) piece.gathers = 1;
            if (c_.gather.gradients == Keep::all) piece.reductions = 1;
        }
        return all;
    }

private:
    int64_t part(int64_t n) const {
        const int64_t share = div_ceil(n, tp_);
        return std::clamp<int64_t>(n - tp_rank_ * share, 0, share);
    }
    // Forward and backward, less the gathers of blocks that are still there.
    int64_t block_gathers(int64_t layer, int64_t batches) const {
        const int64_t last = m_.layers - 1;
        if (all_have_places() || (layer == last - 1 && lies_between())) return 1;
        return 2 * batches - (layer == last ? batches : 0) - (layer == 0 ? batches - 1 : 0);
    }
    bool all_have_places() const { return m_.tied && m_.layers <= 2; }
    // Whether the last block but one stays gathered, because a tied table does not overwrite it.
    bool lies_between() const {
        const int64_t ranks = c_.mesh.size(axis::fsdp);
        const Piece tied = {{table(), norm()}, 0, 0}, one = {block(), 0, 0};
        return m_.tied && m_.layers % 2 == 0 && tied.padded(ranks) < one.padded(ranks);
    }

    const MeshCase& c_;
    const DecoderConfig& m_;
    int64_t tp_, tp_rank_;
};

// Elements that a rank owns: of the norms, or of the other matrices. Each matrix is padded to a multiple of 8
// elements.
int64_t owned_of(const std::vector<Matrix>& matrices, bool norms, int64_t ranks, int64_t rank) {
    int64_t elements = 0;
    for (const Matrix& matrix : matrices)
        if (matrix.is_norm == norms) elements += round_up(matrix.owned(ranks, rank), 8);
    return elements;
}

// The rows of a rank in the experts' exchange of a layer and micro-batch, if tokens choose experts in turn
// or, `uneven`, the first ones. All ranks have the same choices: `tokens` that it sends, which are those of
// one or several ranks that have `routed` each.
struct RowsOfExperts {
    int64_t sent = 0, sent_first = 0, received = 0;  // by other ranks and from them; in the first round
    bool later_rounds = false;

    RowsOfExperts(const MeshCase& c, int64_t tokens, int64_t routed, int rank, bool uneven) {
        constexpr int64_t parts = 16;
        const int64_t ranks = c.mesh.ep, experts = c.model.moe.experts, own = experts / ranks,
                      k = c.model.moe.top_k, of_part = div_ceil(tokens, parts),
                      most = of_part * std::min(k, own),
                      wanted = int64_t(std::ceil(c.exchanges.expert_capacity * double(tokens * k))),
                      first = std::max(wanted, most), later = std::max(first / 4, most);
        for (int64_t receiver = 0; receiver < ranks; ++receiver) {
            int64_t room = first;
            bool is_first = true;
            for (int64_t part = 0; part < parts; ++part) {
                int64_t rows = 0, assignments = 0;
                for (int64_t t = part * of_part; t < std::min(tokens, (part + 1) * of_part); ++t) {
                    int64_t there = 0;
                    for (int64_t j = 0; j < k; ++j) {
                        const int64_t expert = uneven ? j : (t % routed * k + j) % experts;
                        there += expert / own == receiver;
                    }
                    assignments += there;
                    rows += there > 0;
                }
                for (int64_t sender = 0; sender < ranks; ++sender) {
                    if (assignments > room) {
                        room = later;
                        is_first = false;
                        later_rounds = true;
                    }
                    room -= assignments;
                    if (sender == receiver) continue;
                    if (sender == rank) sent += rows;
                    if (sender == rank && is_first) sent_first += rows;
                    if (receiver == rank) received += rows;
                }
            }
        }
    }
};

// What the experts of a layer send in a micro-batch with these tokens of all tensor-parallel ranks. `again`:
// the block is recomputed.
int64_t sent_by_experts(const MeshCase& c, int64_t tokens, int rank, bool again, bool uneven) {
    const MoeConfig& moe = c.model.moe;
    const int64_t ranks = c.mesh.ep, tp = c.mesh.tp, e = 8, a = 8, row = c.model.dim * e,
                  choices = std::min(moe.top_k, moe.experts / ranks), with_choices = row + choices * (4 + a);
    const RowsOfExperts rows(c, c.mesh.etp == tp ? tokens : tokens / tp, tokens / tp,
                             c.mesh.rank_in(rank, axis::ep), uneven);
    const int64_t counts = (ranks - 1) * 2 * 16 * ranks * int64_t(sizeof(int32_t));
    int64_t sent = counts + rows.sent * with_choices + rows.received * row;
    sent +=
        rows.sent * row + rows.received * (row + choices * a) + (rows.sent - rows.sent_first) * with_choices;
    if (again) sent += counts + rows.sent_first * with_choices;
    if (c.mesh.etp == 1) return sent;
    // tokens to the ranks that divide each expert, and results back; choices and weights
    const int64_t stream = tokens / tp * (tp - 1) * row,
                  chosen = tokens / tp * (tp - 1) * moe.top_k * int64_t(sizeof(int32_t)),
                  weights = tokens / tp * (tp - 1) * moe.top_k * a;
    sent += 4 * stream + chosen + 2 * weights + (rows.later_rounds ? stream : 0);
    return sent + (again ? stream + chosen + weights : 0);
}

// Weights and gradients of the experts of a layer, which efsdp shards. Its ranks divide all sizes.
int64_t sent_for_shards_of_experts(const MeshCase& c) {
    const int64_t ranks = c.mesh.degree(axis::efsdp), e = 8,
                  elements =
                      c.model.moe.experts / c.mesh.ep * 3 * c.model.moe.hidden / c.mesh.etp * c.model.dim;
    return 2 * elements / ranks * (ranks - 1) * e;
}

// What a layer of 8-bit products with one scale for each tensor sends less in a micro-batch. It gathers the
// inputs of w_qkv and w_13 for the forward, for a recomputed one and for their gradients, and the gradients
// of the outputs of wo and w_2. `stream`: bytes of such a gather in float64.
int64_t saved_by_8_bits(int64_t stream, bool again) {
    return (again ? 8 : 6) * stream * 7 / 8;
}

// Scales on which ranks agree: of the inputs of four products, again if recomputed, and of seven gradients.
// The output of attention stays in the frame as it is, and is quantized once more.
int64_t sent_for_scales(const MeshCase& c, bool again) {
    return ((again ? 8 : 4) + 7 + 1) * 4 * (c.mesh.tp - 1 + c.mesh.cp - 1);
}

// The same for other recipes: what it sends less in a micro-batch of T tokens, on tensor-parallel ranks that
// recompute nothing. It gathers two inputs in the forward, both again and two gradients in the backward, and
// the gradients once more in another form.
int64_t saved_by_groups(const MeshCase& c, int64_t T, int64_t stream) {
    const Recipe recipe = c.types.precision.linear;
    const bool computes_weights = recipe != Recipe::rowwise_with_gw_hp;  // their gradients, in 8 bits
    const int64_t P = c.mesh.tp, in_8_bits = computes_weights ? 8 : 4, in_full = computes_weights ? 0 : 4,
                  saved = (6 - in_full) * stream - in_8_bits * stream / 8;
    if (has_blocks(recipe)) return saved - in_8_bits * stream / 8 / 32;
    // the scales of rows are gathered. Ranks agree on those of rows that they divide: of tokens, of parts of
    // a stack with one scale for each weight, and of wo and w_2
    const int64_t of_rows = 4 * T / P * (P - 1) * 4, agreed = (P - 1) * 4,
                  gradients = computes_weights ? 2 : 5, on_rows = (2 + gradients) * T + 2 * c.model.dim;
    // and of columns: of the gathered tokens, for the gradients of weights, and of w_qkv and w_13
    const int64_t on_columns = computes_weights ? (4 + 2) * c.model.dim : 0;
    return saved - of_rows - agreed * (on_rows + on_columns);
}

// The formulas of doc/parallelism.md for a float64 run (e = a = 8).
int64_t expected_bytes(const MeshCase& c, const Engine& engine, bool uneven) {
    const int world_rank = engine.options().rank, rank = c.mesh.coordinate(world_rank, axis::pp),
              shard = c.mesh.rank_in(world_rank, axis::fsdp);
    const Timetable& table = c.pipeline.timetable;
    std::vector<DecoderPart> parts;
    for (const int stage : table.placement.stages_of(rank))
        parts.push_back(c.pipeline.parts.empty() ? DecoderPart::whole(c.model)
                                                 : DecoderPart::of(c.model, c.pipeline.parts[size_t(stage)]));
    const int64_t batches = c.local_batches * table.microbatches, ranks = c.mesh.size(axis::fsdp), e = 8;
    const Sizes sizes(c, world_rank);
    int64_t sent = 0, norms = 0;
    for (const Piece& piece : sizes.pieces(parts, batches)) {
        sent += (piece.gathers * piece.gathered_bytes(ranks) + piece.reductions * piece.padded(ranks) * e) /
                ranks * (ranks - 1);
        for (const bool is_norm : {true, false})
            sent += all_reduce(owned_of(piece.matrices, is_norm, ranks, shard), c.mesh.dp_replicate, e);
        norms += owned_of(piece.matrices, true, ranks, shard);
    }
    // tensor parallelism
    const int64_t tokens = c.sequences / table.microbatches * c.seq_len / c.mesh.cp, tp_ranks = c.mesh.tp;
    const int64_t stream = tokens * c.model.dim / tp_ranks * (tp_ranks - 1) * e;
    const std::vector<Recompute>& recomputed = engine.recompute().blocks;
    for (const DecoderPart& part : parts) {
        if (part.embedding) sent += batches * 2 * stream;
        if (part.head) sent += batches * 2 * stream;
        const int64_t columns = div_ceil(c.model.vocab, tp_ranks);
        if (part.head && tp_ranks > 1)
            sent += batches * (c.exchanges.split_loss
                                   ? (tp_ranks - 1) * tokens * e + all_reduce(tokens, tp_ranks, e)
                                   : (tp_ranks - 1) * tokens * columns * e);
        for (int64_t layer = part.first_layer; layer < part.last_layer; ++layer) {
            const bool again = !recomputed.empty() && recomputed[size_t(layer)] == Recompute::block;
            sent += batches * ((again ? 7 : 5) * stream + exchanged(c, tokens, again));
            if (c.types.precision.linear == Recipe::tensorwise)
                sent += batches * (sent_for_scales(c, again) - saved_by_8_bits(stream, again));
            else if (c.types.precision.linear != Recipe::none)
                sent -= batches * saved_by_groups(c, tokens, stream);
            if (c.model.moe.experts > 0)
                sent += batches * sent_by_experts(c, tokens, world_rank, again, uneven) +
                        sent_for_shards_of_experts(c);
            else
                sent += batches * (again ? 6 : 5) * stream;
        }
    }
    sent += all_reduce(norms, tp_ranks, e);
    // pipeline
    for (int stage = 0; stage + 1 < table.stages(); ++stage) {
        const int from = table.placement.rank_of(stage), to = table.placement.rank_of(stage + 1);
        if (from != to)
            sent += ((from == rank) + (to == rank)) * batches * tokens / tp_ranks * c.model.dim * e;
    }
    const int last = table.placement.rank_of(table.stages() - 1);
    if (c.model.tied && last != 0 && (rank == 0 || rank == last))
        sent += all_reduce(sizes.table().owned(ranks, shard), 2, e);
    if (c.model.moe.experts > 0)  // their loads: MPI sums integers
        sent += c.model.moe_rows() * c.model.moe.experts * (c.mesh.size(loss_axes) + c.mesh.tp - 2) * 8;
    if (forms_of(c.types.precision.linear).w_of_dgrad.groups == ScaleGroups::one)
        // the largest magnitudes of the weights of all layers, 16 bytes apart
        sent += c.model.layers * 7 * 16 * (c.mesh.size(owner_axes) - 1);
    // loss and norm, one number each
    return sent + (c.mesh.size(loss_axes) - 1 + c.mesh.size(owner_axes) - 1) * e;
}

// Sets the routers' weights to 0: all experts have the same score, and every token chooses the first ones.
void choose_first_experts(Engine& engine) {
    for (const Storage& storage : engine.model().parameters().storages())
        for (const OwnedRun& run : storage.runs())
            if (run.param->name.ends_with(".router.gate.weight"))
                cpu_kernels().zero(engine.exec(), Storage::rows_of(run, storage.master));
    engine.renew_weights();
}

void check_traffic(const MeshCase& c, const Communicator& world, bool uneven = false) {
    INFO(c.name());
    const Mesh mesh(world.split(0, "world"), c.mesh);
    MeshRun run(c, mesh);
    for (const int64_t step : {1, 2}) {
        TestBatch batch = batch_of_step(c, uint64_t(step));
        if (uneven) choose_first_experts(run.engine);
        world.barrier();
        bytes_sent = 0;
        CHECK(run.step(step, batch));
        CHECK(bytes_sent == expected_bytes(c, run.engine, uneven));
        const int64_t rounds = run.engine.extra_rounds();
        CHECK((rounds > 0) == uneven);
        if (uneven) run.evaluate(batch);  // its rounds do not count
        CHECK(run.engine.extra_rounds() == rounds);
    }
}

// 8 ranks are for meshes of three axes; fewer ranks test all others.
bool is_new(const MeshShape& shape) {
    int axes = 0;
    for (const Axis axis : {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})
        axes += shape.degree(axis) > 1;
    return shape.ranks() <= 4 || axes > 2;
}

DecoderConfig even_model() {
    DecoderConfig model = tiny_config();
    model.dim = 32;
    model.layers = 3;
    model.grouped().heads = model.grouped().kv_heads = 8;
    model.grouped().head_dim = 4;
    model.feed_forward.hidden = 24;
    model.vocab = 48;
    return model;
}

// No degree divides these sizes evenly, except where it must.
DecoderConfig uneven_model() {
    DecoderConfig model = even_model();
    model.dim = 30;
    model.feed_forward.hidden = 23;
    model.vocab = 37;
    return model;
}

}  // namespace

TEST_CASE("traffic: a step sends the bytes of the formulas") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 4) return;  // more ranks test nothing new
    int number = 0;
    for (const MeshShape& shape :
         meshes_of(world.size(), {axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp}))
        for (const int64_t local_batches : {1, 2})
            for (const Keep keep : {Keep::neighbours, Keep::all}) {
                MeshCase c = {
                    .mesh = shape, .model = even_model(), .local_batches = local_batches, .seq_len = 16};
                c.gather.weights = keep;
                c.exchanges.context.exchange = ContextExchange(number++ % 3);
                check_traffic(c, world);
            }
}

TEST_CASE("traffic: 8-bit weights and tokens are one byte each, besides their scales") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 4) return;
    int number = 0;
    for (const MeshShape& shape :
         meshes_of(world.size(), {axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp}))
        for (const auto recomputed : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::blocks}) {
            MeshCase c = {.mesh = shape, .model = even_model(), .local_batches = 2, .seq_len = 16};
            c.model.feed_forward.hidden = 48;
            c.types.precision = {
                .linear = Recipe::tensorwise, .filter_fqns = {"output"}, .gather_in_8_bits = true};
            c.recompute = {.mode = recomputed, .every = 1};
            c.exchanges.context.exchange = ContextExchange(number++ % 3);
            c.exchanges.overlap_tokens = number % 2 == 0;
            check_traffic(c, world);
        }
}

TEST_CASE("traffic: scales of rows, columns and blocks are gathered with tokens, or agreed on") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 4) return;
    const int P = world.size();
    for (const Recipe recipe : {Recipe::rowwise, Recipe::rowwise_with_gw_hp, Recipe::mx_floor}) {
        MeshCase c = {.mesh = {.tp = P}, .model = even_model(), .local_batches = 2, .seq_len = 32 * P};
        c.model.dim = 32 * P;
        c.model.grouped().head_dim = 4 * P;
        c.model.feed_forward.hidden = 64 * P;
        c.types.precision = {.linear = recipe, .filter_fqns = {"output"}};
        check_traffic(c, world);
    }
}

TEST_CASE("traffic: experts on several ranks send the rows of the formulas, with even and uneven loads") {
    const Communicator world = Communicator::world("world");
    for (const MeshShape& mesh : {MeshShape{.dp_shard = 2, .ep = 2},
                                  {.tp = 2, .ep = 2},
                                  {.dp_shard = 4, .ep = 4},
                                  {.dp_shard = 4, .ep = 2},
                                  {.dp_shard = 2, .tp = 2, .ep = 4},
                                  {.dp_shard = 2, .tp = 2, .ep = 2},
                                  {.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2},
                                  {.cp = 2, .tp = 2, .ep = 2, .etp = 2}}) {
        if (mesh.ranks() != world.size()) continue;
        for (const auto recomputed : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::blocks})
            for (const bool uneven : {false, true}) {
                MeshCase c = {.mesh = mesh, .model = even_model(), .local_batches = 2, .seq_len = 32};
                set_experts(c.model, 1);
                c.model.moe.experts = c.model.moe.hidden = 8;
                c.model.moe.round_robin = !uneven;
                c.exchanges.expert_capacity = 1.25;
                c.recompute = {.mode = recomputed, .every = 1};
                c.gather = {.weights = Keep::all, .gradients = Keep::all};
                check_traffic(c, world, uneven);
            }
    }
}

TEST_CASE("traffic: an all-to-all of rows sends the rows for other ranks, and no empty message") {
    const Communicator world = Communicator::world("world");
    const int size = world.size(), rank = world.rank();
    // rank r sends r rows to each rank
    const int64_t all = size * (size - 1) / 2;
    const OwnedTensor in(Dtype::f64, {rank, 5}), out(Dtype::f64, {all, 5});
    std::vector<RowRange> to, from(size_t(size), {0, rank});
    for (int peer = 0; peer < size; ++peer) to.push_back({peer * (peer - 1) / 2, peer});
    world.barrier();
    bytes_sent = messages_sent = 0;
    world.all_to_all(out, to, in, from);
    CHECK(bytes_sent == (size - 1) * rank * 5 * 8);
    CHECK(messages_sent == (rank == 0 ? 0 : size - 1));
}

TEST_CASE("traffic: uneven shards, tied tables, recomputed blocks, whole losses, on any mesh") {
    const Communicator world = Communicator::world("world");
    const RandomStream random(7, "cases of traffic");
    uint64_t draws = 0;
    const auto draw = [&](int choices) { return int(random.u64(draws++) % uint64_t(choices)); };
    using Recomputed = RecomputeOptions::Mode;
    for (const MeshShape& shape :
         meshes_of(world.size(), {axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        if (!is_new(shape)) continue;
        for (const auto recomputed : {Recomputed::nothing, Recomputed::operations, Recomputed::blocks}) {
            MeshCase c = {.mesh = shape, .model = uneven_model(), .seq_len = 16};
            c.model.tied = draw(2) == 0;
            c.model.layers = 1 + draw(4);
            if (draw(2)) c.model.vocab = 397;  // a table larger than a block
            c.local_batches = 1 + draw(2);
            c.exchanges.split_loss = draw(2) == 0;
            c.recompute = {.mode = recomputed, .every = 1 + draw(2)};
            c.gather.weights = draw(2) ? Keep::neighbours : Keep::all;
            c.gather.gradients = draw(2) ? Keep::neighbours : Keep::all;
            c.exchanges.context.exchange = ContextExchange(draw(3));
            check_traffic(c, world);
        }
    }
}

TEST_CASE("traffic: overlapped tokens send as many bytes") {
    const Communicator world = Communicator::world("world");
    MeshCase c = {.mesh = {.tp = world.size()}, .model = even_model(), .local_batches = 2, .seq_len = 16};
    c.exchanges.overlap_tokens = true;
    check_traffic(c, world);
}

TEST_CASE("traffic: a pipeline sends each flow and its gradient once, in addition to what its stages send") {
    const Communicator world = Communicator::world("world");
    int number = 0;
    for (const MeshShape& shape :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        if (shape.pp == 1 || !is_new(shape)) continue;
        for (const bool tied : {false, true})
            for (const char* schedule : {"1F1B", "Interleaved1F1B", "ZBVZeroBubble"}) {
                // all cases on a pure pipeline, every third on other meshes
                if (shape.pp < world.size() && ++number % 3 != 0) continue;
                MeshCase c = {.mesh = shape, .model = uneven_model(), .local_batches = 2, .seq_len = 16};
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
