// SPDX-License-Identifier: Apache-2.0
// Recordings of steps: every kernel, and every collective where the engine makes it.
#include "coeus/predict/record.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

EngineOptions options_of(const MeshShape& mesh, int64_t local_batches) {
    EngineOptions options;
    options.types = {.master = Dtype::bf16, .compute = Dtype::bf16};
    options.training = {.sequences = 2, .seq_len = 32};
    options.accumulation = local_batches;
    options.mesh = mesh;
    options.machine.backend = Backend::cuda;
    options.machine.architecture = 90;
    return options;
}

using enum Submitted::Kind;

int64_t count(const Recording& r, Submitted::Kind kind) {
    return std::ranges::count(r.submitted, kind, &Submitted::kind);
}

// The bytes that a kernel beside the computation moves for a purpose.
double bytes_beside(const Recording& r, const std::string& kernel, Purpose purpose) {
    double bytes = 0;
    for (const Submitted& s : r.submitted)
        if (s.kind == Submitted::Kind::kernel && s.queue != 0 && s.purpose == purpose &&
            r.calls[s.index].kernel == kernel)
            bytes += r.calls[s.index].bytes;
    return bytes;
}

int64_t calls_of(const Recording& r, const std::string& kernel) {
    return std::ranges::count_if(r.submitted, [&](const Submitted& s) {
        return s.kind == Submitted::Kind::kernel && r.calls[s.index].kernel == kernel;
    });
}

// The numbers of the entries that are operations for a purpose.
std::vector<size_t> operations(const Recording& r, Purpose purpose, const std::string& operation = "") {
    std::vector<size_t> found;
    for (size_t i = 0; i < r.submitted.size(); ++i) {
        if (r.submitted[i].kind != collective) continue;
        const Collective& c = r.collectives[r.submitted[i].index];
        if (c.purpose == purpose && (operation.empty() || c.operation == operation)) found.push_back(i);
    }
    return found;
}

double bytes_of(const Recording& r, const std::vector<size_t>& entries) {
    double bytes = 0;
    for (const size_t i : entries) bytes += r.collectives[r.submitted[i].index].bytes;
    return bytes;
}

// The queues of some entries.
std::set<uint32_t> queues_of(const Recording& r, const std::vector<size_t>& entries) {
    std::set<uint32_t> queues;
    for (const size_t i : entries) queues.insert(r.submitted[i].queue);
    return queues;
}

// For each wait of the computation for one of these entries: how many of them were submitted after that one.
std::vector<int64_t> ahead_of_waits(const Recording& r, const std::vector<size_t>& entries) {
    std::vector<int64_t> ahead;
    for (size_t i = 0; i < r.submitted.size(); ++i) {
        const Submitted& s = r.submitted[i];
        if (s.kind != wait || s.queue != 0 || std::ranges::find(entries, s.index) == entries.end()) continue;
        ahead.push_back(std::ranges::count_if(entries, [&](size_t e) { return e > s.index && e < i; }));
    }
    return ahead;
}

using QueueNumbers = std::set<uint32_t>;

}  // namespace

TEST_CASE("a recording has the kernels of every local batch and of the update, on any rank without memory") {
    const Recording one = record_step(tiny_config(3), options_of({}, 1)),
                    three = record_step(tiny_config(3), options_of({}, 3));
    CHECK(calls_of(one, "attention") == 3);
    CHECK(calls_of(one, "attention_backward") == 3);
    CHECK(calls_of(three, "attention_backward") == 9);
    CHECK(calls_of(one, "adam") == calls_of(three, "adam"));
    CHECK(calls_of(one, "adam") > 3);
    CHECK(one.launches_beside() == 0);
    // 3 x (qkv, output, gate and up, down) and the head, forward and both gradients
    CHECK(calls_of(one, "gemm") >= 3 * (3 * 4 + 1));
    const auto is_weight_gradient = [](const Call& call) { return call.variant == "tn"; };
    CHECK(std::ranges::any_of(one.calls, is_weight_gradient));
    const Call& call = *std::ranges::find(one.calls, "attention", &Call::kernel);
    CHECK(call.key() == "attention bfloat16 own 2x32x6");
    CHECK(call.type == Dtype::bf16);
    // norm backward and sum of squares have a second kernel, and finish_norm has one
    CHECK(one.launches() > count(one, kernel));
}

