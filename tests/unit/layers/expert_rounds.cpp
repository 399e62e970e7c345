// SPDX-License-Identifier: Apache-2.0
// The rounds in which rows go to experts, by a list of all rows.
#include "coeus/layers/exchanges/expert_rounds.hpp"

#include "coeus/base/random.hpp"
#include "support/catch.hpp"

#include <algorithm>

using namespace coeus;

namespace {

// A row that goes to an expert: its sender, and its place among the sender's rows in the order of experts.
struct Row {
    int64_t sender, slot;
    bool operator==(const Row&) const = default;
};

// All rows that reach a receiver, by expert, then by sender, then by slot.
std::vector<Row> rows_to(int64_t receiver, const std::vector<int32_t>& counts, int64_t ranks) {
    const int64_t experts = int64_t(counts.size()) / ranks, own = experts / ranks;
    std::vector<Row> rows;
    std::vector<int64_t> slots(size_t(ranks), 0);
    for (int64_t e = 0; e < experts; ++e)
        for (int64_t sender = 0; sender < ranks; ++sender)
            for (int64_t i = 0; i < counts[size_t(sender * experts + e)]; ++i, ++slots[size_t(sender)])
                if (e / own == receiver) rows.push_back({sender, slots[size_t(sender)]});
    return rows;
}

}  // namespace

TEST_CASE("experts' rounds: the rows of all rounds are all rows, in the order of their numbers") {
    const RandomStream random(3, "counts");
    uint64_t drawn = 0;
    for (const int64_t ranks : {1, 2, 4})
        for (const int64_t own : {1, 3})
            for (const double factor : {0.1, 0.5, 1.0, 100.0})
                for (const int64_t most : {0, 1, 9}) {
                    CAPTURE(ranks, own, factor, most);
                    const int64_t experts = ranks * own, tokens = most * experts, k = 1;
                    std::vector<int32_t> counts(size_t(ranks * experts));
                    for (int32_t& count : counts)
                        count = most == 0 ? 0 : int32_t(random.u64(drawn++) % uint64_t(most + 1));
                    const ExpertCapacity capacity = ExpertCapacity::of(ranks, tokens, k, own, factor);
                    std::vector<ExpertRounds> all(size_t(ranks), ExpertRounds{int(ranks)});
                    for (int64_t r = 0; r < ranks; ++r) all[size_t(r)].set(counts, int(r), capacity);
                    std::vector<std::vector<Row>> arrived(static_cast<size_t>(ranks));
                    for (int64_t round = 0; round < all[0].count(); ++round) {
                        for (ExpertRounds& rounds : all) rounds.select(round);
                        for (int64_t to = 0; to < ranks; ++to) {
                            const ExpertRounds& here = all[size_t(to)];
                            CHECK(here.count() == all[0].count());
                            CHECK(here.rows() <= capacity.of_round(round));
                            std::vector<Row> rows;
                            int64_t expected = 0;
                            for (int64_t from = 0; from < ranks; ++from) {
                                const RowRange sent = all[size_t(from)].sent()[size_t(to)],
                                               received = here.received()[size_t(from)];
                                CHECK(sent.count == received.count);
                                CHECK(received.first == expected);
                                expected += received.count;
                                for (int64_t i = 0; i < sent.count; ++i)
                                    rows.push_back({from, sent.first + i});
                            }
                            // the round's rows, by sender instead of by expert
                            const std::vector<Row> of_all = rows_to(to, counts, ranks);
                            const auto at = [&](int64_t number) {
                                return of_all.begin() + std::min(number, int64_t(of_all.size()));
                            };
                            std::vector<Row> should(at(capacity.before(round)),
                                                    at(capacity.before(round + 1)));
                            std::ranges::stable_sort(should, {}, &Row::sender);
                            CHECK(rows == should);
                            arrived[size_t(to)].insert(arrived[size_t(to)].end(), rows.begin(), rows.end());
                        }
                    }
                    for (int64_t to = 0; to < ranks; ++to)
                        CHECK(arrived[size_t(to)].size() == rows_to(to, counts, ranks).size());
                }
}

TEST_CASE("experts' rounds: the first round has room for the mean times the factor, at most for all") {
    // 4 ranks, 10 tokens each, 3 experts of a token: 30 assignments of a rank
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 2).first == 60);
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 2).later == 15);
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 0.01).first == 1);
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 0.01).later == 1);
    // a rank has 2 experts, so that a token sends it at most 2 rows
    CHECK(ExpertCapacity::of(4, 10, 3, 2, 1e9).first == 80);
    CHECK(ExpertCapacity::of(4, 10, 3, 2, 1e9).later == 0);
    CHECK(ExpertCapacity::of(4, 10, 3, 2, 80.0 / 30).later == 0);
}
