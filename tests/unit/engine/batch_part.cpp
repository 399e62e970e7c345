// SPDX-License-Identifier: Apache-2.0
// The parts of local batches that a rank takes.
#include "coeus/engine/batch_part.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"

using namespace coeus;
using namespace coeus::test;

TEST_CASE("batch part: a local batch of another shape than planned is refused, a shorter one is accepted") {
    const TestBatch batch(3, 4, 7);
    const SequencePart whole = {.count = 4};
    Exec exec;
    BatchPart part({.sequences = 2, .seq_len = 4}, 2, whole);
    const auto refusal = Catch::Contains("a local batch does not have the planned shape");
    CHECK_THROWS_WITH(part.stage(0, batch.local_batch(0, 3)), refusal);
    SampleRows rows = batch.local_batch(0, 2);
    rows.tokens = rows.tokens.first(7);
    CHECK_THROWS_WITH(part.stage(0, rows), refusal);
    BatchPart longer({.sequences = 2, .seq_len = 5}, 1, {.count = 5});
    CHECK_THROWS_WITH(longer.stage(0, batch.local_batch(0, 2)), refusal);
    part.stage(1, batch.local_batch(2, 1));
    const Batch brought = part.bring(exec, 1);
    CHECK(brought.sequences == 1);
    CHECK(brought.tokens.count() == 4);
}
