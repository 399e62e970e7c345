// SPDX-License-Identifier: Apache-2.0
// How evenly context-parallel ranks divide the attention of samples with several documents. They divide each
// sequence by places, which is even under a causal mask alone. A token attends only to its own document, so
// that the ranks with the later parts of long documents have more work.
#pragma once

#include "coeus/base/sample_rows.hpp"
#include "coeus/layers/exchanges/context_parallel.hpp"

namespace coeus {

/// The pairs of query and key of the busiest rank, divided by the mean of all ranks; 1: the ranks have equal
/// work. Ranks wait for each other after `together` sequences, those of a micro-batch, so the busiest rank of
/// each micro-batch counts. `samples` must have document starts.
double busiest_over_mean(const SampleRows& samples, int64_t together, int ranks, Balancing balancing);

}  // namespace coeus
