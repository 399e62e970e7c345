// SPDX-License-Identifier: Apache-2.0
// The rounds in which rows go to experts, by a list of all parts.
#include "coeus/layers/exchanges/expert_rounds.hpp"

#include "coeus/base/random.hpp"
#include "coeus/layers/exchanges/expert_exchange.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

// What a sender has for a receiver of one part of its tokens, and where its rows begin among all it sends.
struct PartOfRows {
    int64_t sender = 0, rows = 0, assignments = 0, first = 0;
};

// All parts that reach a receiver, by part, then by sender.
std::vector<PartOfRows> parts_to(int64_t receiver, const std::vector<int32_t>& counts, int64_t ranks,
                                 int64_t parts) {
    std::vector<PartOfRows> all;
    for (int64_t part = 0; part < parts; ++part)
        for (int64_t sender = 0; sender < ranks; ++sender) {
            const auto units = counts.begin() + sender * 2 * ranks * parts;
            const int64_t unit = receiver * parts + part;
            int64_t first = 0;
            for (int64_t before = 0; before < unit; ++before) first += units[before];
            all.push_back({sender, units[unit], units[ranks * parts + unit], first});
        }
    return all;
}

}  // namespace

TEST_CASE("experts' rounds: they bring all rows, part by part, as many parts as there is room for") {
    const RandomStream random(3, "counts");
    uint64_t drawn = 0;
    const auto draw = [&](int64_t most) { return int64_t(random.u64(drawn++) % uint64_t(most + 1)); };
    constexpr int64_t parts = ExpertCapacity::parts, choices = 2, top_k = 3;
    for (const int64_t ranks : {1, 2, 4})
        for (const double factor : {0.1, 0.5, 1.0, 100.0})
            for (const int64_t of_part : {0, 1, 9}) {  // tokens
                CAPTURE(ranks, factor, of_part);
                std::vector<int32_t> counts;
                for (int64_t sender = 0; sender < ranks; ++sender) {
                    std::vector<int32_t> rows, assignments;
                    for (int64_t unit = 0; unit < ranks * parts; ++unit) {
                        rows.push_back(int32_t(draw(of_part)));
                        assignments.push_back(rows.back() + int32_t(draw(rows.back() * (choices - 1))));
                    }
                    counts.insert(counts.end(), rows.begin(), rows.end());
                    counts.insert(counts.end(), assignments.begin(), assignments.end());
                }
                const ExpertCapacity capacity =
                    ExpertCapacity::of(ranks, of_part * parts, top_k, choices, factor);
                std::vector<ExpertRounds> all(size_t(ranks), ExpertRounds{int(ranks)});
                for (int64_t r = 0; r < ranks; ++r) all[size_t(r)].set(counts, int(r), capacity);
                std::vector<std::vector<PartOfRows>> waiting;
                for (int64_t to = 0; to < ranks; ++to) waiting.push_back(parts_to(to, counts, ranks, parts));
                for (int64_t round = 0; round < all[0].count(); ++round) {
                    for (ExpertRounds& rounds : all) rounds.select(round);
                    for (int64_t to = 0; to < ranks; ++to) {
                        const ExpertRounds& here = all[size_t(to)];
                        CHECK(here.count() == all[0].count());
                        // the next parts, until one has no room
                        std::vector<PartOfRows> from(static_cast<size_t>(ranks));
                        std::vector<PartOfRows>& next = waiting[size_t(to)];
                        int64_t room = capacity.of_round(round);
                        while (!next.empty() && next[0].assignments <= room) {
                            PartOfRows& sum = from[size_t(next[0].sender)];
                            if (sum.rows == 0) sum.first = next[0].first;
                            sum.rows += next[0].rows;
                            room -= next[0].assignments;
                            next.erase(next.begin());
                        }
                        int64_t expected = 0;
                        for (int64_t sender = 0; sender < ranks; ++sender) {
                            const RowRange sent = all[size_t(sender)].sent()[size_t(to)],
                                           received = here.received()[size_t(sender)];
                            CHECK(sent.count == from[size_t(sender)].rows);
                            if (sent.count > 0) CHECK(sent.first == from[size_t(sender)].first);
                            CHECK(received.count == sent.count);
                            CHECK(received.first == expected);
                            expected += received.count;
                        }
                        CHECK(here.rows() == expected);
                    }
                }
                for (const std::vector<PartOfRows>& parts_left : waiting) CHECK(parts_left.empty());
            }
}

TEST_CASE("experts' rounds: the first round has room for the mean times the factor, at most for all") {
    // 4 ranks, 10 tokens each, 3 experts of a token: 30 assignments of a rank
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 2).first == 60);
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 2).later == 15);
    // one token, which may choose 3 experts of a rank, is a part
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 0.01).first == 3);
    CHECK(ExpertCapacity::of(4, 10, 3, 8, 0.01).later == 3);
    CHECK(ExpertCapacity::of(4, 100, 3, 8, 0.01).later == 7 * 3);
    // a rank has 2 experts, so that a token sends it at most 2 rows
    CHECK(ExpertCapacity::of(4, 10, 3, 2, 1e9).first == 80);
    CHECK(ExpertCapacity::of(4, 10, 3, 2, 1e9).later == 0);
    CHECK(ExpertCapacity::of(4, 10, 3, 2, 80.0 / 30).later == 0);
    // a single part has all tokens
    CHECK(ExpertCapacity::of(1, 1, 3, 8, 0.01).first == 3);
    CHECK(ExpertCapacity::of(1, 1, 3, 8, 0.01).later == 0);
}

TEST_CASE("experts' rounds: a rank needs a token's row with the share of choices that have its experts") {
    // 6 of 64 experts, of which a rank has 8: all are among the 56 others with probability 0.433
    const ExpertRows sixteen = {.ranks = 8, .tokens = 100, .top_k = 6, .experts = 8};
    CHECK(close(8 * sixteen.share(), 4.535, 1e-3));
    CHECK(sixteen.choices() == 6);
    CHECK(sixteen.most() == 600);
    // a token has experts on every rank if it chooses more than the others have, and on one if it chooses one
    CHECK(ExpertRows{.ranks = 2, .tokens = 1, .top_k = 5, .experts = 4}.share() == 1);
    CHECK(ExpertRows{.ranks = 2, .tokens = 1, .top_k = 5, .experts = 4}.choices() == 4);
    CHECK(ExpertRows{.ranks = 2, .tokens = 1, .top_k = 5, .experts = 4}.most() == 2);
    CHECK(close(ExpertRows{.ranks = 5, .tokens = 1, .top_k = 1, .experts = 3}.share(), 0.2, 1e-12));
    CHECK(ExpertRows{.ranks = 1, .tokens = 1, .top_k = 2, .experts = 3}.share() == 1);
}
