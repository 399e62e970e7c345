// SPDX-License-Identifier: Apache-2.0
// Series that a report computes from those of metrics.jsonl and from the starts of the run.
#pragma once

#include "coeus/report/report.hpp"

#include <optional>
#include <vector>

namespace coeus {

/// The value as it is drawn and listed; none if it is not a number, or so large that the difference or the
/// sum of two could overflow. 0 if it is so small that a difference could underflow.
std::optional<double> drawable(double value);

/// Adds total_tps, bits_per_byte and validation_bits_per_byte to the fields and series of a run, for the
/// steps for which they are known.
void add_derived(RunData& run);

/// All starts of all runs are known to have had one rank: total_tps says nothing new.
bool have_one_rank(const std::vector<RunData>& runs);

}  // namespace coeus