TEST_CASE("a recording has products of experts in the type in which the GPU multiplies them") {
    DecoderConfig model = tiny_config(2);
    set_experts(model, 1);
    model.dim = 32;
    model.moe.hidden = 48;
    const auto products_on = [&](int architecture, bool emulate = false) {
        EngineOptions options = options_of({}, 1);
        options.machine.architecture = architecture;
        options.types.precision = {
            .experts = Recipe::rowwise, .expert_fqns = {"experts"}, .emulate = emulate};
        std::vector<Call> calls = record_step(model, options).calls;
        std::erase_if(calls, [](const Call& c) { return !c.kernel.starts_with("scaled_grouped"); });
        return calls;
    };
    struct Expected {
        int architecture;
        const char* variant;
        Dtype type;
    };
    for (const auto& [architecture, variant, type] :
         {Expected{80, "decoded", Dtype::bf16}, Expected{89, "codes", Dtype::fp8_e4m3},
          Expected{90, "decoded", Dtype::bf16}, Expected{100, "converted", Dtype::bf16},
          Expected{120, "codes", Dtype::fp8_e4m3}}) {
        CAPTURE(architecture);
        const std::vector<Call> calls = products_on(architecture);
        CHECK(calls.size() >= 3);
        for (const Call& call : calls) {
            CHECK(call.variant == variant);
            CHECK(call.type == type);
            // each element of both operands is read and written, and read again
            CHECK((call.more_bytes > 0) == (call.variant == "decoded"));
            CHECK(call.launches == (call.more_bytes > 0 ? 3 : 1));
        }
    }
    for (const Call& call : products_on(90, true)) CHECK(call.variant == "decoded");
    // of a group: rows, columns and depth of the forward's first product, and of the gradient of its weights
    const std::vector<Call> calls = products_on(90);
    constexpr int64_t tokens = 2 * 32;  // of options_of()
    const int64_t rows = tokens * model.moe.top_k / model.moe.experts;
    const auto has = [&](const char* kernel, const std::array<int64_t, 3>& size) {
        return std::ranges::any_of(calls,
                                   [&](const Call& c) { return c.kernel == kernel && c.size == size; });
    };
    CHECK(has("scaled_grouped_gemm", {rows, 2 * model.moe.hidden, model.dim}));
    CHECK(has("scaled_grouped_gemm_weights", {2 * model.moe.hidden, model.dim, rows}));
}

TEST_CASE("a recording has the gathers and sums of FSDP, their bytes and queues, and the waits for them") {
    const MeshShape mesh = {.dp_shard = 4};
    const Recording r = record_step(tiny_config(3), options_of(mesh, 2));
    const auto gathers = operations(r, Purpose::weights),
               sums = operations(r, Purpose::gradients, "reduce_scatter");
    // gradients are float32 and are summed once in each local batch, weights are gathered once or twice
    const double of_weights = bytes_of(r, sums) / 2 / 2;
    CHECK(bytes_of(r, gathers) >= 2 * of_weights);
    CHECK(bytes_of(r, gathers) <= 4 * of_weights);
    CHECK(queues_of(r, gathers) == QueueNumbers{1});
    CHECK(queues_of(r, sums) == QueueNumbers{2});
    // embedding, three blocks and head, and two blocks again for the backward; during this, the embedding for
    // the second local batch, whose first block is still there. All parameters of a unit are one operation.
    CHECK(gathers.size() == (5 + 2 + 1) + (3 + 2));
    CHECK(sums.size() == 2 * 5);
    CHECK(ahead_of_waits(r, gathers) == std::vector<int64_t>(gathers.size(), 0));
    // the computation waits for the others, and they for the computation, but not for each other
    for (const Submitted& s : r.submitted)
        if (s.kind == wait) CHECK((s.queue == 0) != (r.submitted[s.index].queue == 0));
    for (const size_t i : gathers) CHECK(r.collectives[r.submitted[i].index].axes == axis::dp_shard);
    // the loss, and the norm
    CHECK(operations(r, Purpose::gradients, "all_reduce").size() == 1);
    CHECK(operations(r, Purpose::others).size() == 1);
}

TEST_CASE("a recording waits for the gather of the unit in use while later ones are under way") {
    EngineOptions options = options_of({.dp_shard = 4}, 1);
    options.gather.prefetch = 2;
    const Recording r = record_step(tiny_config(4), options);
    const std::vector<int64_t> ahead = ahead_of_waits(r, operations(r, Purpose::weights));
    // embedding, four blocks, head; the backward of the second block and of the first
    CHECK(ahead == std::vector<int64_t>{0, 1, 1, 1, 1, 0, 1, 0});
}

