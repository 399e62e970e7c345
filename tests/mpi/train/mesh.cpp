// SPDX-License-Identifier: Apache-2.0
// Every mesh takes the same steps as one rank: loss, gradient norm, every gradient by name, every weight, in
// float64.
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/mesh_factors.hpp"
#include "support/one_rank.hpp"
#include "support/part.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <tuple>

using namespace coeus;
using namespace coeus::test;

namespace {

// No degree divides these sizes evenly, except where it must.
DecoderConfig model_for(const MeshShape& mesh, bool tied) {
    DecoderConfig model = tiny_config();
    model.grouped().heads = 8;
    model.grouped().kv_heads = mesh.tp * mesh.cp > 4 ? 8 : 4;
    model.grouped().head_dim = 4;
    model.feed_forward.hidden = 23;
    model.layers = 3;
    model.tied = tied;
    return model;
}

std::vector<MeshShape> all_meshes(int ranks) {
    return meshes_of(ranks, {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp});
}

// Every pair of choices on 2 and on 4 ranks. More ranks add the pairs that fewer do not allow, and each of
// their meshes.
std::vector<MeshVariant> part_of_meshes(int ranks) {
    std::vector<MeshShape> tested_elsewhere;
    for (int fewer = 4; fewer < ranks; fewer *= 2)
        for (const MeshShape& mesh : all_meshes(fewer)) tested_elsewhere.push_back(mesh);
    return pairwise_complete(all_meshes(ranks), tested_elsewhere);
}

}  // namespace

TEST_CASE("mesh: gathered weights in bfloat16 have the scales of the weights that one rank keeps") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2) return;
    MeshCase c = {.mesh = {.dp_shard = 2}, .model = tiny_config(), .types = {Dtype::f32, Dtype::bf16}};
    set_recipe(c, 1);
    CHECK(differs_from_one_rank(c, world, 1, {1e-6, 1e-2, 1e-1}) == "");
}

TEST_CASE("mesh: every factorisation equals one rank") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    // on 2 and 4 ranks it finds more bugs than any other case
    Part part("every factorisation", world.size(), {1, world.size() > 4 ? 4 : 1});
    // the search takes seconds, so one rank has it
    std::vector<MeshVariant> variants;
    if (world.rank() == 0) variants = part_of_meshes(world.size());
    for (const MeshVariant& variant : broadcast(world, all_meshes(world.size()), variants))
        if (part.takes_next()) all.add(variant.mesh_case());
    all.check();
}

TEST_CASE("mesh: wide feed-forward layers and experts, divided in pieces of 8 columns, equal one rank") {
    const Communicator world = Communicator::world("world");
    const MeshShape mesh = {.tp = world.size()};
    OneRankComparison all(world);
    const int64_t width = 128 * mesh.tp + 12;  // an equal part is not a multiple of 8
    for (const int experts : {0, 2, 3}) {
        CAPTURE(experts);
        MeshCase c = {.mesh = mesh, .model = model_for(mesh, false)};
        set_experts(c.model, experts);
        c.model.feed_forward.hidden = width;
        if (c.model.moe.experts > 0) c.model.moe.hidden = width;
        if (c.model.moe.shared_hidden > 0) c.model.moe.shared_hidden = width;
        const Decoder decoder(c.model, c.types, 1, ShardPlace{.tp = mesh.tp});
        int divided = 0;
        for (const Storage& storage : decoder.parameters().storages())
            for (const Param& param : storage.params())
                if (mesh.tp > 1 && param.shard.tp == Split::cols && param.shape.cols() == width) {
                    CHECK(param.local.cols % 8 == 0);
                    ++divided;
                }
        CHECK((divided > 0) == (mesh.tp > 1));
        all.add(c);
    }
    all.check();
}

TEST_CASE("soak: every factorisation with all combinations of the other choices equals one rank", "[.soak]") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    for (const MeshVariant& variant : full_product(all_meshes(world.size()))) all.add(variant.mesh_case());
    all.check();
}

