// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/mesh.hpp"

#include <catch2/catch.hpp>

using namespace coeus;

TEST_CASE("mesh: the communicators hold the ranks that the arithmetic says") {
    Communicator world = Communicator::world("world");
    const int ranks = world.size(), me = world.rank();
    MeshShape shape{.dp_shard = ranks};
    if (ranks % 2 == 0) shape = {.dp_replicate = ranks / 2, .dp_shard = 1, .tp = 2};
    const Mesh mesh(std::move(world), shape);
    for (unsigned axes : {unsigned(pp), unsigned(dp_replicate), unsigned(dp_shard), unsigned(cp),
                          unsigned(tp), dp, fsdp, loss_axes}) {
        const Communicator& group = mesh[axes];
        CHECK(group.size() == shape.size(axes));
        CHECK(group.rank() == shape.rank_in(me, axes));
        int64_t expected = 0;
        for (int rank = 0; rank < ranks; ++rank)
            if (shape.group_of(rank, axes) == shape.group_of(me, axes)) expected += rank;
        CHECK(group.all_reduce(int64_t(me)) == expected);
    }
}
