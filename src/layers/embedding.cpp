// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/embedding.hpp"

namespace coeus {

Tensor Embedding::forward(Ctx& c) const {
    Tensor y = c.frame.keep(table_->w.dtype, {c.batch.count(), table_->w.cols()});
    c.k.embedding(c.exec, y, c.batch.tokens, table_->w);
    return y;
}

void Embedding::backward(Ctx& c, Tensor dy) const {
    if (table_->trainable()) c.k.embedding_backward(c.exec, table_->g, dy, c.batch.tokens);
}

}  // namespace coeus
