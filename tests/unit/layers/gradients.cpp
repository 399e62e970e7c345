// SPDX-License-Identifier: Apache-2.0
// Every layer's backward against finite differences, in double, at odd sizes including 1.
#include "../../../src/models/decoder_head.hpp"
#include "coeus/layers/attention.hpp"
#include "coeus/layers/block.hpp"
#include "coeus/layers/embedding.hpp"
#include "coeus/layers/feed_forward.hpp"
#include "coeus/layers/latent_attention.hpp"
#include "coeus/layers/linear.hpp"
#include "coeus/layers/norm.hpp"
#include "coeus/layers/parallel_block.hpp"
#include "coeus/layers/recompute_block.hpp"
#include "coeus/layers/shared_expert.hpp"
#include "support/catch.hpp"
#include "support/gradcheck.hpp"
#include "unit/layers/attention_layers.hpp"
#include "unit/layers/checked_layers.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

// residual + attention(x), where the residual is x itself.
std::string check_attention(const AttentionHeads& config, int64_t width, const TestBatch& batch,
                            int entries = 15, const Extra& extra = {}) {
    const auto build = [&](Parameters& parameters) {
        auto layer = std::make_shared<AttentionLayer>(parameters, config, width, batch.seq_len, extra);
        return CheckedLayer{[layer](Ctx& c, Tensor x) { return layer->attention.forward(c, x, x); },
                            [layer](Ctx& c, Tensor dy) {
                                const Tensor dx = layer->attention.backward(c, dy);
                                c.k.add(c.exec, dx, dy);
                                return dx;
                            }};
    };
    return gradcheck(build, batch, {.x = {batch.sequences * batch.seq_len, width}, .entries = entries});
}

// x + layer(x)
CheckedLayer with_residual(const std::shared_ptr<Sublayer>& layer) {
    return {[=](Ctx& c, Tensor x) { return layer->forward(c, x, x); },
            [=](Ctx& c, Tensor dy) {
                const Tensor dx = layer->backward(c, dy);
                c.k.add(c.exec, dx, dy);
                return dx;
            }};
}

}  // namespace

TEST_CASE("gradcheck detects wrong backwards") {
    using Backward = std::function<Tensor(Ctx&, const Storage&, Tensor)>;
    const auto check = [](const Backward& backward) {
        const auto build = [&](Parameters& parameters) {
            const Storage& w = parameters.add(weight("w", 4, 4));
            return CheckedLayer{[&w](Ctx& c, Tensor x) {
                                    Tensor y = c.frame.keep(x.dtype, x.shape);
                                    c.k.gemm(c.exec, y, x, transposed(w.w), x);
                                    c.frame.push(&w, x);
                                    return y;
                                },
                                [&w, backward](Ctx& c, Tensor dy) { return backward(c, w, dy); }};
        };
        return gradcheck(build, TestBatch(1, 5, no_vocab), {.x = {5, 4}});
    };
    const auto product = [](Ctx& c, const Storage& w, Tensor dy) {
        Tensor dx = c.temp.alloc(dy.dtype, dy.shape);
        c.k.gemm(c.exec, dx, dy, w.w, dy);
        return dx;
    };
    const auto right = [&](Ctx& c, const Storage& w, Tensor dy) {
        c.frame.later(c, {.parts = {&w, dy}, .x = c.frame.pop(&w)});
        return product(c, w, dy);
    };
    CHECK(check(right) == "");
    CHECK_THAT(check([&](Ctx& c, const Storage& w, Tensor dy) {
                   c.frame.pop(&w);
                   return product(c, w, dy);
               }),
               Catch::Contains("w[0]: backward 0, differences") &&
                   Catch::Contains("w in a random direction") && !Catch::Contains("x["));
    CHECK_THAT(check([&](Ctx& c, const Storage& w, Tensor dy) {
                   const Tensor x = c.frame.pop(&w);
                   c.k.gemm(c.exec, w.g, transposed(dy), x, {});  // without adding to the previous content
                   return product(c, w, dy);
               }),
               Catch::Contains("w[15]: backward"));
    CHECK_THAT(check([&](Ctx& c, const Storage& w, Tensor dy) {
                   c.frame.later(c, {.parts = {&w, dy}, .x = c.frame.pop(&w)});
                   Tensor dx = c.temp.alloc(dy.dtype, dy.shape);
                   c.k.gemm(c.exec, dx, dy, w.w, {});  // without the residual path
                   return dx;
               }),
               Catch::Contains("x[19]: backward") && !Catch::Contains("w["));
    CHECK_THAT(check([&](Ctx& c, const Storage& w, Tensor dy) { return product(c, w, dy); }),
               Catch::Contains("1 tensors are left in the frame"));
}

