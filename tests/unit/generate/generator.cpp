// SPDX-License-Identifier: Apache-2.0
// Drawing a token from logits, and the window of tokens from which logits are computed.
#include "coeus/generate/generator.hpp"

#include "coeus/base/error.hpp"
#include "coeus/generate/next_tokens.hpp"
#include "coeus/models/config_fields.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

// How often each id is drawn in 20 000 draws.
std::vector<double> shares(const std::vector<float>& logits, const Sampling& sampling) {
    constexpr int draws = 20000;
    std::vector<double> share(logits.size());
    for (int i = 0; i < draws; ++i) share[size_t(draw_token(logits, sampling, uint64_t(i)))] += 1.0 / draws;
    return share;
}

std::set<int32_t> drawn(const std::vector<float>& logits, const Sampling& sampling) {
    std::set<int32_t> ids;
    for (int i = 0; i < 2000; ++i) ids.insert(draw_token(logits, sampling, uint64_t(i)));
    return ids;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (double p : probabilities) logits.push_back(float(std::log(p)) + 3);  // a constant changes nothing
    return logits;
}

}  // namespace

TEST_CASE("draw: temperature 0 takes the most likely token, the first one among equals") {
    for (uint64_t index : {0, 1, 2}) {
        CHECK(draw_token(std::vector<float>{-1, 5, 2, 5}, {.temperature = 0}, index) == 1);
        CHECK(draw_token(std::vector<float>{-1e30f}, {.temperature = 0}, index) == 0);
        CHECK(draw_token(std::vector<float>{0, 0, 0}, {.temperature = 0, .seed = index}, 0) == 0);
    }
}

TEST_CASE("draw: tokens are drawn with their probabilities") {
    // 5 standard errors of a frequency of at most one half in 20 000 draws
    const double allowed = 5 * 0.5 / std::sqrt(20000);
    const std::vector<double> p = {0.1, 0.4, 0.2, 0.3};
    const std::vector<double> share = shares(logits_of(p), {.temperature = 1});
    for (size_t i = 0; i < 4; ++i) CHECK(close(share[i], p[i], allowed));
    SECTION("temperature 2 takes square roots") {
        const std::vector<double> hot = shares(logits_of(p), {.temperature = 2});
        double sum = 0;
        for (double x : p) sum += std::sqrt(x);
        for (size_t i = 0; i < 4; ++i) CHECK(close(hot[i], std::sqrt(p[i]) / sum, allowed));
    }
    SECTION("only the most likely ones, scaled up") {
        for (const Sampling& sampling :
             {Sampling{.temperature = 1, .top_k = 2}, Sampling{.temperature = 1, .top_p = 0.7},
              Sampling{.temperature = 1, .top_p = 0.41}}) {
            const std::vector<double> best = shares(logits_of(p), sampling);
            CHECK(best[0] == 0);
            CHECK(best[2] == 0);
            CHECK(close(best[1], 4.0 / 7, allowed));
            CHECK(close(best[3], 3.0 / 7, allowed));
        }
    }
    SECTION("k before p: p refers to the tokens that k leaves") {
        // 0.4 of 0.7 is 0.57
        CHECK(drawn(logits_of(p), {.temperature = 1, .top_k = 2, .top_p = 0.5}) == std::set<int32_t>{1});
        CHECK(drawn(logits_of(p), {.temperature = 1, .top_k = 0, .top_p = 0.5}) == std::set<int32_t>{1, 3});
    }
}

TEST_CASE("draw: limits") {
    const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
    const std::set<int32_t> all = {0, 1, 2, 3};
    CHECK(drawn(logits, {.temperature = 1, .top_k = 1}) == std::set<int32_t>{1});
    CHECK(drawn(logits, {.temperature = 1, .top_k = 4}) == all);
    CHECK(drawn(logits, {.temperature = 1, .top_k = 1000}) == all);
    CHECK(drawn(logits, {.temperature = 1, .top_p = 1e-6}) == std::set<int32_t>{1});
    CHECK(drawn(logits, {.temperature = 1, .top_p = 1}) == all);
    // among equals the smaller ids remain
    const std::vector<float> equal(5, 1.0f);
    CHECK(drawn(equal, {.temperature = 1, .top_k = 2}) == std::set<int32_t>{0, 1});
    CHECK(drawn(equal, {.temperature = 1, .top_p = 0.6}) == std::set<int32_t>{0, 1, 2});
    CHECK(drawn(equal, {.temperature = 1}).size() == 5);
    // large differences do not overflow
    CHECK(drawn({-3e38f, 3e38f, 0}, {.temperature = 100}) == std::set<int32_t>{1});
    CHECK(drawn({4.0f}, {.temperature = 1}) == std::set<int32_t>{0});
}

