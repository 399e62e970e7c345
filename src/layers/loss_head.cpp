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

// Context-parallel ranks have other rows of a chunk, and tensor-parallel ranks have the same.
Division rows_of(const Ctx& c) {
    return {.rows = c.cp, .more_rows = alone(), .columns = alone()};
}

}  // namespace

// Calls each(first row, x, logits [n, V/P], losses [n]) for chunks of n rows of all tokens [T, D]; x has the
// rows in the form of the forward's product.
template <class Each>
void LossHead::for_each_chunk(Ctx& c, Tensor all, const Each& each) const {
    const int64_t columns = div_ceil(output_->params().front().shape.rows(), c.tp.size());
    const int64_t rows = chunk_rows(c.k, all.rows(), columns, all.dtype);
    const Scope temps(c.temp);
    const Tensor losses = c.temp.alloc(output_->g.dtype, {all.rows()});
    const Tensor logits = c.temp.alloc(all.dtype, {rows, output_->w.rows()});
    const Tensor w = projection_.for_forward(c);
    for (int64_t first = 0; first < all.rows(); first += rows) {
        const int64_t n = std::min(rows, all.rows() - first);
        const Tensor chunk = logits.slice_rows(0, n);
        const Scope of_chunk(c.temp);
        const Tensor x = quantized(c, all.slice_rows(first, n), projection_.forms().x, rows_of(c));
        multiply(c, chunk, x, transposed(w), {}, true);
        each(first, x, chunk, losses.slice_rows(first, n));
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
        const Tensor all = gather_tokens(c, x), dall = parts_of(c, dx), w = projection_.for_input_gradient(c);
        const RecipeForms& forms = projection_.forms();
        const Division by = Division::columns_of_tokens(c);
        for_each_chunk(c, all, [&](int64_t first, Tensor input, Tensor logits, Tensor losses) {
            const int64_t n = logits.rows();
            losses_of(c, losses, logits, logits, labels.slice_rows(first, n));
            Tensor gradient = quantized(c, logits, forms.dy, by);
            multiply(c, dall.slice_rows(first, n), gradient, w);
            if (forms.dy_of_weight != forms.dy) gradient = quantized(c, logits, forms.dy_of_weight, by);
            if (forms.x_of_weight != forms.x)
                input = quantized(c, all.slice_rows(first, n), forms.x_of_weight, rows_of(c));
            c.frame.later(c, {.parts = {output_, gradient}, .x = input});
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
    for_each_chunk(c, gather_tokens(c, x), [&](int64_t first, Tensor, Tensor logits, Tensor losses) {
        losses_of(c, losses, {}, logits, labels.slice_rows(first, logits.rows()));
    });
}

void LossHead::logits(Ctx& c, Tensor logits, Tensor x) const {
    require(c.tp.size() == 1, "logits are computed without tensor parallelism only");
    const Scope temps(c.temp);
    multiply(c, logits, quantized(c, x, projection_.forms().x, rows_of(c)),
             transposed(projection_.for_forward(c)));
}

}  // namespace coeus
