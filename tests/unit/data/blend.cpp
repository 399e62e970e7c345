// SPDX-License-Identifier: Apache-2.0
// Blends: how far the realised fractions differ from the weights, and that a sample depends only on its
// number.
#include "coeus/data/blend.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "token_files.hpp"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

// The largest distance of any source's number of samples from its share, over the first `samples`.
double largest_error(const std::vector<double>& weights, int64_t samples) {
    BlendOrder order(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<int64_t> taken(weights.size(), 0);
    double largest = 0;
    for (int64_t i = 0; i < samples; ++i) {
        const auto [source, index] = order.place_of(i);
        REQUIRE(index == taken[source]);  // the samples of each source come in order, and none is left out
        ++taken[source];
        for (size_t k = 0; k < weights.size(); ++k)
            largest = worse_of(largest, std::fabs(double(taken[k]) - double(i + 1) * weights[k] / sum));
    }
    return largest;
}

std::vector<size_t> sources_of(const std::vector<double>& weights, int64_t samples) {
    BlendOrder order(weights);
    std::vector<size_t> sources;
    for (int64_t i = 0; i < samples; ++i) sources.push_back(order.place_of(i).source);
    return sources;
}

}  // namespace

TEST_CASE("blend: realised fractions are never off by a whole sample") {
    const auto bound = [](size_t sources) { return 1 - 1 / double(2 * sources - 2) + 1e-9; };
    CHECK(largest_error({0.7, 0.3}, 1000) <= bound(2));
    CHECK(largest_error({1, 1, 1, 1, 1}, 1000) <= bound(5));
    CHECK(largest_error({1e-3, 1}, 5000) <= bound(2));
    CHECK(largest_error({1 / 3.0, std::sqrt(2.0), M_PI, 1e-7}, 20000) <= bound(4));
    // many light sources and a heavy one: rules without deadlines fail here
    std::vector<double> skewed(50, 0.002);
    skewed.push_back(0.9);
    CHECK(largest_error(skewed, 5000) <= bound(51));
    for (uint64_t trial = 0; trial < 40; ++trial) {
        const RandomStream random(trial, "weights");
        std::vector<double> weights(2 + trial % 19);
        for (size_t k = 0; k < weights.size(); ++k)
            weights[k] = 1e-6 + std::pow(random.uniform(k), 1.0 + double(trial % 5));
        CHECK(largest_error(weights, 3000) <= bound(weights.size()));
    }
}

TEST_CASE("blend: weights may have any sum, and decimal weights are exact") {
    CHECK(sources_of({0.7, 0.3}, 50) == sources_of({7, 3}, 50));
    CHECK(sources_of({0.7, 0.3}, 50) == sources_of({350, 150}, 50));
    CHECK(BlendOrder({0.7, 0.3}).period() == 10);
    CHECK(BlendOrder({0.25, 0.125, 0.125}).period() == 4);
    CHECK(BlendOrder({123456, 2 * 123456}).period() == 3);
    CHECK(BlendOrder({0.1, 1e-12 + 0.2}).period() > 1'000'000);
    CHECK(BlendOrder({1e300, 1e-300, 1e300}).count(1) == 1);
    CHECK(BlendOrder({5}).period() == 1);
    CHECK_THROWS_AS(BlendOrder({}), LogicError);
    CHECK_THROWS_AS(BlendOrder({1, 0}), LogicError);
    CHECK_THROWS_AS(BlendOrder({1, -1}), LogicError);
    CHECK_THROWS_AS(BlendOrder({1, NAN}), LogicError);
    CHECK_THROWS_AS(BlendOrder({1, INFINITY}), LogicError);
}

TEST_CASE("blend: a sample's source and index depend only on its number") {
    for (const std::vector<double>& weights :
         {std::vector<double>{3}, {0.7, 0.3}, {5, 1, 3, 1}, {std::sqrt(2.0), 1, M_PI}}) {
        BlendOrder forward(weights), jumping(weights);
        std::vector<BlendOrder::Place> places;
        for (int64_t i = 0; i < 60; ++i) places.push_back(forward.place_of(i));
        for (const int64_t i : {59, 0, 7, 6, 6, 30, 59, 10, 1}) {
            const auto place = jumping.place_of(i);
            CHECK(place.source == places[size_t(i)].source);
            CHECK(place.index == places[size_t(i)].index);
        }
    }
    BlendOrder order({0.7, 0.3});
    const auto far = order.place_of(1'000'000'000'000'000'003), near = order.place_of(3);
    CHECK(far.source == near.source);
    CHECK(far.index == near.index + (far.source == 0 ? 700'000'000'000'000'000 : 300'000'000'000'000'000));
}

