// SPDX-License-Identifier: Apache-2.0
// The parts of local batches that a rank takes.
#include "coeus/models/token_batches.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("batch part: tokens further ahead are those of the same sequence and document, on any part") {
    for (const bool documents : {false, true}) {
        CAPTURE(documents);
        TestBatch batch(2, 8, 50);
        if (documents) batch.split_documents(3, false);
        batch.ignore_every(4).look_ahead(2);
        Exec exec;
        for (const SequencePart& own : {SequencePart{.count = 8}, SequencePart{.count = 4, .first = 2},
                                        SequencePart{.count = 4, .first = 1, .gap = 2}}) {
            TokenPart part({.sequences = 3, .seq_len = 8}, 1, own, 2);
            part.stage(0, batch.local_batch(0, 2));
            const Batch brought = part.bring(exec, 0);
            for (int64_t depth = 0; depth <= 2; ++depth)
                for (int64_t first = 0; first < 2; ++first) {
                    const Batch slice = brought.slice(first, 1);
                    for (int64_t i = 0; i < own.count; ++i) {
                        const int64_t t = first * 8 + own.index(i);
                        const auto there = [&](const std::vector<int32_t>& ids,
                                               const std::vector<int32_t>& further) {
                            return double(depth == 0 ? ids[size_t(t)]
                                                     : further[size_t((depth - 1) * 16 + t)]);
                        };
                        CHECK(element(slice.tokens_ahead(depth), i) ==
                              there(batch.tokens, batch.further_tokens));
                        CHECK(element(slice.labels_ahead(depth), i) ==
                              there(batch.labels, batch.further_labels));
                    }
                }
        }
    }
}

TEST_CASE("batch part: a local batch of another shape than planned is refused, a shorter one is accepted") {
    const TestBatch batch(3, 4, 7);
    const SequencePart whole = {.count = 4};
    Exec exec;
    TokenPart part({.sequences = 2, .seq_len = 4}, 2, whole);
    const auto refusal = Catch::Contains("a local batch does not have the planned shape");
    CHECK_THROWS_WITH(part.stage(0, batch.local_batch(0, 3)), refusal);
    SampleRows rows = batch.local_batch(0, 2);
    rows.tokens = rows.tokens.first(7);
    CHECK_THROWS_WITH(part.stage(0, rows), refusal);
    TokenPart longer({.sequences = 2, .seq_len = 5}, 1, {.count = 5});
    CHECK_THROWS_WITH(longer.stage(0, batch.local_batch(0, 2)), refusal);
    part.stage(1, batch.local_batch(2, 1));
    const Batch brought = part.bring(exec, 1);
    CHECK(brought.sequences == 1);
    CHECK(brought.tokens.count() == 4);
}

TEST_CASE("token batches: drawn ids are below the vocabulary, differ, and are the same each time") {
    const TokenBatches batches(0, 5);
    const BatchShape shape = {.sequences = 3, .seq_len = 8, .masks_documents = true};
    const auto drawn = batches.drawn(shape), again = batches.drawn(shape);
    const SampleRows& rows = drawn->text;
    REQUIRE(rows.tokens.size() == 24);
    CHECK(rows.sequences == 3);
    CHECK(rows.seq_len == 8);
    CHECK(std::ranges::equal(rows.tokens, rows.labels));
    CHECK(std::ranges::equal(rows.tokens, again->text.tokens));
    CHECK(*std::ranges::min_element(rows.tokens) == 0);
    CHECK(*std::ranges::max_element(rows.tokens) == 4);
    CHECK(std::ranges::count(rows.document_start, 0) == 24);
    CHECK(batches.drawn({.sequences = 1, .seq_len = 8})->text.document_start.empty());
}