TEST_CASE("linear: gradients") {
    for (const int64_t tokens : {1, 7})
        for (const int64_t outputs : {1, 5}) {
            CAPTURE(tokens, outputs);
            const auto plain = [&](Parameters& parameters) {
                auto linear = std::make_shared<ColLinear>(parameters.add(weight("w", outputs, 3)));
                return CheckedLayer{[=](Ctx& c, Tensor x) { return linear->forward(c, x); },
                                    [=](Ctx& c, Tensor dy) { return linear->backward(c, dy); }};
            };
            CHECK(gradcheck(plain, TestBatch(1, tokens, no_vocab), {.x = {tokens, 3}}) == "");
        }
    const auto stacked_with_residual = [](Parameters& parameters) {
        auto linear = std::make_shared<RowLinear>(
            parameters.add({weight("a", 4, 6), weight("b", 1, 6), weight("c", 1, 6)}));
        return CheckedLayer{[=](Ctx& c, Tensor x) { return linear->forward(c, x, x); },
                            [=](Ctx& c, Tensor dy) {
                                const Tensor dx = linear->backward(c, dy);
                                c.k.add(c.exec, dx, dy);
                                return dx;
                            }};
    };
    CHECK(gradcheck(stacked_with_residual, TestBatch(1, 5, no_vocab), {.x = {5, 6}}) == "");
}

TEST_CASE("norms: gradients, with and without a residual path") {
    for (const NormKind kind : {NormKind::rms, NormKind::layer, NormKind::layer_without_weight})
        for (const int64_t width : {1, 2, 19}) {
            // normalising a single element gives nothing
            if (width == 1 && kind != NormKind::rms) continue;
            for (const int64_t tokens : {1, 67}) {
                for (const bool residual : {false, true}) {
                    CAPTURE(int(kind), width, tokens, residual);
                    const auto build = [&](Parameters& parameters) {
                        std::shared_ptr<Norm> norm = make_norm(parameters, "norm.weight", width, kind);
                        return CheckedLayer{[=](Ctx& c, Tensor x) {
                                                Tensor y = norm->forward(c, x);
                                                if (residual) c.k.add(c.exec, y, x);
                                                return y;
                                            },
                                            [=](Ctx& c, Tensor dy) {
                                                if (!residual) return norm->backward(c, dy, {});
                                                // The gradient of the residual path is dy itself, which must
                                                // not be overwritten before it is read.
                                                const Tensor plus = c.temp.alloc(dy.dtype, dy.shape);
                                                c.k.cast(c.exec, plus, dy);
                                                return norm->backward(c, dy, plus);
                                            }};
                    };
                    CHECK(gradcheck(build, TestBatch(1, tokens, no_vocab), {.x = {tokens, width}}) == "");
                }
            }
        }
}

TEST_CASE(
    "attention: gradients with grouped queries, documents, both RoPE layouts, also of a part of a head") {
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
        for (const int64_t kv_heads : {1, 2, 4})
            for (const bool documents : {false, true})
                for (const int64_t rotated : {0, 2, 4}) {
                    CAPTURE(int(layout), kv_heads, documents, rotated);
                    TestBatch batch(3, 7, no_vocab);
                    if (documents) batch.split_documents(3, true);
                    CHECK(check_attention({.heads = 4, .kv_heads = kv_heads, .head_dim = 6}, 5, batch, 15,
                                          {.layout = layout, .rotated = rotated}) == "");
                }
}

