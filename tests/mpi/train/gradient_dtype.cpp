// SPDX-License-Identifier: Apache-2.0
// Gradients in bfloat16 (training.gradient_dtype) are those in float32 but for a rounding of each product
// that is added. The models are computed in bfloat16, so each case is compared with gradients in float32 on
// the same mesh.
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"

#include <cmath>
#include <cstring>

using namespace coeus;
using namespace coeus::test;

namespace {

using Arrays = std::map<std::string, std::vector<double>>;

MeshCase case_of(const MeshShape& mesh) {
    MeshCase c = {.mesh = mesh, .model = tiny_config(), .types = {Dtype::f32, Dtype::bf16}};
    c.model.grouped().heads = 8;
    c.model.grouped().kv_heads = 4;
    c.model.grouped().head_dim = 4;
    c.seq_len = 4 * mesh.cp * mesh.tp;
    c.gather.most_summed = 200;  // several pieces of each matrix
    return c;
}

/// Two runs of a case: with gradients in bfloat16, and in float32.
struct Pair {
    Pair(MeshCase c, const Communicator& world) : mesh(world.split(0, "world"), c.mesh) {
        c.types.gradients_in_bf16 = false;
        exact.emplace(c, mesh);
        c.types.gradients_in_bf16 = true;
        rounded.emplace(c, mesh);
    }
    Mesh mesh;
    std::optional<MeshRun> exact, rounded;
};

/// The gradients of a batch by name. The loss is divided by `labels`, whatever the batch has.
Arrays gradients_of(MeshRun& run, const MeshCase& c, const TestBatch& batch, int64_t labels) {
    const Mesh& mesh = run.engine.mesh();
    const int64_t first = mesh.rank(axis::dp) * (batch.sequences / mesh.size(axis::dp));
    run.poison_gradients();
    run.engine.compute_gradients(
        1, 1e-2, labels, [&](int64_t i) { return batch.local_batch(first + i * c.sequences, c.sequences); });
    return run.whole(&Storage::gradient);
}

/// The sum over the sequences of the magnitudes of what they add to the gradients.
Arrays magnitudes_of_parts(MeshRun& run, const MeshCase& c, const TestBatch& batch) {
    Arrays sums;
    for (int64_t sequence = 0; sequence < batch.sequences; ++sequence) {
        TestBatch one = batch;
        for (int64_t i = 0; i < one.sequences * one.seq_len; ++i)
            if (i / one.seq_len != sequence) one.labels[size_t(i)] = -100;
        for (const auto& [name, values] : gradients_of(run, c, one, batch.valid_labels())) {
            std::vector<double>& sum = sums[name];
            sum.resize(values.size());
            for (size_t i = 0; i < values.size(); ++i) sum[i] += std::abs(values[i]);
        }
    }
    return sums;
}

double rounded_to_bf16(double value) {
    const OwnedTensor one(Dtype::bf16, {1});
    set_element(one, 0, value);
    return element(one, 0);
}

/// The names of the parameters whose gradients are in bfloat16 before any sum over ranks.
std::vector<std::string> in_bf16(const MeshRun& run) {
    std::vector<std::string> names;
    for (const Storage* storage : run.engine.model().parameters().model())
        if (storage->g.dtype == Dtype::bf16)
            for (const Param& param : storage->params()) names.push_back(param.name);
    return names;
}

}  // namespace

TEST_CASE("gradient_dtype: the gradient of one local batch on one rank is that in float32, rounded once") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 1) return;
    for (int kind = 0; kind < std::max(attention_kinds, expert_kinds); ++kind) {
        MeshCase c = case_of({});
        set_attention(c.model, kind % attention_kinds);
        set_experts(c.model, kind % expert_kinds);
        c.model.tied = kind == 3;
        c.sequences = 3;
        if (kind == 0) c.seq_len = 700;  // several slabs of a product's depth
        if (kind == 4) c.types.master = Dtype::bf16;
        CAPTURE(c.name());
        Pair runs(c, world);
        const TestBatch batch = batch_of_step(c, 1);
        const Arrays exact = gradients_of(*runs.exact, c, batch, batch.valid_labels()),
                     rounded = gradients_of(*runs.rounded, c, batch, batch.valid_labels());
        CHECK(runs.rounded->engine.scalars().loss == runs.exact->engine.scalars().loss);
        const MemoryPlan &plan = runs.rounded->engine.plan(), &other = runs.exact->engine.plan();
        CHECK(plan.bytes(term::gradients) < 0.8 * double(other.bytes(term::gradients)));
        CHECK(plan.bytes(term::summed_gradients) == 0);
        const std::vector<std::string> names = in_bf16(*runs.rounded);
        CHECK(names.size() >= 10);
        CHECK(names.size() < exact.size());
        for (const auto& [name, values] : exact) {
            CAPTURE(name);
            std::vector<double> expected = values;
            if (std::ranges::find(names, name) != names.end())
                std::ranges::transform(expected, expected.begin(), rounded_to_bf16);
            CHECK(rounded.at(name) == expected);
        }
    }
}

