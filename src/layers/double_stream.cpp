// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/double_stream.hpp"

namespace coeus {

namespace {

// The parts of a stream's modulations, in the order of the matrix's rows.
struct StreamParts {
    enum : int64_t { shift, scale, gate, mlp_shift, mlp_scale, mlp_gate, number };
};

}  // namespace

StreamLayers::StreamLayers(const Weights& w, const StreamSizes& sizes, const Outputs& outputs)
    : width_(sizes.width()),
      modulation_(w.modulation, w.modulation_bias),
      norm_(sizes.norm_eps, outputs.normed),
      norm_for_mlp_(sizes.norm_eps, outputs.normed_for_mlp),
      gelu_(Activation::gelu_tanh, outputs.activated),
      qkv_(w.qkv, {outputs.normed, norm_}, &w.qkv_bias),
      proj_(w.proj, {}, &w.proj_bias),
      mlp_in_(w.mlp_in, {outputs.normed_for_mlp, norm_for_mlp_}, &w.mlp_in_bias),
      mlp_out_(w.mlp_out, {outputs.activated, gelu_}, &w.mlp_out_bias),
      heads_(norms_of_heads(sizes, w.q_norm, w.k_norm)) {}

Tensor StreamLayers::part(Tensor modulations, int64_t number) const {
    return modulations.slice_cols(number * width_, width_);
}

StreamLayers::Kept StreamLayers::before_attention(Ctx& c, Tensor x, Tensor cond) const {
    const Scope temps(c.temp);
    const Tensor m = modulation_.forward(c, cond, x.dtype);
    return {m, qkv_.forward(c, norm_.forward(c, x, part(m, StreamParts::shift), part(m, StreamParts::scale)),
                            x.dtype)};
}

void StreamLayers::norm_heads(Ctx& c, Tensor joined, Tensor raw) const {
    heads_->forward(c, joined.slice_cols(0, 2 * width_), raw.slice_cols(0, 2 * width_), {});
    c.k.cast(c.exec, joined.slice_cols(2 * width_, width_), raw.slice_cols(2 * width_, width_));
}

void StreamLayers::after_attention(Ctx& c, Tensor out, Tensor x, Tensor attended, Tensor m) const {
    const Scope temps(c.temp);
    const Tensor middle = c.frame.keep(x.dtype, {x.rows(), width_});
    after_attention_.forward(c, middle, x, proj_.forward(c, attended, x.dtype), part(m, StreamParts::gate));
    const Tensor normed =
        norm_for_mlp_.forward(c, middle, part(m, StreamParts::mlp_shift), part(m, StreamParts::mlp_scale));
    const Tensor inner = mlp_in_.forward(c, normed, x.dtype);
    const Tensor result = mlp_out_.forward(c, gelu_.forward(c, inner), x.dtype);
    if (out)
        after_mlp_.forward(c, out, middle, result, part(m, StreamParts::mlp_gate));
    else
        after_mlp_.rebuild(c, result, part(m, StreamParts::mlp_gate));
}

void StreamLayers::backward_after(Ctx& c, Tensor dattended, Tensor dx, Tensor dm) const {
    const Scope temps(c.temp);
    {
        const Scope of_mlp(c.temp);
        const Tensor dresult = after_mlp_.backward(c, part(dm, StreamParts::mlp_gate), dx);
        const Tensor dinner = gelu_.backward(c, mlp_out_.backward(c, dresult));
        norm_for_mlp_.backward(c, part(dm, StreamParts::mlp_shift), part(dm, StreamParts::mlp_scale),
                               mlp_in_.backward(c, dinner), dx);
    }
    const Tensor dproj = after_attention_.backward(c, part(dm, StreamParts::gate), dx);
    c.k.cast(c.exec, dattended, proj_.backward(c, dproj));
}

void StreamLayers::norm_heads_backward(Ctx& c, Tensor raw, Tensor djoined) const {
    const Tensor heads = raw.slice_cols(0, 2 * width_);
    heads_->backward(c, heads, djoined.slice_cols(0, 2 * width_), heads, {});
    c.k.cast(c.exec, raw.slice_cols(2 * width_, width_), djoined.slice_cols(2 * width_, width_));
}

void StreamLayers::backward_before(Ctx& c, Tensor dx, Tensor draw, Tensor dm, Tensor dcond) const {
    const Scope temps(c.temp);
    norm_.backward(c, part(dm, StreamParts::shift), part(dm, StreamParts::scale), qkv_.backward(c, draw), dx);
    modulation_.backward(c, dcond, dm, dx.dtype);
}

AttentionTensors DoubleStream::tensors(const Batch& batch, Tensor samples, Tensor out, Tensor lse) const {
    const int64_t width = sizes_.width();
    return attention_of_samples(batch, sizes_, samples.slice_cols(0, 2 * width),
                                samples.slice_cols(2 * width, width), out, lse);
}

// Queries and keys after norms and RoPE, and values, of all samples [S (T + P), 3 D], in temp.
Tensor DoubleStream::rotated(Ctx& c, Tensor text_raw, Tensor patches_raw) const {
    const Tensor samples =
        c.temp.alloc(text_raw.dtype, {text_raw.rows() + patches_raw.rows(), text_raw.cols()});
    {
        const Scope temps(c.temp);
        const Tensor joined = c.temp.alloc(samples.dtype, samples.shape);
        const Streams parts(c.batch, joined);
        text_->norm_heads(c, parts.text, text_raw);
        patches_->norm_heads(c, parts.patches, patches_raw);
        to_sample_order(c, samples, joined);
    }
    const Tensor heads = samples.slice_cols(0, 2 * sizes_.width());
    rotation_->forward(c, heads, heads, {});
    return samples;
}

void DoubleStream::compute(Ctx& c, const Flow& in, Tensor out) const {
    const Tensor x = in.all()[0], cond = in.all()[1];
    const Streams rows(c.batch, x);
    const StreamLayers::Kept text = text_->before_attention(c, rows.text, cond),
                             patches = patches_->before_attention(c, rows.patches, cond);
    const Tensor attended = c.frame.keep(x.dtype, x.shape);
    const Tensor lse = c.frame.keep(acc_of(x.dtype), {sizes_.heads, x.rows()});
    {
        const Scope temps(c.temp);
        const Tensor samples = rotated(c, text.raw, patches.raw), of_samples = c.temp.alloc(x.dtype, x.shape);
        c.kv.forward(c, tensors(c.batch, samples, of_samples, lse));
        to_stream_order(c, attended, of_samples);
    }
    for (const Tensor& tensor : {text.raw, patches.raw, attended, lse}) c.frame.push(this, tensor);
    const Streams attended_rows(c.batch, attended);
    const Streams results = out ? Streams(c.batch, out) : Streams();
    text_->after_attention(c, results.text, rows.text, attended_rows.text, text.modulations);
    patches_->after_attention(c, results.patches, rows.patches, attended_rows.patches, patches.modulations);
}

Flow DoubleStream::forward(Ctx& c, Flow in) const {
    const Tensor x = in.hidden(), out = c.frame.keep(x.dtype, x.shape);
    compute(c, in, out);
    return Flow({out, in.all()[1]});
}

void DoubleStream::rebuild(Ctx& c, Flow in) const {
    compute(c, in, {});
}

Flow DoubleStream::backward(Ctx& c, Flow dout) const {
    Tensor dx = dout.all()[0];
    const Tensor dcond = dout.all()[1];
    dx.largest = nullptr;
    const Scope temps(c.temp);
    const Shape modulations = {dcond.rows(), StreamParts::number * sizes_.width()};
    const Tensor text_dm = c.temp.alloc(dcond.dtype, modulations),
                 patches_dm = c.temp.alloc(dcond.dtype, modulations),
                 dattended = c.temp.alloc(dx.dtype, dx.shape);
    const Streams dx_rows(c.batch, dx), dattended_rows(c.batch, dattended);
    patches_->backward_after(c, dattended_rows.patches, dx_rows.patches, patches_dm);
    text_->backward_after(c, dattended_rows.text, dx_rows.text, text_dm);
    const Tensor lse = c.frame.pop(this), attended = c.frame.pop(this), patches_raw = c.frame.pop(this),
                 text_raw = c.frame.pop(this);
    {
        const Scope of_attention(c.temp);
        const Tensor samples = rotated(c, text_raw, patches_raw), out = c.temp.alloc(dx.dtype, dx.shape),
                     dout_of_samples = c.temp.alloc(dx.dtype, dx.shape);
        to_sample_order(c, out, attended);
        to_sample_order(c, dout_of_samples, dattended);
        c.kv.backward(c, tensors(c.batch, samples, out, lse), dout_of_samples);
        const Tensor heads = samples.slice_cols(0, 2 * sizes_.width());
        rotation_->backward(c, heads, heads, {}, {});
        const Tensor joined = c.temp.alloc(dx.dtype, samples.shape);
        to_stream_order(c, joined, samples);
        const Streams parts(c.batch, joined);
        text_->norm_heads_backward(c, text_raw, parts.text);
        patches_->norm_heads_backward(c, patches_raw, parts.patches);
    }
    patches_->backward_before(c, dx_rows.patches, patches_raw, patches_dm, dcond);
    text_->backward_before(c, dx_rows.text, text_raw, text_dm, dcond);
    return Flow({dx, dcond});
}

}  // namespace coeus
