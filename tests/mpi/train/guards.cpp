// SPDX-License-Identifier: Apache-2.0
// On any mesh: either all ranks refuse a step or none does. One flipped bit on one rank is found if another
// rank has the same weights, and the run can go back.
#include "coeus/guards/guards.hpp"

#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// Cases with `ranks` ranks; meshes with stages have tied tables.
std::vector<MeshCase> cases(int ranks) {
    std::vector<MeshCase> all;
    for (const MeshShape& shape :
         meshes_of(ranks, {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp})) {
        if (ranks > 4 && std::min(shape.dp_replicate, std::max(shape.tp, shape.pp)) < 2) continue;
        if (shape.tp > 2 || shape.cp > 2) continue;  // too few heads
        MeshCase c = {.mesh = shape, .model = tiny_config(std::max(2, 2 * shape.pp), shape.pp > 1)};
        if (shape.pp > 1) {
            c.pipeline = pipeline_of("1F1B", shape.pp, shape.pp, 1, c.model);
            c.sequences = shape.pp;
            c.gather.gradients = Keep::all;
        }
        all.push_back(c);
    }
    // experts on several ranks
    for (const MeshShape& shape : {MeshShape{.dp_shard = 2, .ep = 2},
                                   {.dp_replicate = 2, .dp_shard = 2, .ep = 2},
                                   {.dp_shard = 2, .tp = 2, .ep = 4},
                                   {.pp = 2, .dp_shard = 2, .ep = 2},
                                   {.dp_replicate = 2, .dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}}) {
        if (shape.ranks() != ranks) continue;
        all.push_back({.mesh = shape, .model = tiny_config(2)});
        set_experts(all.back().model, 3);
        if (shape.pp > 1) set_schedule(all.back(), *find_schedule("DualPipeV"));
    }
    int number = ranks;
    for (MeshCase& c : all) {
        c.guarded = true;
        set_recipe(c, number++ % recipe_choices);
    }
    if (ranks > 4) return all;
    for (const MeshShape& shape : {MeshShape{.dp_replicate = ranks}, {.dp_shard = ranks}})
        all.push_back({.mesh = shape,
                       .model = tiny_config(2),
                       .types = {.compute = Dtype::bf16, .gradients_in_bf16 = true},
                       .guarded = true});
    return all;
}

std::map<std::string, std::vector<double>> state(const MeshRun& run) {
    auto all = run.whole(&Storage::master);
    for (auto& [name, values] : run.whole(exp_avg_sq)) all["squares of " + name] = values;
    return all;
}

// Flips the lowest bit of this rank's first element of a parameter.
void flip(MeshRun& run, const std::string& name, const StorageTensor& kind) {
    for (const Storage& storage : run.engine.model().parameters().storages())
        for (const OwnedRun& run_of : storage.runs())
            if (run_of.param->name == name)
                *static_cast<unsigned char*>(Storage::rows_of(run_of, kind(storage)).data) ^= 1;
}

const char* weight_of_layer(const MeshCase& c) {
    return c.model.moe.experts > 0 ? "layers.1.moe.experts.mlp2_weight" : "layers.1.attention.wq.weight";
}

// Makes an element of this rank's gradients not a number, of an expert if there are any. The rank counts this
// element in the norm.
void spoil(MeshRun& run) {
    const char* part_of_name = decoder_of(run.engine.model()).config().moe.experts > 0 ? ".experts." : ".wo.";
    for (const Storage& storage : run.engine.model().parameters().storages())
        for (const OwnedRun& part : storage.runs())
            if (storage.gradient && part.param->name.find(part_of_name) != std::string::npos)
                return set_element(Storage::rows_of(part, storage.gradient), 0, NAN);
}

// World ranks that own the same elements of a parameter as the last rank, itself included.
std::vector<int> holders_beside_last(const Communicator& world, const MeshRun& run, const std::string& name) {
    std::array<int64_t, 4> own = {-1, -1, -1, -1};
    for (const Storage& storage : run.engine.model().parameters().storages())
        for (const OwnedRun& part : storage.runs())
            if (part.param->name == name)
                own = {part.first_row, part.first_col, part.rows, part.param->local.cols};
    std::vector<int64_t> all(4 * size_t(world.size()));
    world.all_gather(Tensor(all.data(), Dtype::i64, {int64_t(all.size())}),
                     Tensor(own.data(), Dtype::i64, {4}));
    std::vector<int> ranks;
    const auto of = [&](size_t rank) { return std::vector<int64_t>(&all[4 * rank], &all[4 * rank] + 4); };
    const size_t last = size_t(world.size()) - 1;
    for (size_t rank = 0; rank <= last; ++rank)
        if (of(rank) == of(last) && all[4 * last] >= 0) ranks.push_back(int(rank));
    return ranks;
}

}  // namespace

TEST_CASE("guards: all ranks refuse a step beyond its limits, and nothing changes") {
    const Communicator world = Communicator::world("world");
    for (const MeshCase& c : cases(world.size())) {
        CAPTURE(c.name());
        const Mesh mesh(world.split(0, "world"), c.mesh);
        MeshRun run(c, mesh);
        TestBatch first = batch_of_step(c, 1), second = batch_of_step(c, 2);
        CHECK(run.step(1, first));
        const auto before = state(run);
        CHECK_FALSE(run.step(2, second, {.loss = 1e-3}));
        CHECK(run.engine.scalars().refusals == (c.mesh.ranks()));
        const double loss = run.engine.scalars().loss, norm = run.engine.scalars().grad_norm;
        CHECK_FALSE(run.step(2, second, {.loss = std::nextafter(loss, 0)}));
        CHECK_FALSE(run.step(2, second, {.norm = std::nextafter(norm, 0)}));
        // only one rank sees a spike, as if differently ordered sums fell on both sides of a limit
        const bool last = world.rank() == world.size() - 1;
        CHECK_FALSE(run.step(2, second, {.loss = last ? 1e-3 : loss}));
        CHECK(run.engine.scalars().refusals == 1);
        CHECK(state(run) == before);
        // one gradient of one rank is not a number
        run.compute_gradients(2, second);
        if (last) spoil(run);
        CHECK_FALSE(run.engine.update().taken);
        CHECK(run.engine.scalars().refusals > 0);
        CHECK(state(run) == before);
        CHECK(run.step(2, second, {.loss = loss, .norm = norm}));
        CHECK(run.engine.scalars().refusals == 0);
        CHECK(state(run) != before);
    }
}

