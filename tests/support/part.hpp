// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/base/random.hpp"

#include <cstdint>
#include <string_view>

/// Which of the cases that take long a run of the tests has. There are three lists:
/// - the short one, of `make test` and .ci/run
/// - that of `make check-all` (the environment variable COEUS_CHECK_ALL=1)
/// - every case (COEUS_EVERY_CASE=1), of `make soak`
/// Parts of the lists are drawn by the seed COEUS_PART_SEED (0 if it is not set; tools/test.sh takes the day
/// of the newest commit). So many successive seeds as a part has shares run every case.
namespace coeus::test {

/// One of so many cases: in `make check-all`, and in the short list, where COEUS_PARTS=N makes it one of N
/// times as many.
struct OneOf {
    int check_all = 1, short_list = 1;
};

/// For a loop over meshes whose choices are also factors of "mesh: every factorisation equals one rank",
/// which the short list has whole on 2 and 4 ranks: check-all has all, the short list a part.
inline OneOf one_of_repeated(int ranks) {
    return {1, ranks > 4 ? 4 : ranks > 1 ? 3 : 1};
}

/// A part of successive cases, the same one on all ranks.
class Part {
public:
    /// Parts of other names, and those on other numbers of ranks, have other cases. Those of one name with
    /// the numbers 0, 1, ... divide the cases among them.
    Part(std::string_view name, int ranks, OneOf one_of, int number = 0);
    /// Whether the next case is in the part.
    bool takes_next();

private:
    RandomStream random_;
    uint64_t one_of_, shift_, next_ = 0;
};

/// The seed of the parts, for a test that draws its cases itself.
uint64_t part_seed();

}  // namespace coeus::test
