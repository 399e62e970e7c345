// SPDX-License-Identifier: Apache-2.0
// SequencePart: the tokens of a sequence that a rank has if ranks divide the sequence (context parallelism).
// They are one run of consecutive tokens, or two runs with a gap between them. That suffices for every way of
// balancing the load, and causal masks remain ranges.
//
//   whole      0 1 2 3 4 5 6 7 8 9 10 11
//   a part         2 3         8 9            count 4, first 2, gap 4
#pragma once

#include <algorithm>
#include <cstdint>

namespace coeus {

struct SequencePart {
    int64_t count = 0;  ///< number of tokens
    int64_t first = 0;  ///< index in the whole sequence of the first token
    int64_t gap = 0;    ///< tokens left out between the first half and the second

    /// Number of tokens in the first half.
    constexpr int64_t half() const { return count / 2; }
    /// Index in the whole sequence of the i-th token; increases with i.
    constexpr int64_t index(int64_t i) const { return first + i + (i < half() ? 0 : gap); }
    /// Number of tokens whose index is less than `index`.
    constexpr int64_t below(int64_t index) const {
        const int64_t middle = half();
        return std::clamp<int64_t>(index - first, 0, middle) +
               std::clamp<int64_t>(index - first - gap, middle, count) - middle;
    }
    bool operator==(const SequencePart&) const = default;
};

}  // namespace coeus
