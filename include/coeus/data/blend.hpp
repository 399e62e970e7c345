// SPDX-License-Identifier: Apache-2.0
// Samples of several sources, mixed by weight. Which source sample i comes from depends on (weights, i)
// alone:
//   Tijdeman's rule for the chairman assignment problem (Discrete Mathematics 32, 1980): of the sources whose
//   share lags behind by at least 1 / (2 K - 2), the one that must come soonest. In the first i samples each
//   of K sources then has its weight's part of i to within 1 - 1 / (2 K - 2) samples, for every i.
// (The usual greedy rule, the largest lag first, has no such bound for more than two sources.)
#pragma once

#include "coeus/data/sampler.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace coeus {

/// The order in which sources take turns.
class BlendOrder {
public:
    /// Weights greater than 0, of any sum. Decimal weights and counts are taken exactly, others to 2^-40 of
    /// their sum.
    explicit BlendOrder(const std::vector<double>& weights);

    struct Place {
        size_t source;
        int64_t index;  ///< in the stream of this source
    };
    /// Of sample i. The next one costs O(K); a place behind costs O(K) for each sample between, at most for
    /// one period; a place before starts the period again. Not for two threads at once.
    Place place_of(int64_t i);

    /// After so many samples the order begins again, and each source has had exactly its part.
    int64_t period() const { return period_; }
    /// Of a source, in a period.
    int64_t count(size_t source) const { return weights_[source]; }

private:
    void restart();
    size_t advance();

    std::vector<int64_t> weights_;
    int64_t period_ = 0;
    // of the period that is under way
    int64_t step_ = 0;
    std::vector<int64_t> taken_, lag_;  // lag: weight * step - taken * period
};

/// What training and validation read: samplers of one sequence length, in the order of a blend.
class SampleStream {
public:
    /// One source, as it is.
    SampleStream(const Sampler& source);
    /// Sources of one sequence length; without weights by their sizes, so that each window comes once in an
    /// epoch of all.
    SampleStream(std::vector<Sampler> sources, const std::vector<double>& weights);

    int64_t seq_len() const { return sources_[0].seq_len(); }
    const Sampler& source(size_t number) const { return sources_[number]; }
    /// Of all samples, the part that comes from a source.
    double part(size_t number) const { return double(order_.count(number)) / double(order_.period()); }
    /// Windows of all sources.
    int64_t num_windows() const;
    /// How often the first so many samples read a source, on the average of its windows.
    double passes(size_t number, int64_t samples) const;
    /// Samples before the first one that comes for the second time: without weights, all windows. Takes at
    /// most one period of the order.
    int64_t first_epoch() const;
    /// As Sampler::sample. Not for two threads at once.
    int64_t sample(int64_t i, std::span<int32_t> inputs, std::span<int32_t> labels,
                   std::span<int32_t> document_start);

private:
    std::vector<Sampler> sources_;
    BlendOrder order_;
};

}  // namespace coeus
