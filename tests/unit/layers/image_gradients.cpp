// SPDX-License-Identifier: Apache-2.0
// The layers of models of images against finite differences, in double, at odd sizes including 1; recomputed
// or not.
#include "coeus/layers/double_stream.hpp"
#include "coeus/layers/flux_head.hpp"
#include "coeus/layers/flux_input.hpp"
#include "coeus/layers/recompute_block.hpp"
#include "coeus/layers/single_stream.hpp"
#include "support/catch.hpp"
#include "support/gradcheck.hpp"
#include "support/test_images.hpp"
#include "unit/layers/checked_layers.hpp"

#include <optional>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t head_width = 6, flux_heads = 2, flux_width = flux_heads * head_width, flux_inner = 5;
const StreamSizes stream_sizes = {
    .heads = flux_heads, .head_dim = head_width, .norm_eps = norm_eps, .qk_norm_eps = norm_eps};

struct CheckedLinear {
    const Storage &w, &b;
};
CheckedLinear checked_linear(Parameters& parameters, const std::string& name, int64_t outputs,
                             int64_t inputs) {
    const Storage& w = parameters.add(weight(name, outputs, inputs));
    return {w, parameters.add(norm_weight(name + ".bias", outputs))};
}

StreamLayers::Weights stream_weights(Parameters& parameters, const std::string& name) {
    const auto linear = [&](const char* of, int64_t outputs, int64_t inputs) {
        return checked_linear(parameters, name + of, outputs, inputs);
    };
    const CheckedLinear modulation = linear("mod", 6 * flux_width, flux_width),
                        qkv = linear("qkv", 3 * flux_width, flux_width),
                        proj = linear("proj", flux_width, flux_width),
                        in = linear("in", flux_inner, flux_width),
                        out = linear("out", flux_width, flux_inner);
    const Storage &q = parameters.add(norm_weight(name + "q", head_width)),
                  &k = parameters.add(norm_weight(name + "k", head_width));
    return {modulation.w, modulation.b, qkv.w, qkv.b, q, k, proj.w, proj.b, in.w, in.b, out.w, out.b};
}

SingleStream::Weights single_weights(Parameters& parameters) {
    const CheckedLinear modulation = checked_linear(parameters, "mod", 3 * flux_width, flux_width),
                        linear1 =
                            checked_linear(parameters, "linear1", 3 * flux_width + flux_inner, flux_width),
                        linear2 = checked_linear(parameters, "linear2", flux_width, flux_width + flux_inner);
    const Storage &q = parameters.add(norm_weight("q", head_width)),
                  &k = parameters.add(norm_weight("k", head_width));
    return {modulation.w, modulation.b, linear1.w, linear1.b, linear2.w, linear2.b, q, k};
}

// Angles of which all pairs differ.
RopeTable checked_table(int64_t patches) {
    RopeTable table(
        1 + patches, head_width,
        [](int64_t position, int64_t pair) { return 0.7 * double(position) / double(pair + 1); }, Dtype::f64);
    table.allocate();
    return table;
}

// A block of the flow {x, cond}; cond is a parameter, so that its gradient is checked too.
CheckedLayer checked_block(const std::shared_ptr<Block>& block, const Storage& cond) {
    return {[block, &cond](Ctx& c, Tensor x) {
                return block->forward(c, Flow({x, cond.w})).hidden();
            },
            [block, &cond](Ctx& c, Tensor dy) {
                const Tensor dcond = c.temp.alloc(Dtype::f64, cond.w.shape);
                c.k.zero(c.exec, dcond);
                const Flow din = block->backward(c, Flow({dy, dcond}));
                c.k.add(c.exec, cond.g, din.all()[1]);
                return din.hidden();
            }};
}

ImageSizes sizes_of_images(int64_t text_tokens, int64_t patches) {
    return {text_tokens, patches, 4, 5, 7, false};
}