TEST_CASE("16 ranks: meshes of four axes equal one rank", "[.sixteen]") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    Part part("meshes of 16 ranks", 16, {1, 2});
    size_t number = 0;
    for (const MeshShape& mesh : all_meshes(16)) {
        if (std::max({mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp}) > 2) continue;
        const std::vector<MeshVariant> variants = full_product({mesh});
        ++number;
        if (part.takes_next()) all.add(variants[number * 97 % variants.size()].mesh_case(), 2);
    }
    all.check();
    CHECK(number == 5);
}

TEST_CASE("mesh: a mesh too wide for grouped heads has no case twice") {
    const std::vector<MeshVariant> all = full_product({{.tp = 8}});
    std::set<std::string> names;
    for (const MeshVariant& variant : all) names.insert(variant.mesh_case().name());
    CHECK(all.size() == 64);
    CHECK(names.size() == all.size());
}

TEST_CASE("mesh: every pair of choices occurs in some case, and the full product has each case once") {
    if (Communicator::world("world").size() > 1) return;
    for (const int ranks : {1, 2, 4}) {
        const std::vector<MeshShape> meshes = all_meshes(ranks);
        const std::vector<MeshVariant> part = part_of_meshes(ranks), all = full_product(meshes);
        // 2^5 x 4 choices, times 7 with a pipeline axis, times 3 with a context axis
        size_t product = 0;
        for (const MeshShape& mesh : meshes)
            product += size_t(128 * (mesh.pp > 1 ? 7 : 1) * (mesh.cp > 1 ? 3 : 1));
        CHECK(all.size() == product);
        CHECK(part.size() < 150);
        // each pair of choices of the full product occurs in the part
        const auto all_pairs_of = [](const std::vector<MeshVariant>& variants) {
            std::set<ChoicePair> pairs;
            for (const MeshVariant& v : variants)
                for (const ChoicePair& pair : pairs_of(v)) pairs.insert(pair);
            return pairs;
        };
        CHECK(std::ranges::includes(all_pairs_of(part), all_pairs_of(all)));
        // each schedule with each capacity, on ranks that divide experts
        std::set<std::pair<std::string, double>> divided;
        for (const MeshVariant& v : part)
            if (const MeshCase c = v.mesh_case(); c.mesh.pp > 1 && c.mesh.ep > 1 && c.model.moe.experts > 0)
                divided.emplace(c.pipeline.timetable.name, c.exchanges.expert_capacity);
        CHECK(divided.size() == (ranks == 4 ? 3 * schedules().size() : 0));
        // latent attention has no grouped heads: that choice has no effect there
        std::set<std::string> names;
        size_t named = 0;
        for (const MeshVariant& v : all)
            if (const MeshCase c = v.mesh_case(); !c.model.is_latent()) {
                names.insert(c.name());
                ++named;
            }
        if (ranks < 4) CHECK(names.size() == named);
    }
    std::set<std::string> meshes;
    for (const MeshVariant& v : part_of_meshes(8)) meshes.insert(v.mesh.text());
    CHECK(meshes.size() == all_meshes(8).size());
}

