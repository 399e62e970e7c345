// SPDX-License-Identifier: Apache-2.0
// The order of a source's samples, whatever they are. tests/unit/data/sampler.cpp has it for windows of a
// token file.
#include "coeus/data/sample_order.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <vector>

using namespace coeus;

namespace {

std::vector<int64_t> epoch_of(const SampleOrder& order, int64_t epoch) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < order.count(); ++i) all.push_back(order(epoch * order.count() + i));
    return all;
}

}  // namespace

TEST_CASE("sample order: an epoch has each sample of the subset once, in any order") {
    for (const int64_t all : {2, 99, 100, 250})
        for (const bool shuffle : {false, true}) {
            const SampleOrder training(all, {.seed = 3, .shuffle = shuffle, .subset = Subset::training}),
                held_out(all, {.seed = 3, .shuffle = shuffle, .subset = Subset::held_out});
            CAPTURE(all, shuffle);
            CHECK(held_out.count() == std::max<int64_t>(1, all / 100));
            CHECK(training.count() + held_out.count() == all);
            for (const int64_t epoch : {0, 1, 7}) {
                std::vector<int64_t> both = epoch_of(training, epoch);
                CHECK((all < 3 || std::ranges::is_sorted(both) != shuffle));
                for (const int64_t sample : epoch_of(held_out, epoch)) both.push_back(sample);
                std::ranges::sort(both);
                CHECK(int64_t(both.size()) == all);
                CHECK(both.front() == 0);
                CHECK(both.back() == all - 1);
                CHECK(std::ranges::adjacent_find(both) == both.end());
            }
        }
    CHECK(epoch_of(SampleOrder(3, {}), 5) == std::vector<int64_t>{0, 1, 2});
    CHECK_THROWS_AS(SampleOrder(0, {}), LogicError);
    CHECK_THROWS_AS(SampleOrder(1, {.subset = Subset::training}), LogicError);
}
