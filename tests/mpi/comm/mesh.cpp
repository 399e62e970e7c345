// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/mesh.hpp"

#include "coeus/base/flight_recorder.hpp"
#include "support/catch.hpp"

#include <map>
#include <set>
#include <vector>

using namespace coeus;

TEST_CASE("mesh: communicators have the ranks that the formulas give") {
    Communicator world = Communicator::world("world");
    const int ranks = world.size(), me = world.rank();
    MeshShape shape{.dp_shard = ranks};
    if (ranks % 2 == 0) shape = {.dp_replicate = ranks / 2, .dp_shard = 1, .tp = 2};
    const Mesh mesh(std::move(world), shape);
    for (unsigned axes : {unsigned(axis::pp), unsigned(axis::dp_replicate), unsigned(axis::dp_shard),
                          unsigned(axis::cp), unsigned(axis::tp), axis::dp, axis::fsdp, loss_axes}) {
        const Communicator& group = mesh[axes];
        CHECK(group.size() == shape.size(axes));
        CHECK(group.rank() == shape.rank_in(me, axes));
        int64_t expected = 0;
        for (int rank = 0; rank < ranks; ++rank)
            if (shape.group_of(rank, axes) == shape.group_of(me, axes)) expected += rank;
        CHECK(group.all_reduce(int64_t(me)) == expected);
    }
}

TEST_CASE("mesh: the flight recorders of a communicator's ranks, and no others, use the same number for it") {
    Communicator world = Communicator::world("all");
    const int ranks = world.size();
    MeshShape shape{.dp_shard = ranks};
    if (ranks % 2 == 0) shape = {.pp = 2, .dp_shard = ranks / 2};
    const Mesh mesh(Communicator::world("mesh"), shape);
    // the communicator's number, this rank's position in it, its size
    constexpr int64_t most = 256, values = 3;
    std::vector<int64_t> own(most * values), all(size_t(ranks * most * values));
    size_t at = 0;
    for (const OperationLine& line : FlightRecorder::own().lines()) {
        if (line.name[0] == 0) continue;
        own[at++] = int64_t(line.id);
        own[at++] = line.rank;
        own[at++] = line.size;
    }
    world.all_gather(Tensor(all.data(), Dtype::i64, {int64_t(all.size())}),
                     Tensor(own.data(), Dtype::i64, {int64_t(own.size())}));
    std::map<int64_t, std::multiset<int64_t>> members;
    std::map<int64_t, int64_t> sizes;
    for (size_t i = 0; i < all.size(); i += values) {
        if (all[i] == 0) continue;
        members[all[i]].insert(all[i + 1]);
        sizes[all[i]] = all[i + 2];
    }
    CHECK((ranks == 1 || members.size() > 5));
    for (const auto& [id, places] : members) {
        CHECK(int64_t(places.size()) == sizes[id]);
        CHECK(std::set<int64_t>(places.begin(), places.end()).size() == places.size());
    }
}
