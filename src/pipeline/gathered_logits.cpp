// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/gathered_logits.hpp"

#include <cstring>

namespace coeus {

GatheredLogits::GatheredLogits(const Param& output, Dtype type, int64_t tokens, int ranks)
    : output_(output), type_(type), tokens_(tokens), columns_(output.part(ranks, 0).rows), ranks_(ranks) {}

int64_t GatheredLogits::bytes_on_host(bool gpu) const {
    const int64_t rows = ranks_ > 1 ? tokens_ * output_.shape.rows() * size_of(type_) : 0;
    return rows + (gpu ? bytes() : 0);
}

void GatheredLogits::allocate(const Communicator& ranks, const Device& device) {
    communicator_ = &ranks;
    const Shape shape = {ranks_ * tokens_, columns_};
    there_ = OwnedTensor(type_, shape, "logits", device.memory());
    if (!device.is_host()) copy_ = OwnedTensor(type_, shape, "logits", device.staging());
    if (ranks_ > 1) rows_ = OwnedTensor(type_, {tokens_, output_.shape.rows()}, "logits", device.staging());
}

Tensor GatheredLogits::own(int64_t tokens) const {
    const int rank = communicator_->rank();
    return of_rank(there_.view, rank, tokens).slice_cols(0, columns_of(rank));
}

Tensor GatheredLogits::gather(Exec& exec, int64_t tokens) const {
    const Tensor there = there_.view.slice_rows(0, ranks_ * tokens);
    if (ranks_ > 1) {
        const ObservedExchange noted(exec, Exchange::gather_logits, there);
        communicator_->all_gather(exec, there, of_rank(there, communicator_->rank(), tokens));
    }
    const Tensor all = copy_.view ? copy_.view.slice_rows(0, there.rows()) : there;
    exec.queue->copy(all.data, there.data, there.bytes());
    exec.queue->finish();
    if (ranks_ == 1) return all;
    const Tensor rows = rows_.view.slice_rows(0, tokens);
    const int64_t element = size_of(type_);
    for (int rank = 0; rank < ranks_; ++rank) {
        const Tensor part = of_rank(all, rank, tokens);
        const Extent columns = output_.part(ranks_, rank);
        for (int64_t row = 0; row < tokens; ++row)
            std::memcpy(static_cast<std::byte*>(rows.data) + (row * rows.ld + columns.first_row) * element,
                        static_cast<const std::byte*>(part.data) + row * part.ld * element,
                        size_t(columns.rows * element));
    }
    return rows;
}

}  // namespace coeus
