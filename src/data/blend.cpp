// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/blend.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coeus {

namespace {

constexpr double largest_period = 0x1p40;  // products with small numbers are exact in int64 and double

// The weights, multiplied by the power of ten that makes them whole numbers; empty if no such power exists.
std::vector<int64_t> exact(const std::vector<double>& weights) {
    for (double scale = 1; scale <= 1e12; scale *= 10) {
        std::vector<int64_t> whole;
        double sum = 0;
        for (const double weight : weights) {
            const double scaled = weight * scale, nearest = std::round(scaled);
            if (std::fabs(scaled - nearest) > 1e-14 * scaled || (sum += nearest) > largest_period) break;
            whole.push_back(int64_t(nearest));
        }
        if (whole.size() == weights.size()) return whole;
    }
    return {};
}

std::vector<int64_t> rounded(const std::vector<double>& weights) {
    const double largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (const double weight : weights) sum += weight / largest;
    std::vector<int64_t> whole;
    for (const double weight : weights)
        whole.push_back(std::max<int64_t>(1, std::llround(weight / largest / sum * largest_period)));
    return whole;
}

std::vector<double> sizes(const std::vector<SampleOrder>& sources) {
    std::vector<double> all;
    for (const SampleOrder& source : sources) all.push_back(double(source.count()));
    return all;
}

std::vector<SampleOrder> orders_of(const std::vector<Sampler>& sources) {
    std::vector<SampleOrder> all;
    for (const Sampler& source : sources) all.push_back(source.order());
    return all;
}

}  // namespace

BlendOrder::BlendOrder(const std::vector<double>& weights) {
    require(!weights.empty() && std::all_of(weights.begin(), weights.end(),
                                            [](double w) { return w > 0 && std::isfinite(w); }),
            "weights of a blend must be greater than 0");
    weights_ = exact(weights);
    if (weights_.empty()) weights_ = rounded(weights);
    int64_t divisor = 0;
    for (const int64_t weight : weights_) divisor = std::gcd(divisor, weight);
    for (int64_t& weight : weights_) period_ += weight /= divisor;
    restart();
}

void BlendOrder::restart() {
    step_ = 0;
    taken_.assign(weights_.size(), 0);
    lag_.assign(weights_.size(), 0);
}

size_t BlendOrder::advance() {
    const auto twice = int64_t(2 * weights_.size() - 2);
    size_t chosen = 0;
    double soonest = INFINITY;
    for (size_t k = 0; k < weights_.size(); ++k) {
        lag_[k] += weights_[k];
        if (lag_[k] * twice < period_) continue;
        const double deadline = double((twice - 1) * period_ - twice * lag_[k]) / double(weights_[k]);
        if (deadline < soonest) soonest = deadline, chosen = k;
    }
    lag_[chosen] -= period_;
    ++taken_[chosen];
    ++step_;
    return chosen;
}

BlendOrder::Place BlendOrder::place_of(int64_t i) {
    if (weights_.size() == 1) return {0, i};
    const int64_t round = i / period_, step = i % period_;
    if (step < step_) restart();
    while (step_ < step) advance();
    const size_t source = advance();
    return {source, round * weights_[source] + taken_[source] - 1};
}

SourceBlend::SourceBlend(std::vector<SampleOrder> sources, const std::vector<double>& weights)
    : sources_(std::move(sources)), order_(weights.empty() ? sizes(sources_) : weights) {
    require(weights.empty() || weights.size() == sources_.size(), "a weight for each source");
}

int64_t SourceBlend::count() const {
    int64_t sum = 0;
    for (const SampleOrder& source : sources_) sum += source.count();
    return sum;
}

double SourceBlend::passes(size_t number, int64_t samples) const {
    return double(samples) * part(number) / double(sources_[number].count());
}

int64_t SourceBlend::first_epoch() const {
    BlendOrder order = order_;
    int64_t periods = INT64_MAX;  // number of periods without a repeated sample
    for (size_t k = 0; k < sources_.size(); ++k)
        periods = std::min(periods, sources_[k].count() / order.count(k));
    for (int64_t i = periods * order.period();; ++i) {
        const auto [source, index] = order.place_of(i);
        if (index >= sources_[source].count()) return i;
    }
}

SourceBlend::Place SourceBlend::place_of(int64_t i) {
    const auto [source, index] = order_.place_of(i);
    return {source, sources_[source](index), index / sources_[source].count(), index};
}

SampleStream::SampleStream(const Sampler& source) : SampleStream(std::vector<Sampler>{source}, {}) {}

SampleStream::SampleStream(std::vector<Sampler> sources, const std::vector<double>& weights)
    : sources_(std::move(sources)), blend_(orders_of(sources_), weights) {}

BlendOrder::Place SampleStream::window_of(int64_t i) {
    const SourceBlend::Place place = blend_.place_of(i);
    return {place.source, place.sample};
}

int64_t SampleStream::sample(int64_t i, std::span<int32_t> inputs, std::span<int32_t> labels,
                             std::span<int32_t> document_start) {
    const SourceBlend::Place place = blend_.place_of(i);
    last_source_ = place.source;
    return sources_[place.source].sample(place.index, inputs, labels, document_start);
}

}  // namespace coeus