TEST_CASE("attention: gradients with norms of heads, biases, sinks, windows and chunks") {
    for (const HeadNorm norm :
         {HeadNorm::none, HeadNorm::first, HeadNorm::last, HeadNorm::only, HeadNorm::of_all})
        for (const bool vectors : {false, true})
            for (const int64_t window : {0, 1, 5})
                for (const int64_t chunk : {0, 4}) {
                    CAPTURE(int(norm), vectors, window, chunk);
                    TestBatch batch(2, 13, no_vocab);
                    if (chunk > 0) batch.split_documents(6, true);
                    CHECK(check_attention({.heads = 4,
                                           .kv_heads = 2,
                                           .head_dim = 6,
                                           .value_dim = window == 5 ? 3 : 0,
                                           .scale = vectors ? 0.7 : 0,
                                           .window = window,
                                           .chunk = chunk},
                                          5, batch, 10,
                                          {.norm = norm, .biases = vectors, .sinks = vectors}) == "");
                }
    CHECK(check_attention({.heads = 1, .kv_heads = 1, .head_dim = 2}, 1, TestBatch(1, 1, no_vocab), 10,
                          {.norm = HeadNorm::first, .biases = true, .sinks = true}) == "");
}

namespace {

// x + attention(norm(x)).
std::string check_latent_attention(const LatentHeads& heads, int64_t width, const TestBatch& batch,
                                   Output output) {
    const auto build = [&](Parameters& parameters) {
        auto layer = std::make_shared<LatentLayer>(parameters, heads, width, batch.seq_len, output);
        return CheckedLayer{
            [layer](Ctx& c, Tensor x) { return layer->attention.forward(c, layer->norm->forward(c, x), x); },
            [layer](Ctx& c, Tensor dy) {
                const Tensor plus = c.temp.alloc(dy.dtype, dy.shape);
                c.k.cast(c.exec, plus, dy);
                return layer->norm->backward(c, layer->attention.backward(c, dy), plus);
            }};
    };
    return gradcheck(build, batch, {.x = {batch.sequences * batch.seq_len, width}, .entries = 15});
}

}  // namespace

TEST_CASE("latent attention: gradients with and without latents of queries") {
    for (const int64_t q_rank : {0, 1, 5})
        for (const Output output : {Output::kept, Output::recomputed})
            for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
                for (const int64_t window : {0, 4}) {
                    CAPTURE(q_rank, int(output.place), int(layout), window);
                    const LatentHeads heads = {.shape = {.heads = 3, .nope = 5, .rope = 4, .value = 7},
                                               .q_rank = q_rank,
                                               .kv_rank = 6,
                                               .norm = {0.05, 1},
                                               .scale = 0.4,
                                               .layout = layout,
                                               .window = window};
                    TestBatch batch(2, 9, no_vocab);
                    if (window > 0) batch.split_documents(5, true);
                    CHECK(check_latent_attention(heads, 5, batch, output) == "");
                }
    CHECK(check_latent_attention(
              {.shape = {.heads = 1, .nope = 1, .rope = 2, .value = 1}, .kv_rank = 1, .norm = {0.05, 1}}, 3,
              TestBatch(1, 1, no_vocab), Output::kept) == "");
}

TEST_CASE("attention: gradients with values narrower and wider than keys") {
    for (const int64_t value_dim : {1, 3, 10})
        for (const bool documents : {false, true}) {
            CAPTURE(value_dim, documents);
            TestBatch batch(2, 53, no_vocab);
            if (documents) batch.split_documents(19, true);
            CHECK(check_attention({.heads = 4, .kv_heads = 2, .head_dim = 6, .value_dim = value_dim}, 5,
                                  batch, 12) == "");
        }
}