TEST_CASE("gradient_dtype: each product that is added, and a sum over replicas, rounds the gradient once") {
    const Communicator world = Communicator::world("world");
    const int n = world.size();
    struct Layout {
        MeshShape mesh;
        int64_t local_batches = 1, sequences = 1;
        Keep gradients = Keep::neighbours;
        const char* schedule = nullptr;
        int roundings = 1;
    };
    std::vector<Layout> layouts;
    if (n == 1) layouts = {{.mesh = {}, .local_batches = 4, .sequences = 2, .roundings = 4}};
    if (n > 1 && n <= 4)
        layouts = {
            {.mesh = {.dp_shard = n}, .local_batches = 3},
            {.mesh = {.dp_shard = n}, .local_batches = 3, .gradients = Keep::all, .roundings = 3},
            {.mesh = {.dp_replicate = n}, .local_batches = 2, .roundings = 3},
            {.mesh = {.pp = n}, .local_batches = 2, .sequences = 4, .schedule = "1F1B", .roundings = 8}};
    for (const char* const schedule : {"Interleaved1F1B", "ZBVZeroBubble"})
        if (n == 2)
            layouts.push_back({.mesh = {.pp = n}, .sequences = 4, .schedule = schedule, .roundings = 4});
    if (n == 4) layouts.push_back({.mesh = {.dp_replicate = 2, .dp_shard = 2}, .local_batches = 2});
    for (const Layout& layout : layouts) {
        MeshCase c = case_of(layout.mesh);
        c.local_batches = layout.local_batches;
        c.sequences = layout.sequences;
        c.gather.gradients = layout.gradients;
        c.model.layers = 4;
        if (layout.schedule)
            c.pipeline =
                pipeline_of(layout.schedule, n, 4, std::string(layout.schedule) == "1F1B" ? 1 : 2, c.model);
        CAPTURE(c.name());
        Pair runs(c, world);
        const TestBatch batch = batch_of_step(c, 1);
        const Arrays parts = magnitudes_of_parts(*runs.exact, c, batch),
                     exact = gradients_of(*runs.exact, c, batch, batch.valid_labels()),
                     rounded = gradients_of(*runs.rounded, c, batch, batch.valid_labels());
        const double of_each = 0x1p-8 * (1 + 0x1p-6);  // of the sum so far, which was rounded itself
        int64_t differ = 0, few = 0;
        for (const auto& [name, values] : exact) {
            CAPTURE(name);
            double most = 0;
            for (size_t i = 0; i < values.size(); ++i) {
                const double error = std::abs(rounded.at(name)[i] - values[i]),
                             bound = (layout.roundings * of_each + 1e-6) * parts.at(name)[i] + 1e-30;
                most = std::isnan(error) ? 1e9 : std::max(most, error / bound);
                differ += error > 1e-5 * parts.at(name)[i];
                few += error > of_each * parts.at(name)[i] / 4;
            }
            CHECK(most <= 1);
        }
        CHECK(differ > 1000);
        CHECK(few > 0);
    }
}