TEST_CASE("graphs end with all queues") {
    EngineOptions options = options_of({.dp_shard = 4}, 2);
    const Recording apart = record_step(tiny_config(3), options);
    options.graphs = true;
    const Recording graphs = record_step(tiny_config(3), options);
    // when the second local batch begins: for the last sum, and for the embedding, gathered ahead
    CHECK(count(graphs, collective) == count(apart, collective));
    const auto waits_for_last_sum = [](const Recording& r) {
        const auto sums = operations(r, Purpose::gradients, "reduce_scatter");
        const size_t last = sums[sums.size() / 2 - 1];
        // for the additions that follow it in its queue
        const auto wait_for_it = std::ranges::find_if(r.submitted, [&](const Submitted& s) {
            return s.kind == wait && s.queue == 0 && s.index >= last &&
                   r.submitted[s.index].queue == r.submitted[last].queue;
        });
        return std::count_if(r.submitted.begin() + int64_t(last), wait_for_it,
                             [](const Submitted& s) { return s.kind == kernel && s.queue == 0; });
    };
    CHECK(waits_for_last_sum(graphs) == 0);
    CHECK(waits_for_last_sum(apart) > 10);
}

TEST_CASE("a recording has the exchanges of tensor parallelism, on a queue of their own if they overlap") {
    EngineOptions options = options_of({.tp = 2}, 1);
    const Recording r = record_step(tiny_config(3), options);
    CHECK(!operations(r, Purpose::tensor, "all_gather").empty());
    CHECK(!operations(r, Purpose::tensor, "reduce_scatter").empty());
    CHECK(queues_of(r, operations(r, Purpose::tensor)) == QueueNumbers{0});
    CHECK(operations(r, Purpose::weights).empty());
    options.exchanges.overlap_tokens = true;
    const Recording overlapped = record_step(tiny_config(3), options);
    const auto copies = operations(overlapped, Purpose::tensor, "peer_copy");
    REQUIRE(queues_of(overlapped, copies).size() == 1);
    CHECK(queues_of(overlapped, copies) != QueueNumbers{0});
    options.exchanges.copy_tokens = false;
    const Recording sent = record_step(tiny_config(3), options);
    CHECK(operations(sent, Purpose::tensor, "peer_copy").empty());
    CHECK(operations(sent, Purpose::tensor, "send_receive").size() == copies.size());
    // one product of all rows for each gradient of a weight, as without overlap
    const auto weight_gradients = [](const Recording& recording) {
        return std::ranges::count_if(recording.submitted, [&](const Submitted& s) {
            return s.kind == kernel && recording.calls[s.index].variant == "tn";
        });
    };
    CHECK(weight_gradients(r) > 0);
    CHECK(weight_gradients(overlapped) == weight_gradients(r));
}

TEST_CASE("a recording has the sums of replicas") {
    const Recording replicas = record_step(tiny_config(3), options_of({.dp_replicate = 2}, 2));
    const auto sums = operations(replicas, Purpose::gradients);
    // once a step, in float32; rows are padded
    CHECK(bytes_of(replicas, sums) == Approx(4.0 * double(tiny_config(3).parameters())).epsilon(0.01));
}

TEST_CASE("a recording has the casts of gathers, and those of sums of gradients in bfloat16 only") {
    DecoderConfig model = tiny_config(3);
    model.dim = model.vocab = model.feed_forward.hidden = 64;
    const auto recorded = [&](const MeshShape& mesh, bool in_bf16) {
        EngineOptions options = options_of(mesh, 1);
        options.types.gradients_in_bf16 = in_bf16;
        return record_step(model, options);
    };
    const auto moved = [](const Recording& r, const char* kernel) {
        return bytes_beside(r, kernel, Purpose::gradients);
    };
    for (const MeshShape& mesh : {MeshShape{.dp_shard = 2}, MeshShape{.dp_replicate = 2, .dp_shard = 2},
                                  MeshShape{.dp_replicate = 2}}) {
        CAPTURE(mesh.dp_replicate, mesh.dp_shard);
        const Recording plain = recorded(mesh, false), rounded = recorded(mesh, true);
        CHECK(moved(plain, "cast") == 0);
        const double sums = bytes_of(plain, operations(plain, Purpose::gradients, "reduce_scatter"));
        if (mesh.dp_shard == 1) {
            // 2 bytes of each element of a matrix are read and 4 written before the sum, and after it 4 and 2
            const double embedding = 4.0 * double(model.vocab * model.dim),
                         all = bytes_of(plain, operations(plain, Purpose::gradients)) - embedding;
            CHECK(moved(rounded, "cast") == Approx(12.0 / 4 * all).epsilon(0.05));
            CHECK(moved(rounded, "add") == 0);
            continue;
        }
        // 2 bytes are read and 4 written; the float32 embedding and norms are not cast, nor are the shards
        // that replicas sum. Each rank adds its half of the sums: 2 operands are read and 1 is written
        const double embedding = 4.0 * double(model.vocab * model.dim);
        CHECK(moved(rounded, "cast") == Approx(6.0 / 4 * (sums - embedding)).epsilon(0.05));
        CHECK(moved(rounded, "add") == Approx(3 * sums / 2).epsilon(0.05));
        CHECK(moved(plain, "add") == moved(rounded, "add"));
        // all matrices of a block or the head are one more operation, and become float32 in another queue
        const auto of_plain = operations(plain, Purpose::gradients, "reduce_scatter"),
                   of_rounded = operations(rounded, Purpose::gradients, "reduce_scatter");
        CHECK(of_rounded.size() == of_plain.size() + 4);
        const auto converts = [&](const Submitted& s) {
            return s.kind == kernel && s.purpose == Purpose::gradients &&
                   rounded.calls[s.index].kernel == "cast";
        };
        for (const Submitted& s : rounded.submitted)
            if (converts(s)) CHECK(s.queue != rounded.submitted[of_rounded[0]].queue);
        // weights in bfloat16 are read and written
        const double gathers = bytes_of(plain, operations(plain, Purpose::weights));
        CHECK(bytes_beside(plain, "cast", Purpose::weights) == Approx(2 * gathers / 2).epsilon(0.05));
    }
}