// Samples, tokens of text, patches.
constexpr int64_t image_shapes[][3] = {{1, 1, 1}, {3, 2, 5}, {2, 1, 3}, {2, 40, 37}};

enum class Kept { all, recomputed, block };

}  // namespace

TEST_CASE("modulated norm: gradients, with and without a residual path, recomputed or not") {
    for (const auto& [samples, rows, width] : {std::array<int64_t, 3>{1, 1, 2}, {3, 5, 7}, {2, 67, 19}})
        for (const bool residual : {false, true})
            for (const bool recomputed : {false, true}) {
                CAPTURE(samples, rows, width, residual, recomputed);
                const int64_t all = samples * rows;
                const auto build = [&, samples = samples, width = width](Parameters& parameters) {
                    const Storage &m = parameters.add(weight("m", samples, 2 * width)),
                                  &w = parameters.add(weight("w", 3, width));
                    struct Layers {
                        Layers(const Storage& matrix, const Output& output)
                            : norm(norm_eps, output), linear(matrix, {output, norm}) {}
                        ModulatedNorm norm;
                        TokenLinear linear;
                    };
                    auto layers = std::make_shared<Layers>(w, recomputed ? Output::recomputed : Output::kept);
                    const auto part = [=](Tensor t, int64_t i) { return t.slice_cols(i * width, width); };
                    return CheckedLayer{[=, &m](Ctx& c, Tensor x) {
                                            const Scope temps(c.temp);
                                            const Tensor y =
                                                layers->norm.forward(c, x, part(m.w, 0), part(m.w, 1));
                                            return layers->linear.forward(c, y, x.dtype);
                                        },
                                        [=, &m](Ctx& c, Tensor dy) {
                                            const Tensor dx = c.frame.keep(dy.dtype, {all, width}),
                                                         dm = c.temp.alloc(dy.dtype, m.w.shape);
                                            c.k.zero(c.exec, dx);
                                            const Tensor dn = layers->linear.backward(c, dy);
                                            const Tensor got = layers->norm.backward(
                                                c, part(dm, 0), part(dm, 1), dn, residual ? dx : Tensor());
                                            c.k.add(c.exec, m.g, dm);
                                            return got;
                                        }};
                };
                CHECK(gradcheck(build, TestBatch(1, all, no_vocab), {.x = {all, width}}) == "");
            }
}

TEST_CASE("gated sum and activations: gradients") {
    const auto gated = [](Parameters& parameters) {
        const Storage& gate = parameters.add(weight("gate", 2, 5));
        auto sum = std::make_shared<GatedSum>();
        return CheckedLayer{[=, &gate](Ctx& c, Tensor x) {
                                const Tensor y = c.frame.keep(x.dtype, x.shape);
                                sum->forward(c, y, x, x, gate.w);
                                return y;
                            },
                            [=, &gate](Ctx& c, Tensor dy) {
                                const Tensor dgate = c.temp.alloc(dy.dtype, gate.w.shape);
                                const Tensor dx = sum->backward(c, dgate, dy);
                                c.k.add(c.exec, gate.g, dgate);
                                c.k.add(c.exec, dx, dy);
                                return dx;
                            }};
    };
    CHECK(gradcheck(gated, TestBatch(1, 6, no_vocab), {.x = {6, 5}}) == "");
    for (const Activation kind : {Activation::silu, Activation::gelu_tanh}) {
        const auto activated = [=](Parameters&) {
            auto layer = std::make_shared<Activated>(kind);
            return CheckedLayer{[=](Ctx& c, Tensor x) { return layer->forward(c, x); },
                                [=](Ctx& c, Tensor dy) { return layer->backward(c, dy); }};
        };
        CHECK(gradcheck(activated, TestBatch(1, 7, no_vocab), {.x = {7, 3}}) == "");
    }
}

