// SPDX-License-Identifier: Apache-2.0
// Drawing a token from logits, and the window of tokens that logits come from.
#include "coeus/train/generator.hpp"

#include "coeus/base/error.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <catch2/catch.hpp>

#include <cmath>
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
    for (double p : probabilities) logits.push_back(float(std::log(p)) + 3);  // a constant does not matter
    return logits;
}

}  // namespace

TEST_CASE("draw: temperature 0 takes the most likely token, the first of equals") {
    for (uint64_t index : {0, 1, 2}) {
        CHECK(draw_token(std::vector<float>{-1, 5, 2, 5}, {.temperature = 0}, index) == 1);
        CHECK(draw_token(std::vector<float>{-1e30f}, {.temperature = 0}, index) == 0);
        CHECK(draw_token(std::vector<float>{0, 0, 0}, {.temperature = 0, .seed = index}, 0) == 0);
    }
}

TEST_CASE("draw: tokens come as often as their probabilities say") {
    // 5 standard errors of a share of at most one half in 20 000 draws
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
    SECTION("the most likely ones alone, scaled up") {
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
    SECTION("k before p: p is of what k leaves") {
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
    // among equals the smaller ids are in
    const std::vector<float> equal(5, 1.0f);
    CHECK(drawn(equal, {.temperature = 1, .top_k = 2}) == std::set<int32_t>{0, 1});
    CHECK(drawn(equal, {.temperature = 1, .top_p = 0.6}) == std::set<int32_t>{0, 1, 2});
    CHECK(drawn(equal, {.temperature = 1}).size() == 5);
    // far apart, and no overflow
    CHECK(drawn({-3e38f, 3e38f, 0}, {.temperature = 100}) == std::set<int32_t>{1});
    CHECK(drawn({4.0f}, {.temperature = 1}) == std::set<int32_t>{0});
}

TEST_CASE("draw: a token depends on seed and number alone") {
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

TEST_CASE("generator: logits are those of the newest tokens") {
    const DecoderConfig config = tiny_config();
    Generator generator(config, Dtype::f32, 5, 1);
    generator.decoder().parameters().initialise(3, 1);
    generator.weights_changed();
    const auto logits = [&](const std::vector<int32_t>& tokens) {
        const std::span<const float> span = generator.next_logits(tokens);
        return std::vector<float>(span.begin(), span.end());
    };
    const std::vector<float> five = logits({1, 2, 3, 4, 5});
    CHECK(int64_t(five.size()) == config.vocab);
    CHECK(logits({9, 9, 1, 2, 3, 4, 5}) == five);  // the window moves on, positions begin at its start
    CHECK(logits({1, 2, 3, 4, 6}) != five);
    CHECK(logits({2, 2, 3, 4, 5}) != five);
    const std::vector<float> one = logits({5});
    CHECK(one != five);
    CHECK(logits({1, 2, 3, 4, 5}) == five);
    CHECK_THROWS_AS(generator.next_logits({}), LogicError);

    // the same model as in training
    TestModel model(config, {}, {.sequences = 1, .seq_len = 5}, 1, 3);
    TestBatch batch(1, 5, config.vocab);
    batch.tokens = {1, 2, 3, 4, 5};
    const std::vector<double> should = values(model.last_logits(batch));
    for (size_t i = 0; i < five.size(); ++i) CHECK(close(five[i], should[i], 1e-5));

    set_element(generator.decoder().parameters().storages().back().w, 1, std::nan(""));
    CHECK_THROWS_AS(logits({1, 2, 3}), NotFiniteError);

    Generator rounded(config, Dtype::bf16, 5, 1);
    rounded.decoder().parameters().initialise(3, 1);
    rounded.weights_changed();
    const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
    const std::span<const float> near = rounded.next_logits(tokens);
    for (size_t i = 0; i < five.size(); ++i) CHECK(close(near[i], five[i], 0.05));
}
