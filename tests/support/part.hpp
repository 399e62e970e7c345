// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/base/random.hpp"

#include <cstdint>
#include <string_view>

namespace coeus::test {

/// The part of a test's cases that `make test` runs: one of every `one_of` successive cases, drawn by a fixed
/// seed, the same one on all ranks. With the environment variable COEUS_EVERY_CASE=1, as in `make soak`, all
/// of them.
class Part {
public:
    /// Parts of other names, and those on other numbers of ranks, have other cases. Those of one name with
    /// the numbers 0 to `one_of` - 1 divide the cases among them. `one_of` = 1: all cases.
    Part(std::string_view name, int ranks, int one_of, int number = 0);
    /// Whether the next case is in the part.
    bool takes_next();

private:
    RandomStream random_;
    uint64_t one_of_, number_, next_ = 0;
};

}  // namespace coeus::test
