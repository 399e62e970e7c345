// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/flux_input.hpp"

#include "coeus/layers/image_streams.hpp"

namespace coeus {

Tensor SampleEmbedding::forward(Ctx& c, Tensor x, Tensor plus) const {
    return out_.forward(c, silu_.forward(c, in_.forward(c, x, x.dtype)), acc_of(x.dtype), plus);
}

void SampleEmbedding::backward(Ctx& c, Tensor dy) const {
    const Scope temps(c.temp);
    in_.backward(c, silu_.backward(c, out_.backward(c, dy)));
}

FluxInput::FluxInput(const Weights& w)
    : text_(w.text, {}, &w.text_bias), patches_(w.patches, {}, &w.patches_bias) {
    embeddings_.push_back(std::make_unique<SampleEmbedding>(w.time));
    embeddings_.push_back(std::make_unique<SampleEmbedding>(w.pooled));
    for (const SampleEmbedding::Weights& guidance : w.guidance)
        embeddings_.push_back(std::make_unique<SampleEmbedding>(guidance));
}

Flow FluxInput::forward(Ctx& c, Flow /*in*/) const {
    const ImageRows& images = c.batch.images;
    const std::array inputs = {images.times, images.pooled, images.guidance};
    Tensor vec;
    for (size_t i = 0; i < embeddings_.size(); ++i) vec = embeddings_[i]->forward(c, inputs[i], vec);
    const Tensor cond = c.frame.keep(vec.dtype, vec.shape);
    c.k.activation(c.exec, cond, vec, Activation::silu);
    c.frame.push(this, vec);
    const Tensor x = c.frame.keep(images.noisy.dtype, {c.batch.count(), vec.cols()});
    const Streams rows(c.batch, x);
    c.k.zero(c.exec, x);
    text_.forward(c, images.text, x.dtype, rows.text);
    patches_.forward(c, images.noisy, x.dtype, rows.patches);
    return Flow({x, cond});
}

Flow FluxInput::backward(Ctx& c, Flow dout) const {
    Tensor dx = dout.all()[0];
    const Tensor dcond = dout.all()[1];
    dx.largest = nullptr;
    const Scope temps(c.temp);
    const Streams rows(c.batch, dx);
    {
        const Scope of_streams(c.temp);
        patches_.backward(c, rows.patches);
        text_.backward(c, rows.text);
    }
    c.k.activation_backward(c.exec, dcond, dcond, c.frame.pop(this), Activation::silu);
    Tensor dvec = dcond;
    if (dx.dtype != dcond.dtype) {
        dvec = c.temp.alloc(dx.dtype, dcond.shape);
        c.k.cast(c.exec, dvec, dcond);
    }
    for (auto embedding = embeddings_.rbegin(); embedding != embeddings_.rend(); ++embedding)
        (*embedding)->backward(c, dvec);
    return Flow({dx, dcond});
}

}  // namespace coeus
