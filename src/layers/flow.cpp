// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/flow.hpp"

#include "coeus/layers/context.hpp"

namespace coeus {

void cast_flow(Ctx& c, const Flow& to, const Flow& from) {
    require(to.count() == from.count(), "flows have different numbers of tensors");
    for (size_t i = 0; i < from.all().size(); ++i) c.k.cast(c.exec, to.all()[i], from.all()[i]);
}

void add_flow(Ctx& c, const Flow& to, const Flow& from) {
    require(to.count() == from.count(), "flows have different numbers of tensors");
    for (size_t i = 0; i < from.all().size(); ++i) c.k.add(c.exec, to.all()[i], from.all()[i]);
}

Flow keep_like(Ctx& c, const Flow& like) {
    Flow kept;
    for (const Tensor& tensor : like.all()) kept.add(c.frame.keep(tensor.dtype, tensor.shape));
    return kept;
}

void push_flow(Ctx& c, const void* owner, const Flow& flow) {
    for (const Tensor& tensor : flow.all()) c.frame.push(owner, tensor);
}

Flow pop_flow(Ctx& c, const void* owner, int count) {
    std::array<Tensor, Flow::most> tensors;
    for (int i = count; i-- > 0;) tensors[size_t(i)] = c.frame.pop(owner);
    Flow flow;
    for (int i = 0; i < count; ++i) flow.add(tensors[size_t(i)]);
    return flow;
}

}  // namespace coeus