TEST_CASE("a piece of gradients in bfloat16 is converted while the one before is summed") {
    for (const MeshShape& mesh : {MeshShape{.dp_shard = 2}, MeshShape{.dp_replicate = 2}}) {
        EngineOptions options = options_of(mesh, 1);
        options.types.gradients_in_bf16 = true;
        options.gather.most_summed = 200;
        const Recording r = record_step(tiny_config(3), options);
        const auto is_conversion = [&](const Submitted& s) {
            return s.kind == kernel && s.queue != 0 && r.calls[s.index].kernel == "cast" &&
                   r.calls[s.index].type == Dtype::f32;
        };
        const auto first = std::ranges::find_if(r.submitted, is_conversion);
        REQUIRE(first != r.submitted.end());
        const uint32_t conversions = first->queue;
        // how many sums were under way when a conversion waited for an earlier one
        std::map<int64_t, int> waits;
        for (size_t i = 0; i < r.submitted.size(); ++i) {
            const Submitted& s = r.submitted[i];
            if (s.kind != wait || s.queue != conversions) continue;
            ++waits[std::ranges::count(r.submitted.begin() + s.index + 1, r.submitted.begin() + int64_t(i),
                                       collective, &Submitted::kind)];
        }
        // none for the first piece of each unit
        CHECK(waits.size() == 2);
        CHECK(waits[1] > 5 * waits[0]);
    }
}

TEST_CASE("a recording has the rows that go to experts of other ranks, beside the computation") {
    DecoderConfig model = tiny_config(3);
    model.moe = {.experts = 8, .top_k = 2, .hidden = 8, .normalise = true};
    EngineOptions options = options_of({.dp_shard = 4, .ep = 4}, 1);
    options.graphs = true;
    const Recording r = record_step(model, options);
    const auto rows = operations(r, Purpose::experts, "all_to_all");
    // there and back, in forward and backward, and choices with their weights before the rows
    CHECK(rows.size() == 3 * 5);
    REQUIRE(queues_of(r, rows).size() == 1);
    CHECK(queues_of(r, rows) != QueueNumbers{0});
    // in a forward, rows are on their way while their choices are waited for
    CHECK(ahead_of_waits(r, rows) == std::vector<int64_t>{1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0});
    const uint32_t weights_of_experts = axis::efsdp;
    CHECK(std::ranges::none_of(r.collectives,
                               [&](const Collective& c) { return c.axes == weights_of_experts; }));
    // graphs send a block to each rank, twice as large as the mean: 2 of 8 experts are among the 6 of other
    // ranks in 15 of 28 choices. With a row go 2 experts and weights, and back come 2 gradients (float32).
    const double tokens = 2 * 32, in_blocks = 4 * std::ceil(2 * tokens * 13 / 28),
                 row = 2 * double(model.dim);
    CHECK(bytes_of(r, rows) == 3 * in_blocks * (4 * row + 2 * (4 + 4) + 2 * 4));
    CHECK(calls_of(r, "rows_in_blocks") == 3);
}