TEST_CASE("sample stream: each source has its own epochs") {
    const TemporaryFolder folder;
    // windows of 3 tokens: 4 and 10 of them; all tokens of the second file are smaller than those of the
    // first
    const TokenFile a(counting_file(folder / "a.h5", 12)), b(counting_file(folder / "b.h5", 30));
    const std::vector<Sampler> sources = {Sampler(a, {.seq_len = 2}), Sampler(b, {.seq_len = 2})};
    SampleStream stream(sources, {0.5, 0.5});
    CHECK(stream.seq_len() == 2);
    CHECK(stream.part(0) == 0.5);
    std::vector<int64_t> first_tokens[2];
    BlendOrder order({0.5, 0.5});
    for (int64_t i = 0; i < 24; ++i) {
        std::vector<int32_t> inputs(2), labels(2), start(2);
        CHECK(stream.sample(i, inputs, labels, start) == 2);
        CHECK(labels[0] == inputs[1]);
        first_tokens[order.place_of(i).source].push_back(inputs[0]);
    }
    CHECK(first_tokens[0] == std::vector<int64_t>{0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9});
    CHECK(first_tokens[1] == std::vector<int64_t>{0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 0, 3});
    CHECK(stream.first_epoch() == 8);  // the ninth sample repeats the first sample of the first source
    CHECK(stream.num_windows() == 14);
    CHECK(stream.passes(0, 24) == 3);
    CHECK(stream.passes(1, 24) == 1.2);
}

TEST_CASE("sample stream: without weights every window occurs once per epoch, evenly spread") {
    const TemporaryFolder folder;
    const TokenFile a(counting_file(folder / "a.h5", 12)), b(counting_file(folder / "b.h5", 31)),
        c(counting_file(folder / "c.h5", 3));
    std::vector<Sampler> sources;
    for (const TokenFile* file : {&a, &b, &c}) sources.emplace_back(*file, Sampler::Options{.seq_len = 2});
    SampleStream stream(sources, {});
    CHECK(stream.first_epoch() == 4 + 10 + 1);
    CHECK(stream.part(1) == 10 / 15.0);
    std::map<size_t, std::set<int64_t>> seen;
    BlendOrder order({4, 10, 1});
    for (int64_t i = 0; i < 15; ++i) {
        const auto [source, index] = order.place_of(i);
        CHECK(seen[source].insert(index).second);
    }
    CHECK(seen[0].size() == 4);
    CHECK(seen[1].size() == 10);
    CHECK(seen[2].size() == 1);
    const SampleStream one = Sampler(b, {.seq_len = 2});
    CHECK(one.first_epoch() == 10);
    CHECK(one.part(0) == 1);
    CHECK(one.passes(0, 25) == 2.5);
}

TEST_CASE("sample stream: the first epoch ends at the first repetition") {
    const TemporaryFolder folder;
    const TokenFile a(counting_file(folder / "a.h5", 51)), b(counting_file(folder / "b.h5", 93)),
        c(counting_file(folder / "c.h5", 18));
    std::vector<Sampler> sources;
    for (const TokenFile* file : {&a, &b, &c}) sources.emplace_back(*file, Sampler::Options{.seq_len = 2});
    for (const std::vector<double>& weights :
         {std::vector<double>{1, 1, 1}, {0.5, 0.4, 0.1}, {0.01, 0.98, 0.01}, {17, 31, 6}, {M_PI, 2, 1}}) {
        CAPTURE(weights);
        BlendOrder order(weights);
        int64_t walked = 0;
        for (;; ++walked)
            if (const auto [source, index] = order.place_of(walked); index >= sources[source].num_windows())
                break;
        CHECK(SampleStream(sources, weights).first_epoch() == walked);
    }
}
