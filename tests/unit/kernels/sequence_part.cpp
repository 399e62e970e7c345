// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/sequence_part.hpp"

#include "support/catch.hpp"

using namespace coeus;

TEST_CASE("a part of a sequence knows the indices of its tokens and how many of them come before an index") {
    for (const int64_t count : {0, 1, 2, 5, 8})
        for (const int64_t first : {0, 3})
            for (const int64_t gap : {0, 1, 6}) {
                const SequencePart part = {count, first, gap};
                CAPTURE(count, first, gap);
                int64_t before = first - 1;
                for (int64_t i = 0; i < count; ++i) {
                    CHECK(part.index(i) == before + 1 + (i == count / 2 && i > 0 ? gap : 0) +
                                               (i == 0 && count == 1 ? gap : 0));
                    before = part.index(i);
                }
                for (int64_t index = 0; index < 20; ++index) {
                    int64_t less = 0;
                    for (int64_t i = 0; i < count; ++i) less += part.index(i) < index;
                    CHECK(part.below(index) == less);
                }
            }
}