TEST_CASE("part: one of every few successive cases, the same on all ranks, by list and seed") {
    const Communicator world = Communicator::world("world");
    struct List {
        const char *name, *value;
        int shares;  // of a part of one of 3 in check-all, one of 6 in the short list
    };
    for (const List& list : {List{"COEUS_EVERY_CASE", "1", 1}, List{"COEUS_CHECK_ALL", "1", 3},
                             List{"COEUS_PARTS", "2", 12}, List{"COEUS_PARTS", "1", 6}}) {
        // those that the tests were started with do not count
        const EnvironmentVariable every("COEUS_EVERY_CASE", ""), all("COEUS_CHECK_ALL", ""),
            parts("COEUS_PARTS", ""), of_the_list(list.name, list.value);
        const auto taken = [](const char* name, int ranks, int number, const char* seed,
                              OneOf one_of = {3, 6}) {
            const EnvironmentVariable with_seed("COEUS_PART_SEED", seed);
            Part part(name, ranks, one_of, number);
            std::vector<bool> cases;
            for (int i = 0; i < 120; ++i) cases.push_back(part.takes_next());
            return cases;
        };
        const std::vector<bool> some = taken("one", 4, 0, "0");
        CAPTURE(list.name, list.value);
        for (int first = 0; first < 120; first += list.shares)
            CHECK(std::count(some.begin() + first, some.begin() + first + list.shares, true) == 1);
        // numbers divide the cases, and so do seeds
        std::vector<int> by_number(120, 0), by_seed(120, 0), left(120, 0);
        for (int share = 0; share < list.shares; ++share) {
            const std::vector<bool> numbered = taken("one", 4, share, "0"),
                                    seeded = taken("one", 4, 0, std::to_string(20000 + share).c_str());
            for (size_t i = 0; i < 120; ++i) by_number[i] += numbered[i], by_seed[i] += seeded[i];
        }
        CHECK(by_number == std::vector<int>(120, 1));
        CHECK(by_seed == std::vector<int>(120, 1));
        CHECK((taken("another", 4, 0, "0") != some) == (list.shares > 1));
        CHECK((taken("one", 8, 0, "0") != some) == (list.shares > 1));
        CHECK(taken("whole", 4, 0, "5", {1, 1}) == std::vector<bool>(120, true));
        int64_t places = 0;
        for (size_t i = 0; i < 120; ++i) places = (2 * places + some[i]) % 1000003;
        CHECK(world.all_reduce(places, Reduce::max) == places);
    }
}

TEST_CASE("mesh: Muon takes the steps of one rank on every mesh") {
    const Communicator world = Communicator::world("world");
    const char* const adjustments[] = {"original", "match_rms_adamw", "spectral_unclamped"};
    OneRankComparison all(world);
    Part part("Muon on every mesh", world.size(), one_of_repeated(world.size()));
    size_t number = 0;
    for (const MeshShape& mesh : all_meshes(world.size())) {
        ++number;
        if (!part.takes_next()) continue;
        MeshCase c = {.mesh = mesh, .model = model_for(mesh, number % 2 == 0)};
        c.seq_len = 4 * mesh.cp * mesh.tp;
        if (mesh.pp > 1) set_schedule(c, *find_schedule("Interleaved1F1B"));
        c.optimizer.name = "Muon";
        c.optimizer.nesterov = number % 3 != 0;
        c.optimizer.adjust_lr_fn = adjustments[number % 3];
        all.add(c, 3, {1e-11, 1e-11, 1e-11});
    }
    all.check();
}

TEST_CASE("mesh: a tied table with accumulation, whatever is kept gathered and whenever it is summed") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    Part part("a tied table with accumulation", world.size(), one_of_repeated(world.size()));
    for (const MeshShape& mesh : meshes_of(world.size(), {axis::dp_replicate, axis::dp_shard}))
        for (const Keep keep : {Keep::neighbours, Keep::all})
            for (const auto streams : {Stream::Mode::threaded, Stream::Mode::eager, Stream::Mode::deferred}) {
                MeshCase c = {.mesh = mesh, .model = model_for(mesh, true), .local_batches = 2, .seq_len = 6};
                c.gather = {.weights = keep, .gradients = keep};
                c.streams = streams;
                if (part.takes_next()) all.add(c);
            }
    all.check();
}

TEST_CASE("mesh: tensor-parallel ranks with uneven parts run the same operations in the same order") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2 && world.size() != 4) return;
    const MeshShape mesh = {.tp = world.size()};
    OneRankComparison all(world);
    // the first rank's part of the logits is so wide that its chunks are smaller than the last rank's
    MeshCase chunks = {.mesh = mesh, .model = model_for(mesh, false), .seq_len = 640};
    chunks.model.vocab = world.size() * 3277 - 1;
    chunks.model.layers = 1;
    all.add(chunks, 1);
    // the first rank's frame is larger than the last rank's
    for (const double budget : {0.3, 0.404, 0.41, 0.416, 0.5}) {
        MeshCase uneven = {.mesh = mesh, .model = model_for(mesh, false), .seq_len = 16};
        uneven.model.layers = 8;
        uneven.model.feed_forward.hidden = 9;
        uneven.recompute = {.mode = RecomputeOptions::Mode::budget, .budget = budget};
        all.add(uneven, 1);
    }
    all.check();
}

