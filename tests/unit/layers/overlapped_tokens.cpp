// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/overlapped_tokens.hpp"

#include "support/catch.hpp"

#include <set>

using namespace coeus;

TEST_CASE("overlapped tokens: each rank exchanges with each other once, and with a group in adjacent steps") {
    for (const auto& [ranks, together] : {std::pair(2, 1), {3, 1}, {4, 1}, {4, 2}, {6, 2}, {8, 2}, {8, 4}})
        for (int rank = 0; rank < ranks; ++rank) {
            CAPTURE(ranks, together, rank);
            const TokenSteps steps(rank, ranks, together);
            CHECK(steps.groups() * together == ranks);
            std::set<int> sent = {rank}, received = {rank};
            for (int step = 1; step < ranks; ++step) {
                const int to = steps.to(step), from = steps.from(step);
                sent.insert(to);
                received.insert(from);
                CHECK(TokenSteps(to, ranks, together).from(step) == rank);
                CHECK(TokenSteps(from, ranks, together).to(step) == rank);
                // the own group first, then one other after the other
                const int first = step - step % together, other = first == 0 ? rank : steps.from(first);
                CHECK(steps.first_of_group(from) == steps.first_of_group(other));
                CHECK(steps.first_of_group(to) == steps.first_of_group(first == 0 ? rank : steps.to(first)));
            }
            CHECK(int(sent.size()) == ranks);
            CHECK(int(received.size()) == ranks);
        }
}

TEST_CASE("overlapped tokens: narrow products compute the rows of several ranks") {
    const ProductTiles h100 = {.at_a_time = 132};
    // 8B in two sequences of 8192 tokens, divided over 8 ranks: 2048 rows of each
    CHECK(ranks_together(2048, 768, 8, h100) == 2);   // queries, keys and values: 48 tiles of a rank
    CHECK(ranks_together(2048, 512, 8, h100) == 4);   // the output's input: 32 tiles
    CHECK(ranks_together(2048, 3584, 8, h100) == 4);  // gate and up: 224
    CHECK(ranks_together(2048, 1792, 8, h100) == 1);  // down's input: 112, as much of a wave as 224 of two
    CHECK(ranks_together(2048, 4096, 8, h100) == 1);
    // at most half of the ranks, and only parts of equal size
    CHECK(ranks_together(2048, 512, 4, h100) == 2);
    CHECK(ranks_together(2048, 512, 2, h100) == 1);
    CHECK(ranks_together(2048, 512, 6, h100) == 2);
    CHECK(ranks_together(2048, 512, 3, h100) == 1);
    CHECK(ranks_together(2048, 512, 8, {}) == 1);  // no GPU
}
