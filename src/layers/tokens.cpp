// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/tokens.hpp"

namespace coeus {

Tensor gather_tokens(Ctx& c, Tensor x) {
    if (c.tp.size() == 1) return x;
    const Tensor all = c.temp.alloc(x.dtype, {x.rows() * c.tp.size(), x.cols()});
    const ObservedExchange noted(c.exec, "gather_tokens", all);
    c.tp.all_gather(c.exec, all, x);
    return all;
}

Tensor parts_of(Ctx& c, Tensor y) {
    if (c.tp.size() == 1) return y;
    return c.temp.alloc(y.dtype, {y.rows() * c.tp.size(), y.cols()});
}

void scatter_tokens(Ctx& c, Tensor y, Tensor parts) {
    if (c.tp.size() == 1) return;
    const ObservedExchange noted(c.exec, "scatter_tokens", parts);
    c.tp.reduce_scatter(c.exec, y, parts);
}

}  // namespace coeus