TEST_CASE("attention: gradients with a temperature, with and without norms of heads") {
    for (const HeadNorm norm :
         {HeadNorm::none, HeadNorm::first, HeadNorm::last, HeadNorm::only, HeadNorm::of_all})
        for (const bool documents : {false, true}) {
            CAPTURE(int(norm), documents);
            TestBatch batch(2, 11, no_vocab);
            if (documents) batch.split_documents(4, true);
            CHECK(check_attention({.heads = 4, .kv_heads = 2, .head_dim = 6}, 5, batch, 12,
                                  {.norm = norm, .temperature = {.scale = 0.6, .floor = 3}}) == "");
        }
}

TEST_CASE("attention: gradients of one token, of one head of two, and of sequences longer than a tile") {
    CHECK(check_attention({.heads = 1, .kv_heads = 1, .head_dim = 2}, 1, TestBatch(1, 1, no_vocab)) == "");
    CHECK(check_attention({.heads = 3, .kv_heads = 1, .head_dim = 2}, 4, TestBatch(5, 1, no_vocab)) == "");
    CHECK(check_attention({.heads = 2, .kv_heads = 1, .head_dim = 4}, 3, TestBatch(1, 131, no_vocab), 12) ==
          "");
    CHECK(check_attention({.heads = 2, .kv_heads = 2, .head_dim = 10}, 3,
                          TestBatch(2, 101, no_vocab).split_documents(37, false), 12) == "");
}

TEST_CASE("feed-forward: gradients with SiLU and GELU, kept and recomputed") {
    for (const int64_t hidden : {1, 9})
        for (const Activation activation : {Activation::silu, Activation::gelu_tanh})
            for (const Output output : {Output::kept, Output::recomputed}) {
                CAPTURE(hidden, int(activation), int(output.place));
                const auto build = [&](Parameters& parameters) {
                    const Storage& w13 = parameters.add({weight("w1", hidden, 5), weight("w3", hidden, 5)});
                    const Storage& w2 = parameters.add(weight("w2", 5, hidden));
                    auto layer = std::make_shared<FeedForward>(w13, w2, LinearInput(), output, activation);
                    return with_residual(layer);
                };
                CHECK(gradcheck(build, TestBatch(1, 11, no_vocab), {.x = {11, 5}}) == "");
            }
}

TEST_CASE("shared expert: gradients with SiLU and GELU, kept and recomputed") {
    for (const int64_t hidden : {1, 9})
        for (const Activation activation : {Activation::silu, Activation::gelu_tanh})
            for (const Output output : {Output::kept, Output::recomputed}) {
                CAPTURE(hidden, int(activation), int(output.place));
                const auto build = [&](Parameters& parameters) {
                    const Storage& gate = parameters.add(weight("gate", 1, 5, 1.5));
                    const Storage& w13 = parameters.add({weight("w1", hidden, 5), weight("w3", hidden, 5)});
                    const Storage& w2 = parameters.add(weight("w2", 5, hidden));
                    auto layer = std::make_shared<SharedExpert>(TokenLinear(gate), w13, w2, LinearInput(),
                                                                output, activation);
                    return with_residual(layer);
                };
                CHECK(gradcheck(build, TestBatch(1, 11, no_vocab), {.x = {11, 5}}) == "");
            }
}

TEST_CASE("embedding: gradients for tokens that occur often and never") {
    double scale = 1;
    const auto build = [&](Parameters& parameters) {
        auto layer = std::make_shared<Embedding>(parameters.add(weight("table", 7, 3)), 0, scale);
        return CheckedLayer{[=](Ctx& c, Tensor) { return layer->forward(c, {}).hidden(); },
                            [=](Ctx& c, Tensor dy) {
                                layer->backward(c, dy);
                                return Tensor{};
                            }};
    };
    TestBatch batch(3, 5, 6);  // token 6 never occurs
    batch.tokens[3] = batch.tokens[11];
    for (const double factor : {1.0, 2.6}) {
        scale = factor;
        CHECK(gradcheck(build, batch) == "");
        CHECK(gradcheck(build, TestBatch(1, 1, 7)) == "");
    }
}

