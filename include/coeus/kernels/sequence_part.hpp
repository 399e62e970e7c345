// SPDX-License-Identifier: Apache-2.0
// SequencePart: which tokens of a sequence a rank has, where ranks divide it (context parallelism). One run
// of consecutive tokens, or two of them with a gap in between: enough for every balancing, and causal masks
// stay ranges.
//
//   whole      0 1 2 3 4 5 6 7 8 9 10 11
//   a part         2 3         8 9            count 4, first 2, gap 4
#pragma once

#include <algorithm>
#include <cstdint>

namespace coeus {

struct SequencePart {
    int64_t count = 0;  ///< tokens
    int64_t first = 0;  ///< index in the whole sequence of the first one
    int64_t gap = 0;    ///< tokens left out between its first half and its second

    /// Tokens of the first half.
    constexpr int64_t half() const { return count / 2; }
    /// Index in the whole sequence of its i-th token; grows with i.
    constexpr int64_t index(int64_t i) const { return first + i + (i < half() ? 0 : gap); }
    /// How many of its tokens have an index less than this one.
    constexpr int64_t below(int64_t index) const {
        const int64_t middle = half();
        return std::clamp<int64_t>(index - first, 0, middle) +
               std::clamp<int64_t>(index - first - gap, middle, count) - middle;
    }
    bool operator==(const SequencePart&) const = default;
};

}  // namespace coeus
