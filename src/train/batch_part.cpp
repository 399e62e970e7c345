// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/batch_part.hpp"

namespace coeus {

BatchPart::BatchPart(const BatchShape& shape, const SequencePart& part)
    : seq_len_(shape.seq_len), part_(part) {
    const Shape own = {shape.sequences * part.count};
    tokens_ = OwnedTensor(Dtype::i32, own, "token ids of this rank");
    labels_ = OwnedTensor(Dtype::i32, own, "labels of this rank");
    positions_ = OwnedTensor(Dtype::i32, own, "positions");
    for (int64_t t = 0; t < own.count(); ++t)
        positions_.view.as<int32_t>()[t] = int32_t(part.index(t % part.count));
}

Batch BatchPart::of(const LocalBatch& local_batch) {
    const int64_t count = local_batch.sequences * part_.count;
    require(local_batch.tokens.count() == local_batch.sequences * seq_len_ && count <= tokens_.view.count(),
            "a local batch is not of the shape that was planned");
    const auto cut = [&](const OwnedTensor& own, Tensor whole) {
        const auto* from = whole.as<const int32_t>();
        auto* to = own.view.as<int32_t>();
        for (int64_t sequence = 0; sequence < local_batch.sequences; ++sequence)
            for (int64_t i = 0; i < part_.count; ++i) *to++ = from[sequence * seq_len_ + part_.index(i)];
        return own.view.slice_rows(0, count);
    };
    return {.sequences = local_batch.sequences,
            .seq_len = part_.count,
            .tokens = cut(tokens_, local_batch.tokens),
            .labels = cut(labels_, local_batch.labels),
            .positions = positions_.view.slice_rows(0, count),
            .document_start = local_batch.document_start};
}

}  // namespace coeus
