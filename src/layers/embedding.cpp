// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/embedding.hpp"

#include "coeus/layers/sequence_parallel.hpp"

namespace coeus {

Tensor Embedding::forward(Ctx& c) const {
    const Tensor y = c.frame.keep(table_->w.dtype, {c.batch.count() / c.tp.size(), table_->w.cols()});
    const Scope temps(c.temp);
    const Tensor parts = parts_of(c, y);
    c.k.embedding(c.exec, parts, c.batch.tokens, table_->w, vocabulary_part(*table_));
    scatter_tokens(c, y, parts);
    return y;
}

void Embedding::backward(Ctx& c, Tensor dy) const {
    const Scope temps(c.temp);
    const Tensor all = gather_tokens(c, dy);
    if (table_->trainable())
        c.k.embedding_backward(c.exec, table_->g, all, c.batch.tokens, vocabulary_part(*table_));
}

}  // namespace coeus
