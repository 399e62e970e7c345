// SPDX-License-Identifier: Apache-2.0
#include "coeus/engine/batch_part.hpp"

#include <algorithm>

namespace coeus {

namespace {

// The positions of this rank's tokens in each sequence, on the device.
OwnedTensor positions_of(const SequencePart& part, int64_t sequences, const Device& device) {
    std::vector<int32_t> all;
    for (int64_t sequence = 0; sequence < sequences; ++sequence)
        for (int64_t t = 0; t < part.count; ++t) all.push_back(int32_t(part.index(t)));
    OwnedTensor there(Dtype::i32, {int64_t(all.size())}, "positions", device.memory());
    device.copy(there.view.data, all.data(), there.view.bytes());
    return there;
}

// A tensor of token ids that kernels only read.
Tensor read_only(std::span<const int32_t> ids) {
    return Tensor(const_cast<int32_t*>(ids.data()), Dtype::i32, {int64_t(ids.size())});
}

}  // namespace

BatchPart::BatchPart(const BatchShape& shape, int64_t local_batches, const SequencePart& part,
                     const Device& device)
    : seq_len_(shape.seq_len), part_(part), staged_(size_t(local_batches)) {
    const int64_t own = shape.sequences * part.count;
    tokens_ = StagedIds(device, own, "token ids of this rank", local_batches);
    labels_ = StagedIds(device, own, "labels of this rank", local_batches);
    if (!device.is_host())
        document_start_ = StagedIds(device, shape.count(), "document starts", local_batches);
    positions_ = positions_of(part, shape.sequences, device);
}

void BatchPart::stage(int64_t place, const SampleRows& local_batch) {
    require(local_batch.seq_len == seq_len_ && local_batch.tokens.size() == size_t(local_batch.count()) &&
                local_batch.sequences * part_.count <= tokens_.count(),
            "a local batch does not have the planned shape");
    const auto cut = [&](const StagedIds& own, std::span<const int32_t> whole) {
        const int32_t* from = whole.data();
        auto* to = own.host(place);
        for (int64_t sequence = 0; sequence < local_batch.sequences; ++sequence)
            for (int64_t i = 0; i < part_.count; ++i) *to++ = from[sequence * seq_len_ + part_.index(i)];
    };
    cut(tokens_, local_batch.tokens);
    cut(labels_, local_batch.labels);
    const std::span<const int32_t> documents = local_batch.document_start;
    if (document_start_.count() > 0) std::ranges::copy(documents, document_start_.host(place));
    staged_[size_t(place)] = {local_batch.sequences, documents.empty() ? Tensor{} : read_only(documents)};
}

Batch BatchPart::bring(Exec& exec, int64_t place) const {
    const Staged& staged = staged_[size_t(place)];
    const int64_t count = staged.sequences * part_.count;
    const Tensor documents = staged.document_start;
    return {.sequences = staged.sequences,
            .seq_len = part_.count,
            .tokens = tokens_.brought(exec, count, place),
            .labels = labels_.brought(exec, count, place),
            .positions = positions_.view.slice_rows(0, count),
            .document_start = documents && document_start_.count() > 0
                                  ? document_start_.brought(exec, documents.count(), place)
                                  : documents};
}

}  // namespace coeus
