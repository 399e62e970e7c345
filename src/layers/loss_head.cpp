// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/loss_head.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/layers/loss_exchange.hpp"
#include "coeus/layers/sequence_parallel.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Rows of a chunk: logits of the backend's preferred size, but enough rows for an efficient GEMM. `columns`
// are those of the widest part of the vocabulary, so that all tensor-parallel ranks use the same chunks.
int64_t chunk_rows(const Kernels& kernels, int64_t tokens, int64_t columns, Dtype dtype) {
    const int64_t fitting = kernels.chunk_bytes / (std::max<int64_t>(1, columns) * size_of(dtype)) / 64 * 64;
    return std::min(tokens, std::max<int64_t>(256, fitting));
}

}  // namespace

// Calls each(first row, logits [n, V/P], losses [n]) for chunks of n rows of all tokens [T, D].
template <class Each>
void LossHead::for_each_chunk(Ctx& c, Tensor all, const Each& each) const {
    const int64_t columns = div_ceil(output_->params().front().shape.rows(), c.tp.size());
    const int64_t rows = chunk_rows(c.k, all.rows(), columns, all.dtype);
    const Scope temps(c.temp);
    const Tensor losses = c.temp.alloc(output_->g.dtype, {all.rows()});
    const Tensor logits = c.temp.alloc(all.dtype, {rows, output_->w.rows()});
    for (int64_t first = 0; first < all.rows(); first += rows) {
        const int64_t n = std::min(rows, all.rows() - first);
        const Tensor chunk = logits.slice_rows(0, n);
        c.k.gemm(c.exec, chunk, all.slice_rows(first, n), transposed(output_->w), {});
        each(first, chunk, losses.slice_rows(first, n));
    }
    c.k.sum(c.exec, &c.scalars.loss, losses);
    if (part_) c.k.sum(c.exec, &(c.scalars.*part_), losses);
}

void LossHead::losses_of(Ctx& c, Tensor losses, Tensor dlogits, Tensor logits, Tensor labels) const {
    const int64_t n = logits.rows();
    const Scope temps(c.temp);
    const Tensor parts = c.temp.alloc(losses.dtype, {c.tp.size(), n}), lse = c.temp.alloc(losses.dtype, {n}),
                 at_label = c.temp.alloc(losses.dtype, {n});
    c.loss.statistics(c, parts, at_label, logits, labels, output_->params().front());
    c.k.add_log_sum_exp(c.exec, lse, parts);
    c.k.cross_entropy(c.exec, losses, dlogits, logits, labels, lse, at_label, vocabulary_part(*output_),
                      weight_, c.scalars);
}

void LossHead::forward(Ctx& c, Tensor x, Tensor labels) const {
    const Tensor dx = c.frame.keep(x.dtype, x.shape);
    {
        const Scope temps(c.temp);
        const Tensor all = gather_tokens(c, x), dall = parts_of(c, dx);
        for_each_chunk(c, all, [&](int64_t first, Tensor logits, Tensor losses) {
            const int64_t n = logits.rows();
            losses_of(c, losses, logits, logits, labels.slice_rows(first, n));
            c.k.gemm(c.exec, dall.slice_rows(first, n), logits, output_->w, {});
            c.frame.later(c, {.storage = output_, .x = all.slice_rows(first, n), .dy = logits});
        });
        scatter_tokens(c, dx, dall);
    }
    c.frame.push(this, dx);
}

Tensor LossHead::backward(Ctx& c) const {
    return c.frame.pop(this);
}

void LossHead::evaluate(Ctx& c, Tensor x, Tensor labels) const {
    const Scope temps(c.temp);
    for_each_chunk(c, gather_tokens(c, x), [&](int64_t first, Tensor logits, Tensor losses) {
        losses_of(c, losses, {}, logits, labels.slice_rows(first, logits.rows()));
    });
}

void LossHead::logits(Ctx& c, Tensor logits, Tensor x) const {
    require(c.tp.size() == 1, "logits are computed without tensor parallelism only");
    c.k.gemm(c.exec, logits, x, transposed(output_->w), {});
}

}  // namespace coeus
