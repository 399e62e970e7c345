// SPDX-License-Identifier: Apache-2.0
// Slices of sequences, on the host and as layers read them.
#include "coeus/layers/batch.hpp"

#include "coeus/base/sample_rows.hpp"
#include "support/catch.hpp"

#include <numeric>
#include <vector>

using namespace coeus;

TEST_CASE("batch: a slice has the rows of its sequences, and of document starts whole sequences") {
    std::vector<int32_t> tokens(6), labels(6), positions(6), starts(12);
    for (auto* ids : {&tokens, &labels, &positions, &starts}) std::iota(ids->begin(), ids->end(), 0);
    const auto tensor = [](std::vector<int32_t>& ids) {
        return Tensor(ids.data(), Dtype::i32, {int64_t(ids.size())});
    };
    Batch batch = {.sequences = 3,
                   .seq_len = 2,
                   .tokens = tensor(tokens),
                   .labels = tensor(labels),
                   .positions = tensor(positions),
                   .document_start = tensor(starts)};
    const Batch last = batch.slice(1, 2);
    CHECK(last.sequences == 2);
    CHECK(last.seq_len == 2);
    CHECK(last.tokens.count() == 4);
    CHECK(last.tokens.data == &tokens[2]);
    CHECK(last.labels.data == &labels[2]);
    CHECK(last.positions.data == &positions[2]);
    CHECK(last.document_start.count() == 8);
    CHECK(last.document_start.data == &starts[4]);
    batch.document_start = {};
    CHECK_FALSE(batch.slice(1, 1).document_start);
}

TEST_CASE("sample rows: a slice has the rows of its sequences") {
    const std::vector<int32_t> tokens = {0, 1, 2, 3, 4, 5}, labels = {6, 7, 8, 9, 10, 11};
    SampleRows rows = {.sequences = 2, .seq_len = 3, .tokens = tokens, .labels = labels};
    const SampleRows last = rows.slice(1, 1);
    CHECK(last.count() == 3);
    CHECK(last.tokens.data() == &tokens[3]);
    CHECK(last.tokens.size() == 3);
    CHECK(last.labels.data() == &labels[3]);
    CHECK(last.document_start.empty());
    rows.document_start = labels;
    CHECK(rows.slice(0, 1).document_start.data() == labels.data());
    CHECK(rows.slice(0, 1).document_start.size() == 3);
}
