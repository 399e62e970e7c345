// SPDX-License-Identifier: Apache-2.0
// The work of context-parallel ranks in samples with several documents.
#include "coeus/train/document_balance.hpp"

#include "support/catch.hpp"

#include <vector>

using namespace coeus;

namespace {

// Samples whose documents begin at these places.
double busiest(const std::vector<std::vector<int32_t>>& begins, int64_t together, int ranks,
               Balancing balancing) {
    constexpr int64_t length = 8;
    std::vector<int32_t> start;
    for (const std::vector<int32_t>& sample : begins)
        for (int32_t t = 0, at = 0; t < length; ++t) {
            for (const int32_t begin : sample)
                if (begin == t) at = t;
            start.push_back(at);
        }
    const SampleRows rows = {.sequences = int64_t(begins.size()), .seq_len = length, .document_start = start};
    DocumentBalance balance(ranks, balancing);
    for (int64_t first = 0; first < rows.sequences; first += together)
        balance.add(rows.slice(first, together));
    return balance.busiest_over_mean();
}

}  // namespace

TEST_CASE("document balance: the work of the busiest context-parallel rank") {
    // pairs by place, one document: 1 to 8. Two runs for each rank: 1 2 7 8 and 3 4 5 6; one run: 10 and 26
    CHECK(busiest({{}}, 1, 2, Balancing::head_tail) == 1);
    CHECK(busiest({{}}, 1, 2, Balancing::none) == Approx(26 / 18.0));
    // a document of 2 and one of 6: 1 2 5 6 and 1 2 3 4
    CHECK(busiest({{2}}, 1, 2, Balancing::head_tail) == Approx(14 / 12.0));
    // the other way round: 1 2 1 2 and 3 4 5 6. Two samples together, or one after the other
    CHECK(busiest({{6}}, 1, 2, Balancing::head_tail) == Approx(18 / 12.0));
    CHECK(busiest({{2}, {6}}, 1, 2, Balancing::head_tail) == Approx((14 + 18) / 24.0));
    CHECK(busiest({{2}, {6}}, 2, 2, Balancing::head_tail) == Approx(28 / 24.0));
    // documents that are all as long as a run
    CHECK(busiest({{2, 4, 6}}, 1, 4, Balancing::none) == 1);
}