TEST_CASE("mesh: a converted output layer has the scales of one rank in each of several chunks") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 4) return;
    size_t number = 0;
    const int one_of = world.size() > 1 ? 3 : 1;
    Part part("converted output layer", world.size(), {one_of, world.size() > 2 ? 9 : one_of});
    OneRankComparison all(world);
    for (const MeshShape& mesh : meshes_of(world.size(), {axis::dp_replicate, axis::cp, axis::tp}))
        for (const Recipe recipe :
             {Recipe::tensorwise, Recipe::rowwise, Recipe::rowwise_with_gw_hp, Recipe::mx_floor}) {
            ++number;
            if (!part.takes_next()) continue;
            MeshCase c = {.mesh = mesh, .model = model_for(mesh, false)};
            c.model.dim = 32;
            c.model.vocab = 384;
            c.model.layers = 1;
            // two chunks of tokens that share scales, and one of others
            c.sequences = number % 2 == 0 ? 1 : 3;
            c.seq_len = number % 2 == 0 ? 2048 : 1024;
            c.exchanges.context.balancing = number % 3 == 0 ? Balancing::head_tail : Balancing::none;
            c.exchanges.split_loss = number % 4 != 0;
            c.types.precision = {.linear = recipe, .filter_fqns = {"layers"}};
            all.add(c, 2);
            // operands are values, not codes
            c.types.master = c.types.compute = Dtype::f32;
            c.optimizer.eps = float32_eps;
            all.add(c, 2, in_8_bits_and_float32);
        }
    all.check();
}

TEST_CASE("mesh: overlapped tokens give the results of one collective") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    Part part("overlapped tokens", world.size(), one_of_repeated(world.size()));
    for (const MeshShape& mesh : meshes_of(world.size(), {axis::pp, axis::cp, axis::tp}))
        for (const auto streams : {Stream::Mode::threaded, Stream::Mode::eager, Stream::Mode::deferred})
            for (const auto mode : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::operations}) {
                if (mesh.tp == 1 || !part.takes_next()) continue;
                MeshCase c = {.mesh = mesh, .model = model_for(mesh, false)};
                c.seq_len = 4 * mesh.cp * mesh.tp;
                // a schedule that computes gradients of weights later
                if (mesh.pp > 1) set_schedule(c, *find_schedule("InterleavedZeroBubble"));
                c.exchanges.overlap_tokens = true;
                // products of the rows of one rank, of two or of four
                if (mode == RecomputeOptions::Mode::operations) c.exchanges.tiles = {1, 1, 1 << 20};
                c.streams = streams;
                c.recompute = {.mode = mode};
                all.add(c, 2);
            }
    all.check();
}

TEST_CASE("mesh: every exchange of keys and values equals one rank") {
    const Communicator world = Communicator::world("world");
    OneRankComparison all(world);
    Part part("every exchange of keys and values", world.size(), one_of_repeated(world.size()));
    int number = 0;
    for (const MeshShape& mesh : meshes_of(world.size(), {axis::dp_shard, axis::cp, axis::tp})) {
        if (mesh.cp == 1) continue;
        for (const auto exchange :
             {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::heads})
            for (const auto balancing : {Balancing::none, Balancing::head_tail}) {
                ++number;
                MeshCase c = {.mesh = mesh, .model = model_for(mesh, false)};
                c.sequences = 1 + number % 2;
                c.seq_len = 2 * (1 + number % 3) * mesh.cp * mesh.tp;
                c.document_mask = number % 4 < 2;
                c.exchanges.context = {exchange, balancing};
                if (part.takes_next()) all.add(c, 2);
            }
    }
    all.check();
}
