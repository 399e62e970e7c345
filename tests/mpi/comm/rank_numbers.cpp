// SPDX-License-Identifier: Apache-2.0
// Numbers that are gathered on rank 0 while other operations are exchanged.
#include "coeus/comm/rank_numbers.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <array>

using namespace coeus;

TEST_CASE("gather: rank 0 gets all ranks' numbers, in order, whatever is exchanged in the meantime") {
    const Communicator world = Communicator::world("world");
    RankNumbers numbers(world, 2);
    CHECK_FALSE(numbers.is_under_way());
    for (int round = 0; round < 3; ++round) {
        std::array<double, 2> own = {double(world.rank()), 10.0 * round};
        numbers.begin(own);
        own = {-1, -1};  // the caller may reuse it
        CHECK(numbers.is_under_way());
        CHECK(world.all_reduce(int64_t(1)) == world.size());
        const std::span<const double> all = numbers.finish();
        CHECK_FALSE(numbers.is_under_way());
        REQUIRE(all.size() == (world.rank() == 0 ? 2 * size_t(world.size()) : 0));
        for (size_t rank = 0; rank < all.size() / 2; ++rank) {
            CHECK(all[2 * rank] == double(rank));
            CHECK(all[2 * rank + 1] == 10.0 * round);
        }
    }
    CHECK_THROWS_AS(numbers.finish(), LogicError);
    numbers.begin(std::array{1.0, 2.0});
    CHECK_THROWS_AS(numbers.begin(std::array{1.0, 2.0}), LogicError);
}
