// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/single_stream.hpp"

namespace coeus {

namespace {

struct SingleParts {
    enum : int64_t { shift, scale, gate, number };
};

HeadSteps::List steps_of(const SingleStream::Weights& w, const StreamSizes& sizes, const RopeTable& table) {
    HeadSteps::List steps;
    steps.push_back(norms_of_heads(sizes, w.q_norm, w.k_norm));
    steps.push_back(rotation_of_heads(sizes, table));
    return steps;
}

}  // namespace

SingleStream::SingleStream(const Weights& w, const StreamSizes& sizes, const RopeTable& table,
                           const Outputs& outputs)
    : sizes_(sizes),
      modulation_(w.modulation, w.modulation_bias),
      norm_(sizes.norm_eps, outputs.normed),
      gelu_(Activation::gelu_tanh, outputs.activated),
      linear1_(w.linear1, {outputs.normed, norm_}, &w.linear1_bias),
      linear2_(w.linear2, {outputs.activated, gelu_}, &w.linear2_bias),
      steps_(steps_of(w, sizes, table)) {}

Tensor SingleStream::part(Tensor modulations, int64_t number) const {
    return modulations.slice_cols(number * sizes_.width(), sizes_.width());
}

SingleStream::Computed SingleStream::compute(Ctx& c, const Flow& in) const {
    const Tensor x = in.all()[0], cond = in.all()[1];
    const int64_t width = sizes_.width();
    const Scope temps(c.temp);
    const Tensor m = modulation_.forward(c, cond, x.dtype);
    const Tensor normed = norm_.forward(c, x, part(m, SingleParts::shift), part(m, SingleParts::scale));
    const Tensor y = linear1_.forward(c, normed, x.dtype);
    const Tensor attended = c.frame.keep(x.dtype, x.shape);
    const Tensor lse = c.frame.keep(acc_of(x.dtype), {sizes_.heads, x.rows()});
    {
        const Scope of_attention(c.temp);
        const Tensor qk = steps_.forward(c, y.slice_cols(0, 2 * width), {});
        c.kv.forward(
            c, attention_of_samples(c.batch, sizes_, qk, y.slice_cols(2 * width, width), attended, lse));
    }
    for (const Tensor& tensor : {y, attended, lse}) c.frame.push(this, tensor);
    const Tensor inner = y.slice_cols(3 * width, y.cols() - 3 * width);
    return {linear2_.forward(c, gelu_.forward(c, attended, inner), x.dtype), m};
}

Flow SingleStream::forward(Ctx& c, Flow in) const {
    const Tensor x = in.hidden(), out = c.frame.keep(x.dtype, x.shape);
    const Computed computed = compute(c, in);
    sum_.forward(c, out, x, computed.result, part(computed.modulations, SingleParts::gate));
    return Flow({out, in.all()[1]});
}

void SingleStream::rebuild(Ctx& c, Flow in) const {
    const Computed computed = compute(c, in);
    sum_.rebuild(c, computed.result, part(computed.modulations, SingleParts::gate));
}

Flow SingleStream::backward(Ctx& c, Flow dout) const {
    Tensor dx = dout.all()[0];
    const Tensor dcond = dout.all()[1];
    dx.largest = nullptr;
    const int64_t width = sizes_.width();
    const Scope temps(c.temp);
    const Tensor dm = c.temp.alloc(dcond.dtype, {dcond.rows(), SingleParts::number * width});
    const Tensor dresult = sum_.backward(c, part(dm, SingleParts::gate), dx);
    const Tensor dattended = gelu_.backward(c, linear2_.backward(c, dresult));
    const Tensor lse = c.frame.pop(this), attended = c.frame.pop(this), y = c.frame.pop(this);
    {
        const Scope of_attention(c.temp);
        const HeadSteps::Backward steps(c, steps_, y.slice_cols(0, 2 * width), {});
        // the gradients overwrite queries, keys and values
        c.kv.backward(c,
                      attention_of_samples(c.batch, sizes_, steps.result(), y.slice_cols(2 * width, width),
                                           attended, lse),
                      dattended);
        steps.finish(c);
    }
    norm_.backward(c, part(dm, SingleParts::shift), part(dm, SingleParts::scale), linear1_.backward(c, y),
                   dx);
    modulation_.backward(c, dcond, dm, dx.dtype);
    return Flow({dx, dcond});
}

}  // namespace coeus
