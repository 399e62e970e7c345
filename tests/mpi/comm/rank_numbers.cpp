// SPDX-License-Identifier: Apache-2.0
// Numbers on their way to rank 0 while others are exchanged.
#include "coeus/comm/rank_numbers.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <array>

using namespace coeus;

TEST_CASE("gather: rank 0 gets the numbers of all, in order, whatever is exchanged meanwhile") {
    const Communicator world = Communicator::world("world");
    RankNumbers numbers(world, 2);
    CHECK_FALSE(numbers.is_under_way());
    for (int round = 0; round < 3; ++round) {
        std::array<double, 2> own = {double(world.rank()), 10.0 * round};
        numbers.begin(own);
        own = {-1, -1};  // the caller's again
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