TEST_CASE("blocks of two streams and of one: gradients, recomputed or not") {
    for (const auto& [samples, text, patches] : image_shapes)
        for (const Kept kept : {Kept::all, Kept::recomputed, Kept::block})
            for (const bool is_double : {true, false}) {
                if (text > 2 && kept != Kept::recomputed) continue;
                CAPTURE(samples, text, patches, int(kept), is_double);
                const TestImageBatch images(TestImages(sizes_of_images(text, patches), samples));
                const RopeTable table = checked_table(patches);
                const Output output = kept == Kept::recomputed ? Output::recomputed : Output::kept;
                const auto build = [&, samples = samples](Parameters& parameters) {
                    const Storage& cond = parameters.add(weight("cond", samples, flux_width));
                    std::unique_ptr<Block> block;
                    if (is_double) {
                        const StreamLayers::Outputs outputs = {output, output, output};
                        auto of_text = std::make_unique<StreamLayers>(stream_weights(parameters, "text."),
                                                                      stream_sizes, outputs);
                        block = std::make_unique<DoubleStream>(
                            std::move(of_text),
                            std::make_unique<StreamLayers>(stream_weights(parameters, "patches."),
                                                           stream_sizes, outputs),
                            stream_sizes, table);
                    } else {
                        block = std::make_unique<FromStreamOrder>(
                            std::make_unique<SingleStream>(single_weights(parameters), stream_sizes, table,
                                                           SingleStream::Outputs{output, output}));
                    }
                    if (kept == Kept::block) block = std::make_unique<RecomputeBlock>(std::move(block));
                    return checked_block(std::move(block), cond);
                };
                CHECK(gradcheck(build, images.batch(),
                                {.x = {samples * (text + patches), flux_width}, .entries = 5}) == "");
            }
}

TEST_CASE("input and head of a model of images: gradients") {
    for (const bool guidance : {false, true}) {
        ImageSizes sizes = sizes_of_images(2, 3);
        sizes.reads_guidance = guidance;
        const TestImageBatch images(TestImages(sizes, 3));
        const auto build = [&](Parameters& parameters) {
            const auto linear = [&](const char* name, int64_t outputs, int64_t inputs) {
                return checked_linear(parameters, name, outputs, inputs);
            };
            const auto embedding = [&](const std::string& name, int64_t inputs) -> SampleEmbedding::Weights {
                const CheckedLinear in = linear((name + ".in").c_str(), flux_width, inputs),
                                    out = linear((name + ".out").c_str(), flux_width, flux_width);
                return {in.w, in.b, out.w, out.b};
            };
            const CheckedLinear patches = linear("patches", flux_width, sizes.patch_width),
                                text = linear("text", flux_width, sizes.text_width),
                                modulation = linear("mod", 2 * flux_width, flux_width),
                                last = linear("last", sizes.patch_width, flux_width);
            std::vector<SampleEmbedding::Weights> of_guidance;
            if (guidance) of_guidance.push_back(embedding("guidance", time_features));
            auto input = std::make_shared<FluxInput>(
                FluxInput::Weights{patches.w, patches.b, embedding("time", time_features),
                                   embedding("pooled", sizes.pooled_width), of_guidance, text.w, text.b});
            auto head = std::make_shared<FluxHead>(
                FluxHead::Weights{modulation.w, modulation.b, last.w, last.b}, norm_eps, Output::recomputed);
            return CheckedLayer{[=](Ctx& c, Tensor) {
                                    Flow flow = input->forward(c, {});
                                    const Tensor rows = c.frame.keep(Dtype::f64, flow.hidden().shape);
                                    to_sample_order(c, rows, flow.hidden());
                                    head->forward(c, Flow({rows, flow.all()[1]}));
                                    Flow gradient = head->backward(c);
                                    const Tensor back = c.frame.keep(Dtype::f64, rows.shape);
                                    to_stream_order(c, back, gradient.hidden());
                                    input->backward(c, Flow({back, gradient.all()[1]}));
                                    return Tensor{};
                                },
                                [](Ctx&, Tensor) { return Tensor{}; }};
        };
        CHECK(gradcheck(build, images.batch(), {.entries = 5}) == "");
    }
}