TEST_CASE("norm and loss head: gradients with ignored labels, in one chunk and in several") {
    // if a row of logits takes 26 KiB or more, a chunk has 256 tokens
    struct Sizes {
        int64_t sequences, seq_len, vocab, width;
    };
    for (const Sizes& s : {Sizes{1, 1, 5, 3}, Sizes{3, 5, 11, 4}, Sizes{3, 87, 3301, 3}}) {
        for (const bool ignored : {false, true}) {
            const double z_weight = ignored ? 0.03 : 0;
            CAPTURE(s.seq_len, s.vocab, ignored);
            const auto build = [&](Parameters& parameters) {
                auto norm = make_norm(parameters, "norm.weight", s.width, NormKind::rms);
                const Storage& output = parameters.add(weight("output.weight", s.vocab, s.width));
                auto head =
                    std::make_shared<DecoderHead>(std::move(norm), output, z_weight, ignored ? 0.4 : 1);
                return CheckedLayer{[=](Ctx& c, Tensor x) {
                                        head->forward(c, x);
                                        return Tensor{};
                                    },
                                    [=](Ctx& c, Tensor) { return head->backward(c).hidden(); }};
            };
            TestBatch batch(s.sequences, s.seq_len, s.vocab);
            if (ignored && s.seq_len > 1) batch.ignore_every(3);
            const int64_t tokens = s.sequences * s.seq_len;
            CHECK(gradcheck(build, batch, {.x = {tokens, s.width}, .entries = tokens > 100 ? 8 : 40}) == "");
        }
    }
}

TEST_CASE("embedding and loss head share a tied table: its gradient is the sum of both uses") {
    const auto build = [](Parameters& parameters) {
        const Storage& table = parameters.add(weight("table", 9, 4));
        auto embedding = std::make_shared<Embedding>(table);
        auto head =
            std::make_shared<DecoderHead>(make_norm(parameters, "norm.weight", 4, NormKind::rms), table, 0);
        return CheckedLayer{[=](Ctx& c, Tensor) {
                                head->forward(c, embedding->forward(c, {}).hidden());
                                return Tensor{};
                            },
                            [=](Ctx& c, Tensor) {
                                embedding->backward(c, head->backward(c));
                                return Tensor{};
                            }};
    };
    CHECK(gradcheck(build, TestBatch(3, 5, 9).ignore_every(4)) == "");
}