TEST_CASE("guards: replicas that differ in one bit are named, and the run goes back") {
    const Communicator world = Communicator::world("world");
    const bool last = world.rank() == world.size() - 1;
    std::vector<std::string> hosts;
    for (int rank = 0; rank < world.size(); ++rank) hosts.push_back(fmt::format("node{}", rank));
    Config::Guards options;
    options.compare_replicas_interval = 2;
    options.on_mismatch = "rewind";
    for (const MeshCase& c : cases(world.size())) {
        CAPTURE(c.name());
        const Mesh mesh(world.split(0, "world"), c.mesh);
        MeshRun run(c, mesh);
        const ReplicaComparison replicas(run.engine.model().parameters(), mesh, hosts);
        // replicas of what a rank owns, and of what it has whole with tensor parallelism and in a pipeline
        CHECK(replicas.has_replicas() ==
              (c.mesh.dp_replicate * c.mesh.tp * (c.model.tied ? c.mesh.pp : 1) > 1));
        TestBatch batch = batch_of_step(c, 1);
        CHECK(run.step(1, batch));
        CHECK(replicas.compare() == "");
        for (const char* name :
             {"layers.0.attention.wq.weight", weight_of_layer(c), "norm.weight", "tok_embeddings.weight"})
            for (const auto& [what, kind] : {std::pair("weights", StorageTensor(&Storage::master)),
                                             std::pair("moments exp_avg_sq", StorageTensor(exp_avg_sq)),
                                             std::pair("gradients", StorageTensor(&Storage::gradient))}) {
                const std::vector<int> holders = holders_beside_last(world, run, name);
                if (last) flip(run, name, kind);
                const std::string found = replicas.compare();
                CAPTURE(name, what, found, holders);
                if (holders.size() < 2) {
                    CHECK(found == "");
                } else {
                    CHECK_THAT(found, Contains(fmt::format("the {} of {} of rank", what, name)));
                    CHECK_THAT(found, Contains(fmt::format("{0} (host node{0})", world.size() - 1)));
                    const bool two = holders.size() == 2;
                    CHECK(count_of("(host ", found) == (two ? 2 : 1));
                    CHECK(count_of("no majority", found) == (two ? 1 : 0));
                }
                if (last) flip(run, name, kind);
            }
        CHECK(replicas.compare() == "");
        Guards guards(options, run.engine, hosts);
        guards.begin({.step = 1, .sample = 8, .tokens_seen = 64});
        const auto before = state(run);
        const char* victim = c.mesh.dp_replicate > 1 ? weight_of_layer(c) : "norm.weight";
        const bool is_found = holders_beside_last(world, run, victim).size() > 1;
        for (const bool again : {false, true}) {
            CHECK(run.step(2, batch));
            if (last) flip(run, victim, &Storage::master);
            RunPlace place = {.step = 2, .sample = 16, .tokens_seen = 128};
            if (!is_found) {
                CHECK(guards.look_after(place, false) == "");
            } else if (again) {
                CHECK_THROWS_WITH(guards.look_after(place, false), Contains("They differed before"));
            } else {
                CHECK_THAT(guards.look_after(place, false), Contains("\"event\":\"replicas_differ\""));
                CHECK(place.step == 1);
                CHECK(place.sample == 8);
                CHECK(place.tokens_seen == 64);
                CHECK(state(run) == before);
                CHECK(replicas.compare() == "");
            }
        }
        options.on_mismatch = "stop";
        if (is_found) {
            RunPlace place = {.step = 3};
            CHECK(Guards(options, run.engine, hosts).look_after(place, false) == "");  // not due
            CHECK_THROWS_AS(Guards(options, run.engine, hosts).look_after(place, true), CollectiveError);
        }
        options.on_mismatch = "rewind";
    }
}

TEST_CASE("guards: after a return to a snapshot the same steps give the same bits") {
    const Communicator world = Communicator::world("world");
    for (MeshCase c : cases(world.size())) {
        c.types.master = Dtype::f32;
        c.types.compute = Dtype::bf16;
        CAPTURE(c.name());
        const Mesh mesh(world.split(0, "world"), c.mesh);
        MeshRun run(c, mesh);
        CHECK(run.engine.plan().bytes(term::snapshot) > 0);
        StateSnapshot snapshot(run.engine.model().parameters(), run.engine.exec());
        TestBatch batch = batch_of_step(c, 1);
        CHECK(run.step(1, batch));
        snapshot.take();
        std::vector<std::map<std::string, std::vector<double>>> states;
        std::vector<double> losses;
        for (int time = 0; time < 2; ++time) {
            for (int64_t step = 2; step <= 3; ++step) CHECK(run.step(step, batch));
            losses.push_back(run.engine.scalars().loss);
            losses.push_back(run.evaluate(batch));
            states.push_back(state(run));
            snapshot.restore();
            run.engine.renew_weights();
        }
        CHECK(losses[0] == losses[2]);
        CHECK(losses[1] == losses[3]);
        CHECK(states[0] == states[1]);
    }
}
