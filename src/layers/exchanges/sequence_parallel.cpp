// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/sequence_parallel.hpp"

namespace coeus {

Tensor room_for_all(Ctx& c, Arena& arena, Tensor x) {
    const Shape shape = {x.rows() * c.tp.size(), x.cols()};
    if (x.groups == ScaleGroups::none) return arena.alloc(x.dtype, shape);
    if (x.groups == ScaleGroups::one || x.groups == ScaleGroups::cols) {
        Tensor all = arena.alloc(x.dtype, shape);
        all.groups = x.groups;
        all.scale = x.scale;
        return all;
    }
    const Tensor all = arena.alloc(x.dtype, shape, x.groups);
    const Tensor scales = scales_of(all);
    const ObservedExchange noted(c.exec, Exchange::gather_tokens, scales);
    c.tp.all_gather(c.exec, scales, scales_of(x));
    return all;
}

Tensor gather_tokens(Ctx& c, Tensor x) {
    if (c.tp.size() == 1) return x;
    const Tensor all = room_for_all(c, c.temp, x);
    const ObservedExchange noted(c.exec, Exchange::gather_tokens, all);
    c.tp.all_gather(c.exec, all, x);
    return all;
}

Tensor parts_of(Ctx& c, Tensor y) {
    if (c.tp.size() == 1) return y;
    return c.temp.alloc(y.dtype, {y.rows() * c.tp.size(), y.cols()});
}

void scatter_tokens(Ctx& c, Tensor y, Tensor parts) {
    if (c.tp.size() == 1) return;
    const ObservedExchange noted(c.exec, Exchange::scatter_tokens, parts);
    c.tp.reduce_scatter(c.exec, y, parts);
}

namespace {

class WholeTokens : public TokenExchange {
public:
    void gather_parts(Ctx& c, Tensor x, int64_t /*columns*/, EachRows each) const override {
        each(gather_tokens(c, x), 0);
    }
    Tensor gather(Ctx& c, Tensor x, int64_t /*columns*/, EachRows each) const override {
        const Tensor all = gather_tokens(c, x);
        each(all, 0);
        return all;
    }
    Tensor gather(Ctx& c, Tensor x) const override { return gather_tokens(c, x); }
    void begin_gather(Ctx& /*c*/, Tensor /*x*/) const override {}
    void scatter(Ctx& c, Tensor y, EachRows compute, Work meanwhile) const override {
        {
            const Scope temps(c.temp);
            const Tensor parts = parts_of(c, y);
            compute(parts, 0);
            scatter_tokens(c, y, parts);
        }
        meanwhile();
    }
};

}  // namespace

const TokenExchange& whole_tokens() {
    static const WholeTokens whole;
    return whole;
}

}  // namespace coeus
