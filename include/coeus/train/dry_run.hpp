// SPDX-License-Identifier: Apache-2.0
// Dry run: checks a deck and plans its memory for any number of ranks. Nothing is trained.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/device/device.hpp"
#include "coeus/engine/memory_advice.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The device of each rank, with which the memory plan is compared.
struct PlannedDevice {
    std::string title;                    ///< "an NVIDIA H100"
    std::optional<int64_t> memory_bytes;  ///< none: not known
    bool is_here = false;                 ///< on this host, whose host memory is checked too
    int capability = 0;                   ///< the compute capability of a GPU, if it is known
    std::string text() const;             ///< "Planned for an NVIDIA H100 with 79.6 GiB"
};

/// The device that --memory or --gpu describes. Without these options: this host's memory or its first GPU,
/// as if only one rank used it. Its memory is unknown if the run is planned for a GPU and this host has none.
/// ConfigError for an unknown --gpu.
PlannedDevice planned_device(const CommandLine& command_line, Backend backend);

/// True if the deck with the settings of `advice` is valid on the ranks of `advice`, and its memory plan is
/// not larger than the plan that the advice promises.
bool advice_holds(const Config& config, const DecoderConfig& model, const Alternative& advice);

/// A line of a dry run.
struct PlanLine {
    enum class Verdict {
        fine,
        unknown,      ///< whether a rank fits is not known, since the device's memory is not
        doubtful,     ///< logged as a warning, but a run is not refused
        refused,      ///< a run would be refused for this reason
        refused_here  ///< a run on this host would be: a file is missing or cannot be read, or memory is too
                      ///< small
    };
    std::string text;
    Verdict verdict = Verdict::fine;
};

/// A notice if a rank does not fit into the device's memory, with the cheapest change that makes it fit. A
/// hint if much memory is free although activations are recomputed. advice_holds() has checked every advice.
std::vector<PlanLine> advice_on_memory(const Config& config, const Engine& engine,
                                       const PlannedDevice& device);

/// Validates deck and mesh for `ranks` ranks and describes the run, without running anything. ConfigError for
/// the same mistakes as a run.
std::vector<PlanLine> dry_run_lines(const CommandLine& command_line, int ranks);
/// `coeus train --dry_run`: logs these lines for the number of ranks that the command line gives, or else for
/// `world_size`. Reasons to refuse a run are logged as warnings, and the last line counts them. Returns the
/// exit code: 2 if a run would be refused wherever it starts; with --strict, also if it would be refused only
/// on this host, which lacks a file or memory; else 0.
int dry_run(const CommandLine& command_line, int world_size);

}  // namespace coeus
