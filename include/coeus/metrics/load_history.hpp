// SPDX-License-Identifier: Apache-2.0
// The loads of all experts over a run: expert_loads.jsonl in the run's folder. It has one line per recorded
// step, with the load of each expert of each layer in percent of the mean of the layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace coeus {

/// A run records about this many steps at most, so that the file stays small. A picture shows no more.
inline constexpr int64_t most_recorded_loads = 500;

/// True if the loads of a logged step are recorded: those of the first and the last step, and of every
/// log_freq-th or, in a long run, of every n-th of these. It depends on nothing else, so a resumed run
/// continues the record.
bool records_loads(int64_t step, int64_t log_freq, int64_t steps);

/// One line of expert_loads.jsonl. `layers`: the numbers of the layers with experts. `loads`: the tokens of
/// each expert, [layers, experts].
std::string load_line(int64_t step, std::span<const int64_t> layers, std::span<const int64_t> loads);

/// The loads of each expert of one layer by step, 1 for the mean of the layer. All have the same number of
/// experts.
using LayerLoads = std::map<int64_t, std::vector<float>>;
/// By the layer's number.
using LoadHistory = std::map<int64_t, LayerLoads>;

/// Reads expert_loads.jsonl. Skips incomplete lines, and layers with another number of experts than those
/// before. If a step has two lines, the later one counts. Empty if the file is absent.
LoadHistory read_load_history(const std::filesystem::path& file);

}  // namespace coeus
