// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/flux_head.hpp"

namespace coeus {

FluxHead::FluxHead(const Weights& w, double norm_eps, Output normed)
    : modulation_(w.modulation, w.modulation_bias),
      norm_(norm_eps, normed),
      linear_(w.linear, {normed, norm_}, &w.linear_bias) {}

// [S P, p], kept. `temps` of the caller has what is not kept.
Tensor FluxHead::prediction(Ctx& c, const Flow& in) const {
    const Tensor x = in.all()[0], cond = in.all()[1], back = c.batch.images.back;
    const int64_t width = x.cols(), text_rows = c.batch.sequences * c.batch.images.text_tokens;
    const Tensor patches = c.frame.keep(x.dtype, {x.rows() - text_rows, width});
    c.k.gather_rows(c.exec, patches, x, back.slice_rows(text_rows, patches.rows()), 1);
    const Tensor m = modulation_.forward(c, cond, x.dtype);
    const Tensor normed = norm_.forward(c, patches, m.slice_cols(0, width), m.slice_cols(width, width));
    return linear_.forward(c, normed, x.dtype);
}

// Its gradient goes to `dprediction`, which may be absent.
void FluxHead::add_loss(Ctx& c, Tensor dprediction, Tensor prediction) const {
    const Scope temps(c.temp);
    const ImageRows& images = c.batch.images;
    const Tensor losses = c.temp.alloc(images.target.dtype, {prediction.rows()});
    c.k.squared_error(c.exec, losses, dprediction, prediction, images.target, images.weights,
                      rows_of_samples(prediction, images.weights), c.scalars);
    c.k.sum(c.exec, &c.scalars.loss, losses);
}

void FluxHead::forward(Ctx& c, Flow in) const {
    const Tensor x = in.all()[0], cond = in.all()[1];
    const Tensor dx = c.frame.keep(x.dtype, x.shape), dcond = c.frame.keep(cond.dtype, cond.shape);
    {
        const FrameScope kept(c.frame);
        const Scope temps(c.temp);
        const Tensor y = prediction(c, in);
        add_loss(c, y, y);
        const int64_t width = x.cols();
        const Tensor dm = c.temp.alloc(cond.dtype, {cond.rows(), 2 * width}),
                     rows = c.temp.alloc(x.dtype, x.shape);
        const Tensor dpatches = norm_.backward(c, dm.slice_cols(0, width), dm.slice_cols(width, width),
                                               linear_.backward(c, y), {});
        c.k.zero(c.exec, dcond);
        modulation_.backward(c, dcond, dm, x.dtype);
        // the text has no gradient here
        const Streams streams(c.batch, rows);
        c.k.zero(c.exec, streams.text);
        c.k.cast(c.exec, streams.patches, dpatches);
        to_sample_order(c, dx, rows);
    }
    push_flow(c, this, Flow({dx, dcond}));
}

Flow FluxHead::backward(Ctx& c) const {
    return pop_flow(c, this, 2);
}

void FluxHead::evaluate(Ctx& c, Flow in) const {
    const Scope temps(c.temp);
    add_loss(c, {}, prediction(c, in));
}

void FluxHead::predict(Ctx& c, Tensor out, Flow in) const {
    const Scope temps(c.temp);
    c.k.cast(c.exec, out, prediction(c, in));
}

}  // namespace coeus
