// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/loss_head.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Rows of a chunk: logits of about 8 MiB, which the last-level cache holds, but enough rows for an efficient
// GEMM.
int64_t chunk_rows(int64_t tokens, int64_t vocabulary, Dtype dtype) {
    const int64_t fitting = (int64_t(8) << 20) / (vocabulary * size_of(dtype)) / 64 * 64;
    return std::min(tokens, std::max<int64_t>(256, fitting));
}

}  // namespace

// Calls each(first row, logits [n, V], losses [n]) with the logits of n rows.
template <class Each>
void LossHead::for_each_chunk(Ctx& c, Tensor normed, const Each& each) const {
    const int64_t rows = chunk_rows(normed.rows(), output_->w.rows(), normed.dtype);
    const Scope temps(c.temp);
    Tensor losses = c.temp.alloc(output_->g.dtype, {normed.rows()});
    const Tensor logits = c.temp.alloc(normed.dtype, {rows, output_->w.rows()});
    for (int64_t first = 0; first < normed.rows(); first += rows) {
        const int64_t n = std::min(rows, normed.rows() - first);
        const Tensor chunk = logits.slice_rows(0, n);
        c.k.gemm(c.exec, chunk, normed.slice_rows(first, n), transposed(output_->w), {});
        each(first, chunk, losses.slice_rows(first, n));
    }
    c.k.sum(c.exec, &c.scalars.loss, losses);
}

void LossHead::forward(Ctx& c, Tensor x) const {
    const Tensor normed = norm_->forward(c, x);
    const Tensor dnormed = c.frame.keep(x.dtype, x.shape);
    for_each_chunk(c, normed, [&](int64_t first, Tensor logits, Tensor losses) {
        const int64_t n = logits.rows();
        c.k.cross_entropy(c.exec, losses, logits, logits, c.batch.labels.slice_rows(first, n), c.scalars);
        c.k.gemm(c.exec, dnormed.slice_rows(first, n), logits, output_->w, {});
        c.frame.later(c, {output_, normed.slice_rows(first, n), logits});
    });
    c.frame.push(this, dnormed);
}

Tensor LossHead::backward(Ctx& c) const {
    const Tensor dnormed = c.frame.pop(this);
    return norm_->backward(c, dnormed, {});
}

void LossHead::evaluate(Ctx& c, Tensor x) const {
    for_each_chunk(c, norm_->forward(c, x), [&](int64_t first, Tensor logits, Tensor losses) {
        c.k.cross_entropy(c.exec, losses, {}, logits, c.batch.labels.slice_rows(first, logits.rows()),
                          c.scalars);
    });
}

void LossHead::logits(Ctx& c, Tensor logits, Tensor x) const {
    c.k.gemm(c.exec, logits, norm_->forward(c, x), transposed(output_->w), {});
}

}  // namespace coeus
