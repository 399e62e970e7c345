// SPDX-License-Identifier: Apache-2.0
// DocumentBalance: how evenly context-parallel ranks divide the attention of samples with several documents.
// They divide each sequence by places, which is even under a causal mask alone. A token attends only to its
// own document, so that the ranks with the later parts of long documents have more work.
#pragma once

#include "coeus/base/sample_rows.hpp"
#include "coeus/layers/exchanges/context_parallel.hpp"

namespace coeus {

/// For layers without windows and chunks.
class DocumentBalance {
public:
    DocumentBalance(int ranks, Balancing balancing) : ranks_(ranks), balancing_(balancing) {}
    /// Counts the pairs of query and key of a micro-batch, after which the ranks wait for each other.
    /// `samples` must have document starts.
    void add(const SampleRows& samples);
    /// The pairs of the busiest rank of each micro-batch, divided by the mean of all ranks; 1: the ranks have
    /// equal work.
    double busiest_over_mean() const { return all_ > 0 ? busiest_ * ranks_ / all_ : 1; }

private:
    int ranks_;
    Balancing balancing_;
    double busiest_ = 0, all_ = 0;
};

}  // namespace coeus