TEST_CASE("gradient_dtype: on meshes that divide tokens, gradients are near those in float32") {
    const Communicator world = Communicator::world("world");
    const int n = world.size();
    if (n == 1 || n > 4) return;
    struct Layout {
        MeshShape mesh;
        std::vector<int> experts = {0, 1, 2};
        ContextExchange exchange = ContextExchange::all_gather;
        bool documents = false;
        int64_t depths = 0;  // of multi-token prediction
    };
    std::vector<Layout> layouts = {
        {{.tp = n}},
        {{.cp = n}},
        {{.cp = n}, {1}, ContextExchange::ring, true, 1},
        {{.cp = n}, {2}, ContextExchange::heads, true, 1},
        {{.dp_shard = n, .ep = n}, {1, 2}},
        {{.tp = n, .ep = n}, {1, 2}},
    };
    if (n == 4) layouts.insert(layouts.end(), {{{.dp_shard = 2, .tp = 2}}, {{.dp_replicate = 2, .cp = 2}}});
    for (const Layout& layout : layouts)
        for (const int experts : layout.experts) {
            MeshCase c = case_of(layout.mesh);
            c.document_mask = layout.documents;
            c.model.mtp.layers = layout.depths;
            c.exchanges.context.exchange = layout.exchange;
            c.exchanges.overlap_tokens = true;
            c.exchanges.expert_capacity = 0.5;  // several rounds
            set_experts(c.model, experts);
            c.model.moe.experts = round_up(c.model.moe.experts, 4 * std::max<int64_t>(1, c.model.moe.groups));
            CAPTURE(c.name());
            Pair runs(c, world);
            TestBatch batch = batch_of_step(c, 1);
            const Arrays exact = gradients_of(*runs.exact, c, batch, batch.valid_labels()),
                         rounded = gradients_of(*runs.rounded, c, batch, batch.valid_labels());
            CHECK(runs.rounded->evaluate(batch) == runs.exact->evaluate(batch));
            const std::vector<std::string> names = in_bf16(*runs.rounded);
            for (const auto& [name, values] : exact) {
                CAPTURE(name);
                const double error = normalised_error(rounded.at(name), values);
                if (std::ranges::find(names, name) == names.end())
                    CHECK(rounded.at(name) == values);
                else
                    CHECK((error > 1e-4 && error < 4 * 0x1p-8));
            }
        }
}

TEST_CASE("gradient_dtype: streams, what is kept, recomputation and validation do not change the bits") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    std::vector<MeshCase> cases;
    const MeshShape shards = {.dp_shard = 2}, replicas = {.dp_replicate = 2};
    for (const auto& [mesh, master] :
         {std::pair(shards, Dtype::f32), {replicas, Dtype::f32}, {replicas, Dtype::bf16}}) {
        MeshCase plain = case_of(mesh);
        plain.types.master = master;
        cases = std::vector<MeshCase>(8, plain);
        cases[1].streams = Stream::Mode::threaded;
        cases[1].gather.weights = Keep::all;
        cases[2].streams = Stream::Mode::deferred;
        cases[2].gather.prefetch = 2;
        cases[3].recompute.mode = RecomputeOptions::Mode::blocks;
        cases[4].recompute.mode = RecomputeOptions::Mode::operations;
        cases[4].gather.gradients = Keep::all;  // one local batch: summed once in any case
        cases[5].gather.most_summed = int64_t(1) << 24;
        cases[6].recompute = {.mode = RecomputeOptions::Mode::budget, .budget = 0.6};
        cases[7].validated = 1;  // after each step
        std::optional<std::array<Arrays, 2>> first;
        for (MeshCase& c : cases) {
            c.types.gradients_in_bf16 = true;
            CAPTURE(c.name(), c.gather.most_summed);
            Mesh on(world.split(0, "world"), c.mesh);
            MeshRun run(c, on);
            const MemoryPlan& plan = run.engine.plan();
            const int64_t sums = plan.bytes(term::summed_gradients) / size_of(Dtype::f32);
            CHECK((plan.bytes(term::unreduced_gradients) > 0) == (mesh.dp_shard > 1));
            if (c.gather.most_summed > 200)
                CHECK(sums > 208);  // those of the largest storage, or unit
            else
                CHECK(sums == (mesh.dp_shard > 1 ? 208 : 128));  // two pieces, with padding
            for (int64_t step = 1; step <= 3; ++step) {
                TestBatch batch = batch_of_step(c, uint64_t(step));
                run.poison_gradients();
                CHECK(run.step(step, batch));
                if (c.validated > 0) CHECK(std::isfinite(run.evaluate(batch)));
            }
            const std::array<Arrays, 2> result = {run.whole(&Storage::gradient), run.whole(&Storage::master)};
            if (!first) first = result;
            CHECK(result == *first);
        }
    }
}