TEST_CASE("draw: a token depends only on seed and number") {
    const std::vector<float> logits(50, 0.0f);
    const auto text = [&](uint64_t seed) {
        std::vector<int32_t> ids;
        for (uint64_t i = 0; i < 20; ++i)
            ids.push_back(draw_token(logits, {.temperature = 1, .seed = seed}, i));
        return ids;
    };
    CHECK(text(1) == text(1));
    CHECK(text(1) != text(2));
    const std::vector<int32_t> ids = text(1);
    CHECK(std::set<int32_t>(ids.begin(), ids.end()).size() > 5);
}

TEST_CASE("draw: each text has its own random numbers, whatever is drawn for others") {
    const std::vector<float> logits(50, 0.0f);
    const auto ids = [&](uint64_t text) {
        std::vector<int32_t> all;
        for (uint64_t i = 0; i < 20; ++i) all.push_back(draw_token(logits, {.temperature = 1}, i, text));
        return all;
    };
    CHECK(ids(0) != ids(1));
    CHECK(ids(1) == ids(1));
    CHECK(draw_token(logits, {.temperature = 1}, 7, 0) == draw_token(logits, {.temperature = 1}, 7));
}

namespace {

std::vector<int32_t> some_tokens(int64_t count, uint64_t seed) {
    return TestBatch(1, count, tiny_config().vocab, seed).tokens;
}

// The logits of the last token in training's forward.
std::vector<double> uncached(TestModel& model, const std::vector<int32_t>& tokens) {
    TestBatch batch(1, int64_t(tokens.size()), model.decoder.config().vocab);
    batch.tokens = tokens;
    return values(model.last_logits(batch));
}

// One for each kind of attention, and of experts.
std::vector<DecoderConfig> models_of_all_kinds() {
    std::vector<DecoderConfig> all;
    for (int kind = 0; kind < std::max(attention_kinds, expert_kinds); ++kind) {
        all.push_back(tiny_config());
        set_attention(all.back(), kind % attention_kinds);
        if (kind % 2 == 1) set_rope_part(all.back());
        if (kind % 3 == 1) set_two_ropes(all.back());
        set_experts(all.back(), (kind + 1) % expert_kinds);
        if (kind % 3 == 0) set_scales(all.back());
        if (kind % 3 == 1) set_parallel(all.back());
        if (kind % 2 == 1) all.back().feed_forward.activation = Activation::gelu_tanh;
    }
    return all;
}

// A generator with initial weights.
struct Initialised : Generator {
    Initialised(const DecoderConfig& config, Dtype dtype, int64_t context, int64_t sequences, int threads = 1)
        : Generator(config, dtype, context, sequences, {.threads = threads}) {
        decoder().parameters().initialise(3, 1);
        weights_changed();
    }
};

}  // namespace

TEST_CASE("generator: logits with the cache are those of the whole text, in every kind of model") {
    DecoderConfig grouped = tiny_config(), scaled = grouped, plain = grouped, wide = grouped,
                  narrow = grouped;
    scaled.rope.scaling = Llama3Scaling{.factor = 4, .original_positions = 8};
    scaled.rope.layout = RopeLayout::half_split;
    scaled.tied = true;
    plain.grouped().kv_heads = plain.head_sizes().heads;
    plain.norm_type = NormType::np_layer_norm;
    wide.grouped().value_dim = 10;
    narrow.grouped().value_dim = 5;
    std::vector<DecoderConfig> all = {grouped, scaled, plain, wide, narrow};
    for (const DecoderConfig& config : models_of_all_kinds()) all.push_back(config);
    for (const DecoderConfig& config : all)
        for (const int threads : {1, 3}) {
            CAPTURE(describe_model(config), threads);
            constexpr int64_t context = 29;
            Initialised generator(config, Dtype::f64, context, 1, threads);
            TestModel model(config, {Dtype::f64, Dtype::f64}, {1, context}, 1, 3);
            const std::vector<int32_t> tokens = some_tokens(context, 5);
            const auto agree = [&](const Tensor& logits, int64_t count) {
                const auto should = uncached(model, {tokens.begin(), tokens.begin() + count});
                const auto are = values(logits);
                REQUIRE(are.size() == should.size());
                for (size_t i = 0; i < are.size(); ++i) CHECK(close(are[i], should[i], 1e-12));
            };
            for (const int64_t prompt : {1, 7, 28}) {
                agree(generator.read(0, std::span(tokens).first(size_t(prompt))), prompt);
                for (int64_t t = prompt; t < context; ++t) {
                    const std::vector<Generator::Next> next = {{0, tokens[size_t(t)]}};
                    agree(generator.append(next), t + 1);
                }
                CHECK(generator.length(0) == context);
            }
        }
}

