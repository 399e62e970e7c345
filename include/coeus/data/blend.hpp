// SPDX-License-Identifier: Apache-2.0
// Samples of several sources, mixed by weight. The source of sample i depends only on (weights, i):
//   Tijdeman's rule for the chairman assignment problem (Discrete Mathematics 32, 1980): among the sources
//   whose lag is at least 1 / (2 K - 2), it takes the one with the earliest deadline. For every i, each of K
//   sources then has its share of the first i samples to within 1 - 1 / (2 K - 2) samples.
// (The usual greedy rule, which takes the largest lag, has no such bound for more than two sources.)
#pragma once

#include "coeus/data/sampler.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace coeus {

/// The order in which the sources alternate.
class BlendOrder {
public:
    /// `weights`: greater than 0, with any sum. Decimal numbers and counts are represented exactly. Other
    /// weights are rounded to 2^-40 of their sum.
    explicit BlendOrder(const std::vector<double>& weights);

    struct Place {
        size_t source;
        int64_t index;  ///< of the sample in the stream of this source
    };
    /// The place of sample i. For the sample after the previous call's, this takes O(K) operations. For a
    /// later sample, it takes O(K) for each sample in between, over at most one period. For an earlier
    /// sample, the order is computed again from the beginning of the period. Not thread-safe.
    Place place_of(int64_t i);

    /// The number of samples after which the order repeats. In a period, each source has exactly its
    /// share.
    int64_t period() const { return period_; }
    /// The number of samples in a period that come from a source.
    int64_t count(size_t source) const { return weights_[source]; }

private:
    void restart();
    size_t advance();

    std::vector<int64_t> weights_;
    int64_t period_ = 0;
    // state in the current period
    int64_t step_ = 0;
    std::vector<int64_t> taken_, lag_;  // lag: weight * step - taken * period
};

/// Sources whose samples are read in the order of each, mixed by weight.
class SourceBlend {
public:
    /// Without weights, sources are weighted by their sizes, so that each sample is used once in an epoch of
    /// all sources.
    SourceBlend(std::vector<SampleOrder> sources, const std::vector<double>& weights);

    size_t sources() const { return sources_.size(); }
    /// The share of all samples that come from a source.
    double part(size_t number) const { return double(order_.count(number)) / double(order_.period()); }
    /// Number of samples of all sources.
    int64_t count() const;
    /// How often each sample of a source is used in the first `samples` samples, on average (its epochs).
    double passes(size_t number, int64_t samples) const;
    /// Number of samples before one is used for the second time. Without weights, this is count(). Takes at
    /// most the time for one period of the order.
    int64_t first_epoch() const;

    struct Place {
        size_t source;
        int64_t sample;  ///< its number in the whole source
        int64_t epoch;   ///< how often the source was read before
        int64_t index;   ///< of the sample in the stream of this source
    };
    /// The source of sample i. Not thread-safe.
    Place place_of(int64_t i);

private:
    std::vector<SampleOrder> sources_;
    BlendOrder order_;
};

/// The samples of training or validation: samplers with the same sequence length, in the order of a blend.
class SampleStream {
public:
    /// A single source.
    SampleStream(const Sampler& source);
    /// Sources with the same sequence length, blended as by SourceBlend.
    SampleStream(std::vector<Sampler> sources, const std::vector<double>& weights);

    int64_t seq_len() const { return sources_[0].seq_len(); }
    size_t sources() const { return sources_.size(); }
    const Sampler& source(size_t number) const { return sources_[number]; }
    /// As those of SourceBlend, for windows.
    double part(size_t number) const { return blend_.part(number); }
    int64_t num_windows() const { return blend_.count(); }
    double passes(size_t number, int64_t samples) const { return blend_.passes(number, samples); }
    int64_t first_epoch() const { return blend_.first_epoch(); }
    /// The source of sample i, and the number of its window in the whole file of this source. Not
    /// thread-safe.
    BlendOrder::Place window_of(int64_t i);
    /// Like Sampler::sample. Not thread-safe.
    int64_t sample(int64_t i, std::span<int32_t> inputs, std::span<int32_t> labels,
                   std::span<int32_t> document_start);
    /// The source of the sample that was written last.
    size_t last_source() const { return last_source_; }

private:
    std::vector<Sampler> sources_;
    SourceBlend blend_;
    size_t last_source_ = 0;
};

}  // namespace coeus
