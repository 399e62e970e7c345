// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/batch.hpp"

namespace coeus {

Batch Batch::slice(int64_t first, int64_t number) const {
    const auto rows = [&](const Tensor& ids) {
        const int64_t length = ids ? ids.count() / sequences : 0;
        return ids ? ids.slice_rows(first * length, number * length) : Tensor{};
    };
    return {.sequences = number,
            .seq_len = seq_len,
            .tokens = rows(tokens),
            .labels = rows(labels),
            .positions = rows(positions),
            .document_start = rows(document_start)};
}

}  // namespace coeus
