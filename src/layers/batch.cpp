// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/batch.hpp"

namespace coeus {

namespace {

Tensor row_of(const Tensor& further, int64_t depth, int64_t count) {
    return Tensor(further.row<int32_t>(depth - 1), further.dtype, {count});
}

}  // namespace

Tensor Batch::tokens_ahead(int64_t depth) const {
    return depth == 0 ? tokens : row_of(further_tokens, depth, count());
}

Tensor Batch::labels_ahead(int64_t depth) const {
    return depth == 0 ? labels : row_of(further_labels, depth, count());
}

ImageRows ImageRows::slice(int64_t first, int64_t number) const {
    const auto rows = [&](const Tensor& all, int64_t each) {
        return all ? all.slice_rows(first * each, number * each) : all;
    };
    ImageRows some = *this;
    some.noisy = rows(noisy, patches);
    some.text = rows(text, text_tokens);
    some.pooled = rows(pooled, 1);
    some.times = rows(times, 1);
    some.guidance = rows(guidance, 1);
    some.target = rows(target, patches);
    some.weights = rows(weights, 1);
    return some;
}

Batch Batch::slice(int64_t first, int64_t number) const {
    const auto rows = [&](const Tensor& ids) {
        const int64_t length = ids ? ids.count() / sequences : 0;
        return ids ? ids.slice_rows(first * length, number * length) : Tensor{};
    };
    const auto cols = [&](const Tensor& ids) {
        return ids ? ids.slice_cols(first * seq_len, number * seq_len) : Tensor{};
    };
    return {.sequences = number,
            .seq_len = seq_len,
            .tokens = rows(tokens),
            .labels = rows(labels),
            .positions = rows(positions),
            .document_start = rows(document_start),
            .further_tokens = cols(further_tokens),
            .further_labels = cols(further_labels),
            .images = images.slice(first, number)};
}

}  // namespace coeus
