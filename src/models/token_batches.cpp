// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/token_batches.hpp"

#include "coeus/base/ignored_label.hpp"
#include "coeus/base/random.hpp"

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

// The id `depth` places after place `index` of a sequence; `none` if that place is not in the same sequence
// and document.
int32_t id_ahead(std::span<const int32_t> ids, std::span<const int32_t> documents, int64_t seq_len,
                 int64_t sequence, int64_t index, int64_t depth, int32_t none) {
    const int64_t ahead = index + depth, at = sequence * seq_len + ahead;
    if (ahead >= seq_len || (!documents.empty() && documents[size_t(at)] > index)) return none;
    return ids[size_t(at)];
}

// A tensor of token ids that kernels only read.
Tensor read_only(std::span<const int32_t> ids) {
    return Tensor(const_cast<int32_t*>(ids.data()), Dtype::i32, {int64_t(ids.size())});
}

}  // namespace

BatchBytes TokenBatches::bytes(const LocalBatches& training, const BatchShape& validation, int ranks,
                               Backend backend) const {
    const int64_t step = training.number * training.shape.count(),
                  one = training.shape.count() + validation.count();
    const int64_t read = 3 * (2 * step + validation.count());
    const int64_t parts = 2 * ((1 + depths_) * step + validation.count()) / ranks, positions = one / ranks;
    const int64_t id = size_of(Dtype::i32);
    if (backend == Backend::cpu) return {.host = (read + parts + positions) * id};
    return {.host = (read + parts + step + validation.count()) * id,
            .device = ((3 * one + 2 * depths_ * training.shape.count()) / ranks + one) * id};
}

std::unique_ptr<BatchPart> TokenBatches::part(const LocalBatches& batches, const SequencePart& part,
                                              const Device& device) const {
    return std::make_unique<TokenPart>(batches.shape, batches.number, part, batches.trains ? depths_ : 0,
                                       device);
}

Batch TokenBatches::planned(const BatchShape& shape, int ranks) const {
    const int64_t count = shape.count() / ranks;
    const Tensor ids(nullptr, Dtype::i32, {count}), further(nullptr, Dtype::i32, {depths_, count});
    return {.sequences = shape.sequences,
            .seq_len = shape.seq_len / ranks,
            .tokens = ids,
            .labels = ids,
            .positions = ids,
            .document_start = shape.masks_documents ? Tensor(nullptr, Dtype::i32, {shape.count()}) : Tensor(),
            .further_tokens = further,
            .further_labels = further};
}

std::shared_ptr<const LocalBatch> TokenBatches::drawn(const BatchShape& shape) const {
    struct Drawn {
        std::vector<int32_t> ids, starts;
        LocalBatch batch;
    };
    const auto drawn = std::make_shared<Drawn>();
    const RandomStream random(0, "tokens");
    for (int64_t i = 0; i < shape.count(); ++i)
        drawn->ids.push_back(int32_t(random.u64(uint64_t(i)) % uint64_t(vocab_)));
    drawn->batch.text = {
        .sequences = shape.sequences, .seq_len = shape.seq_len, .tokens = drawn->ids, .labels = drawn->ids};
    if (shape.masks_documents) {
        drawn->starts.resize(drawn->ids.size());
        drawn->batch.text.document_start = drawn->starts;
    }
    return {drawn, &drawn->batch};
}

TokenPart::TokenPart(const BatchShape& shape, int64_t local_batches, const SequencePart& part, int64_t depths,
                     const Device& device)
    : seq_len_(shape.seq_len), depths_(depths), part_(part), staged_(size_t(local_batches)) {
    const int64_t own = (1 + depths) * shape.sequences * part.count;
    tokens_ = StagedIds(device, own, "token ids of this rank", local_batches);
    labels_ = StagedIds(device, own, "labels of this rank", local_batches);
    if (!device.is_host())
        document_start_ = StagedIds(device, shape.count(), "document starts", local_batches);
    positions_ = positions_of(part, shape.sequences, device);
}

void TokenPart::stage(int64_t place, const LocalBatch& batch) {
    const SampleRows& local_batch = batch.text;
    require(local_batch.seq_len == seq_len_ && local_batch.tokens.size() == size_t(local_batch.count()) &&
                (1 + depths_) * local_batch.sequences * part_.count <= tokens_.count(),
            "a local batch does not have the planned shape");
    const std::span<const int32_t> documents = local_batch.document_start;
    const auto cut = [&](const StagedIds& own, std::span<const int32_t> whole, int32_t none) {
        auto* to = own.host(place);
        for (int64_t depth = 0; depth <= depths_; ++depth)
            for (int64_t sequence = 0; sequence < local_batch.sequences; ++sequence)
                for (int64_t i = 0; i < part_.count; ++i)
                    *to++ = id_ahead(whole, documents, seq_len_, sequence, part_.index(i), depth, none);
    };
    cut(tokens_, local_batch.tokens, 0);
    cut(labels_, local_batch.labels, ignored_label);
    if (document_start_.count() > 0) std::ranges::copy(documents, document_start_.host(place));
    staged_[size_t(place)] = {local_batch.sequences, documents.empty() ? Tensor{} : read_only(documents)};
}

Batch TokenPart::bring(Exec& exec, int64_t place) const {
    const Staged& staged = staged_[size_t(place)];
    const int64_t count = staged.sequences * part_.count;
    const Shape by_depth = {1 + depths_, count};
    const Tensor tokens = tokens_.brought(exec, by_depth.count(), place).reshape(by_depth),
                 labels = labels_.brought(exec, by_depth.count(), place).reshape(by_depth);
    const auto further = [&](const Tensor& ids) {
        return depths_ > 0 ? ids.slice_rows(1, depths_) : Tensor{};
    };
    const Tensor documents = staged.document_start;
    return {.sequences = staged.sequences,
            .seq_len = part_.count,
            .tokens = tokens.slice_rows(0, 1).reshape({count}),
            .labels = labels.slice_rows(0, 1).reshape({count}),
            .positions = positions_.view.slice_rows(0, count),
            .document_start = documents && document_start_.count() > 0
                                  ? document_start_.brought(exec, documents.count(), place)
                                  : documents,
            .further_tokens = further(tokens),
            .further_labels = further(labels)};
}

}  // namespace coeus