TEST_CASE("residual block: gradients with every norm, at every place, and every kind of recomputation") {
    struct Norms {
        NormKind kind;
        bool before = true, after = false;
        double offset = 0;
    };
    // `turned`: attention is the last part of the block, which is recomputed without its result
    for (const Norms& norms : {Norms{NormKind::rms},
                               {NormKind::layer},
                               {NormKind::layer_without_weight},
                               {NormKind::rms, false, true},
                               {NormKind::rms, true, true, 1}})
        for (const auto& [recompute, turned] : {std::pair(Recompute::nothing, false),
                                                {Recompute::operations, false},
                                                {Recompute::block, false},
                                                {Recompute::block, true}}) {
            CAPTURE(int(norms.kind), norms.before, norms.after, int(recompute), turned);
            const Output output = recompute == Recompute::operations ? Output::recomputed : Output::kept;
            const AttentionHeads config = {.heads = 4, .kv_heads = 2, .head_dim = 2, .value_dim = 3};
            const auto build = [&, recompute = recompute, turned = turned](Parameters& parameters) {
                auto rope = std::make_shared<RopeTable>(5, 2, 100, RopeScaling{}, Dtype::f64);
                rope->allocate();
                const auto before = [&](const char* name) {
                    return norms.before ? make_norm(parameters, name, 6, norms.kind, output, norms.offset)
                                        : nullptr;
                };
                // a smaller epsilon would make the block too steep for differences
                const auto after = [&](const char* name) {
                    return norms.after ? std::make_unique<ResidualNorm>(parameters.add(norm_weight(name, 6)),
                                                                        NormForm(0.5, norms.offset))
                                       : nullptr;
                };
                auto attention_norm = before("attention_norm.weight");
                const Storage& wqkv =
                    parameters.add({weight("wq", 8, 6), weight("wk", 4, 6), weight("wv", 6, 6)});
                const Storage& wo = parameters.add(weight("wo", 6, 12));
                auto ffn_norm = before("ffn_norm.weight");
                const Storage& w13 = parameters.add({weight("w1", 7, 6), weight("w3", 7, 6)});
                const Storage& w2 = parameters.add(weight("w2", 6, 7));
                const auto input = [&](const std::unique_ptr<Norm>& norm) {
                    return LinearInput(output.place == Output::recomputed ? norm.get() : nullptr);
                };
                const LinearInput attention_input = input(attention_norm), ffn_input = input(ffn_norm);
                std::vector<ResidualBlock::Part> parts(2);
                HeadSteps::List steps;
                steps.push_back(std::make_unique<RotateHeads>(*rope, RopeShape{2, 0, 2}));
                parts[0] = {std::move(attention_norm),
                            std::make_unique<Attention>(ColLinear(wqkv, attention_input), RowLinear(wo),
                                                        config, std::move(steps)),
                            after("post_attention_norm.weight")};
                parts[1] = {std::move(ffn_norm), std::make_unique<FeedForward>(w13, w2, ffn_input, output),
                            after("post_ffn_norm.weight")};
                if (turned) std::swap(parts[0], parts[1]);
                std::unique_ptr<Block> made = std::make_unique<ResidualBlock>(std::move(parts));
                if (recompute == Recompute::block) made = std::make_unique<RecomputeBlock>(std::move(made));
                const std::shared_ptr<Block> block = std::move(made);
                return CheckedLayer{[=](Ctx& c, Tensor x) { return block->forward(c, x).hidden(); },
                                    [=](Ctx& c, Tensor dy) {
                                        (void)rope;  // the attention refers to it
                                        return block->backward(c, dy).hidden();
                                    }};
            };
            CHECK(gradcheck(build, TestBatch(3, 5, no_vocab).split_documents(3, true), {.x = {15, 6}}) == "");
        }
}

TEST_CASE("parallel block: gradients with and without recomputation, with one sublayer and with two") {
    for (const bool whole : {false, true})
        for (const Output activated : {Output::kept, Output::recomputed})
            for (const size_t sublayers : {1, 2}) {
                CAPTURE(whole, int(activated.place), sublayers);
                const AttentionHeads config = {.heads = 4, .kv_heads = 2, .head_dim = 2, .value_dim = 3};
                const auto build = [&](Parameters& parameters) {
                    auto norm = make_norm(parameters, "norm.weight", 6, NormKind::layer);
                    std::vector<std::unique_ptr<Sublayer>> all;
                    const Storage& wqkv =
                        parameters.add({weight("wq", 8, 6), weight("wk", 4, 6), weight("wv", 6, 6)});
                    const Storage& wo = parameters.add(weight("wo", 6, 12));
                    all.push_back(std::make_unique<Attention>(ColLinear(wqkv), RowLinear(wo), config,
                                                              HeadSteps::List()));
                    if (sublayers == 2) {
                        const Storage& w13 = parameters.add({weight("w1", 7, 6), weight("w3", 7, 6)});
                        const Storage& w2 = parameters.add(weight("w2", 6, 7));
                        all.push_back(std::make_unique<FeedForward>(w13, w2, LinearInput(), activated));
                    }
                    std::unique_ptr<Block> made =
                        std::make_unique<ParallelBlock>(std::move(norm), std::move(all));
                    if (whole) made = std::make_unique<RecomputeBlock>(std::move(made));
                    const std::shared_ptr<Block> block = std::move(made);
                    return CheckedLayer{[=](Ctx& c, Tensor x) { return block->forward(c, x).hidden(); },
                                        [=](Ctx& c, Tensor dy) { return block->backward(c, dy).hidden(); }};
                };
                CHECK(gradcheck(build, TestBatch(3, 5, no_vocab).split_documents(3, true), {.x = {15, 6}}) ==
                      "");
            }
}