TEST_CASE("a recording has the exchanges of experts' rows that the step has: blocks with graphs, or rounds") {
    DecoderConfig model = tiny_config(3);
    model.moe = {.experts = 8, .top_k = 2, .hidden = 8, .normalise = true};
    EngineOptions options = options_of({.dp_shard = 4, .ep = 4}, 2);
    struct Exchanged {
        size_t rows;
        int64_t blocks, products;
        bool operator==(const Exchanged&) const = default;
    };
    const auto exchanged = [&] {
        const Recording r = record_step(model, options);
        return Exchanged{operations(r, Purpose::experts, "all_to_all").size(), calls_of(r, "rows_in_blocks"),
                         calls_of(r, "grouped_gemm")};
    };
    const Exchanged in_rounds = exchanged();
    options.graphs = true;
    const Exchanged in_blocks = exchanged();
    // a second round brings its choices and rows again for the backward
    CHECK(in_blocks.rows == 2 * 3 * 5);
    CHECK(in_rounds.rows == 2 * 3 * (5 + 7));
    CHECK(in_blocks.blocks == 2 * 3);
    CHECK(in_rounds.blocks == 0);
    CHECK(in_rounds.products > in_blocks.products);
    options.expert_blocks = false;
    CHECK(exchanged() == in_rounds);
    options.graphs = false;
    options.expert_blocks = true;
    CHECK(exchanged() == in_blocks);
    // there are none on one rank
    options.mesh = {.dp_shard = 4};
    CHECK(exchanged().blocks == 0);
}

TEST_CASE("a recording has the actions of a pipeline rank, and messages on a queue of their own") {
    const DecoderConfig model = tiny_config(4);
    EngineOptions options = options_of({.pp = 2}, 1);
    options.training.sequences = 4;
    options.pipeline.timetable = find_schedule("1F1B")->timetable({.ranks = 2, .microbatches = 4});
    options.pipeline.parts = ModelConfig(model)->split(2, {});
    const Recording r = record_step(model, options);
    CHECK(count(r, begin_action) == 4 + 4);
    CHECK(count(r, end_action) == 4 + 4);
    const auto messages = operations(r, Purpose::stages);
    REQUIRE(queues_of(r, messages).size() == 1);
    CHECK(queues_of(r, messages) != QueueNumbers{0});
    // activations leave and gradients arrive; some of them begin together
    CHECK(messages.size() > 4);
    CHECK(messages.size() <= 8);
    const double flow = 32 * double(model.dim) * 2;
    for (const size_t i : messages) CHECK(r.collectives[r.submitted[i].index].bytes == flow);
}

TEST_CASE("a recording has the keys and values of divided sequences, gathered or passed on") {
    EngineOptions options = options_of({.cp = 2}, 1);
    const Recording gathered = record_step(tiny_config(3), options);
    const auto keys = operations(gathered, Purpose::context);
    CHECK(!keys.empty());
    CHECK(queues_of(gathered, keys) == QueueNumbers{0});
    options.exchanges.context.exchange = ContextExchange::ring;
    const Recording ring = record_step(tiny_config(3), options);
    const auto passed = operations(ring, Purpose::context, "send_receive");
    // forward: keys once; backward: keys once, gradients twice
    CHECK(passed.size() == 3 * (1 + 1 + 2));
    REQUIRE(queues_of(ring, passed).size() == 1);
    CHECK(queues_of(ring, passed) != QueueNumbers{0});
    // results are merged in float32, but products are those of bfloat16
    for (const Call& call : ring.calls)
        if (call.kernel == "attention" || call.kernel == "attention_backward")
            CHECK(call.type == Dtype::bf16);
}

TEST_CASE("offloaded state is not recorded") {
    EngineOptions options = options_of({}, 1);
    options.types.offload = true;
    REQUIRE_THROWS_WITH(record_step(tiny_config(3), options), Catch::Contains("offloaded state"));
}

TEST_CASE("halves of a local batch in turn: gradients are summed as often as those of a whole one") {
    DecoderConfig model = tiny_config();
    set_experts(model, 1);
    EngineOptions whole = options_of({.dp_shard = 2, .ep = 2}, 2), halves = whole;
    halves.pipeline.timetable = two_halves();
    halves.overlap_pairs = true;
    const auto sums = [&](const EngineOptions& options) {
        return operations(record_step(model, options), Purpose::gradients, "reduce_scatter").size();
    };
    CHECK(sums(whole) > 0);
    CHECK(sums(halves) == sums(whole));
    const auto rows = [&](const EngineOptions& options) {
        return operations(record_step(model, options), Purpose::experts, "all_to_all").size();
    };
    CHECK(rows(halves) == 2 * rows(whole));
}
