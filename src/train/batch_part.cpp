// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/batch_part.hpp"

#include <algorithm>

namespace coeus {

BatchPart::Ids::Ids(const Device& device, int64_t count, const std::string& what)
    : host(Dtype::i32, {count}, what, device.staging()) {
    if (!device.is_host()) there = OwnedTensor(Dtype::i32, {count}, what, device.memory());
}

Tensor BatchPart::Ids::brought(Exec& exec, int64_t count) const {
    const Tensor from = host.view.slice_rows(0, count);
    if (!exec.queue) return from;
    const Tensor to = there.view.slice_rows(0, count);
    exec.queue->copy(to.data, from.data, from.bytes());
    return to;
}

BatchPart::BatchPart(const BatchShape& shape, const SequencePart& part, const Device& device)
    : seq_len_(shape.seq_len), part_(part) {
    const int64_t own = shape.sequences * part.count;
    tokens_ = Ids(device, own, "token ids of this rank");
    labels_ = Ids(device, own, "labels of this rank");
    positions_ = Ids(device, own, "positions");
    if (!device.is_host()) document_start_ = Ids(device, shape.count(), "beginnings of documents");
    for (int64_t t = 0; t < own; ++t)
        positions_.host.view.as<int32_t>()[t] = int32_t(part.index(t % part.count));
}

Batch BatchPart::of(Exec& exec, const LocalBatch& local_batch) {
    const int64_t count = local_batch.sequences * part_.count;
    require(
        local_batch.tokens.count() == local_batch.sequences * seq_len_ && count <= tokens_.host.view.count(),
        "a local batch is not of the shape that was planned");
    if (brought_) exec.queue->finish(*brought_);
    const auto cut = [&](const Ids& own, Tensor whole) {
        const auto* from = whole.as<const int32_t>();
        auto* to = own.host.view.as<int32_t>();
        for (int64_t sequence = 0; sequence < local_batch.sequences; ++sequence)
            for (int64_t i = 0; i < part_.count; ++i) *to++ = from[sequence * seq_len_ + part_.index(i)];
        return own.brought(exec, count);
    };
    const auto documents = [&](Tensor whole) {
        if (!whole || !exec.queue) return whole;
        const auto* from = whole.as<const int32_t>();
        std::copy(from, from + whole.count(), document_start_.host.view.as<int32_t>());
        return document_start_.brought(exec, whole.count());
    };
    const Batch batch = {.sequences = local_batch.sequences,
                         .seq_len = part_.count,
                         .tokens = cut(tokens_, local_batch.tokens),
                         .labels = cut(labels_, local_batch.labels),
                         .positions = positions_.brought(exec, count),
                         .document_start = documents(local_batch.document_start)};
    if (exec.queue) brought_ = exec.queue->mark();
    return batch;
}

}  // namespace coeus
