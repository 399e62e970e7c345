// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/embedding.hpp"

#include "coeus/layers/exchanges/sequence_parallel.hpp"

namespace coeus {

Flow Embedding::forward(Ctx& c, Flow in) const {
    const Tensor y = c.frame.keep(table_->w.dtype, {c.batch.count() / c.tp.size(), table_->w.cols()});
    const Scope temps(c.temp);
    const Tensor parts = parts_of(c, y);
    c.k.embedding(c.exec, parts, c.batch.tokens_ahead(depth_), table_->w, vocabulary_part(*table_, scale_));
    scatter_tokens(c, y, parts);
    in.add(y);
    return in;
}

Flow Embedding::backward(Ctx& c, Flow dout) const {
    if (table_->trainable()) {
        const Scope temps(c.temp);
        const Tensor all = gather_tokens(c, dout.all().back());
        c.k.embedding_backward(c.exec, table_->g, all, c.batch.tokens_ahead(depth_),
                               vocabulary_part(*table_, scale_));
    }
    Flow others;
    for (const Tensor& tensor : dout.all().first(dout.all().size() - 1)) others.add(tensor);
    return others;
}

}  // namespace coeus