TEST_CASE("generator: a text in a batch has the same bits as on its own") {
    std::vector<std::pair<DecoderConfig, Dtype>> cases;
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        cases.emplace_back(tiny_config(), dtype);
        for (const DecoderConfig& config : models_of_all_kinds()) cases.emplace_back(config, dtype);
    }
    for (const auto& [config, dtype] : cases) {
        constexpr int64_t context = 40, steps = 6;
        const std::vector<std::vector<int32_t>> prompts = {
            some_tokens(3, 1), some_tokens(21, 2), some_tokens(1, 3), some_tokens(34, 4), some_tokens(5, 5)};
        const std::vector<int32_t> more = some_tokens(steps, 6);
        Initialised together(config, dtype, context, 5, 2);
        std::vector<std::vector<double>> begun;
        for (size_t i = 0; i < 5; ++i)  // the slots have another order than the texts
            begun.push_back(values(together.read(int64_t(4 - i), prompts[i])));
        std::vector<std::vector<std::vector<double>>> continued(5);
        for (const int32_t token : more) {
            std::vector<Generator::Next> next;
            for (int64_t i : {3, 0, 4, 1, 2}) next.push_back({4 - i, token});
            const Tensor logits = together.append(next);
            for (const auto& [i, row] : {std::pair<size_t, int64_t>{3, 0}, {0, 1}, {4, 2}, {1, 3}, {2, 4}})
                continued[i].push_back(values(logits.slice_rows(row, 1)));
        }
        for (size_t i = 0; i < 5; ++i) {
            INFO(describe_model(config) << ", " << name_of(dtype) << ", text " << i);
            Initialised alone(config, dtype, context, 1, 1);
            CHECK(values(alone.read(0, prompts[i])) == begun[i]);
            for (size_t t = 0; t < size_t(steps); ++t) {
                const std::vector<Generator::Next> next = {{0, more[t]}};
                CHECK(values(alone.append(next)) == continued[i][t]);
            }
        }
    }
}

TEST_CASE("generator: a slot can be reused, and a text that it cannot hold is refused") {
    Initialised generator(tiny_config(), Dtype::f32, 4, 2);
    const std::vector<int32_t> tokens = some_tokens(4, 1), others = some_tokens(4, 2);
    const auto first = values(generator.read(1, tokens));
    CHECK(values(generator.read(1, others)) != first);
    CHECK(values(generator.read(0, tokens)) == first);
    CHECK(generator.length(0) == 4);
    CHECK(generator.context() == 4);
    CHECK(generator.sequences() == 2);
    CHECK_THROWS_AS(generator.read(0, {}), LogicError);
    CHECK_THROWS_AS(generator.read(0, some_tokens(5, 1)), LogicError);
    const std::vector<Generator::Next> full = {{0, 1}};
    CHECK_THROWS_WITH(generator.append(full), Catch::Contains("must not be full"));

    set_element(generator.decoder().parameters().storages().back().w, 1, std::nan(""));
    NextTokens next(generator, {}, 1);
    const NextTokens::Reading text[] = {{{.slot = 0, .text = 0, .index = 0}, tokens}};
    CHECK_THROWS_WITH(next.read(text), Catch::Contains("the model's logits are not finite"));
    CHECK_THROWS_AS(next.read(text), NotFiniteError);
}

TEST_CASE("generator: bfloat16 is close to float32") {
    Initialised exact(tiny_config(), Dtype::f32, 8, 1), rounded(tiny_config(), Dtype::bf16, 8, 1);
    const std::vector<int32_t> tokens = some_tokens(7, 1);
    const std::vector<Generator::Next> next = {{0, 9}};
    exact.read(0, tokens);
    rounded.read(0, tokens);
    const auto is = values(rounded.append(next)), should = values(exact.append(next));
    for (size_t i = 0; i < is.size(); ++i) CHECK(close(is[i], should[i], 0.05));
}

TEST_CASE("generator: generation allocates no memory") {
    DecoderConfig config = tiny_config();
    config.vocab = 5000;
    Initialised generator(config, Dtype::f32, 600, 2);
    const std::vector<int32_t> tokens = some_tokens(500, 1);
    generator.read(0, tokens);
    generator.read(1, tokens);
    // the first product of a shape makes a library's plan, and a thread takes memory when it first works:
    // what is allocated for each token is in every window
    int64_t least_growth = std::numeric_limits<int64_t>::max();
    for (int32_t window = 0; window < 3; ++window) {
        const int64_t before = resident_bytes();
        for (int32_t t = 0; t < 33; ++t) {
            const std::vector<Generator::Next> next = {{0, t}, {1, t}};
            generator.append(next);
        }
        least_growth = std::min(least_growth, resident_bytes() - before);
    }
    CHECK(least_growth < growth_allowance / 3);
}
