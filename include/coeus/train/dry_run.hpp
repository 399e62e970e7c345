// SPDX-License-Identifier: Apache-2.0
// A dry run: a deck is checked and planned for any number of ranks, and nothing runs.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/device/device.hpp"
#include "coeus/engine/memory_advice.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The device of each rank that a plan is made for.
struct PlannedDevice {
    std::string title;                    ///< "an NVIDIA H100"
    std::optional<int64_t> memory_bytes;  ///< none: not known
    bool is_here = false;                 ///< of this host, so that its host memory counts too
    std::string text() const;             ///< "Planned for an NVIDIA H100 with 79.6 GiB"
};

/// By --memory or --gpu; else as if a rank were alone on this host, with its memory or its first GPU; of
/// unknown memory if a run is planned for a GPU and none is here. ConfigError for an unknown --gpu.
PlannedDevice planned_device(const CommandLine& command_line, Backend backend);

/// Whether a run of this deck with the settings of `advice`, on its ranks, is valid and needs at most what
/// was promised.
bool advice_holds(const Config& config, const DecoderConfig& model, const Alternative& advice);

/// A notice if a rank does not fit, with the cheapest change that does; a hint if much is free and something
/// is recomputed. Each advice was tried: advice_holds().
std::vector<std::string> advice_on_memory(const Config& config, const Engine& engine,
                                          const PlannedDevice& device);

/// A line of a dry run.
struct PlanLine {
    enum class Verdict {
        fine,
        refused,      ///< a run would be refused for it
        refused_here  ///< on this host: for a file that is not there, or for its memory
    };
    std::string text;
    Verdict verdict = Verdict::fine;
};

/// Validates deck and mesh for any number of ranks, and says in lines what would run; runs nothing.
/// ConfigError as a run would have.
std::vector<PlanLine> dry_run_lines(const CommandLine& command_line, int ranks);
/// `coeus train --dry_run`: logs them, for the ranks that the command line names, or else `world_size`.
/// Why a run would be refused are warnings, and counted in the last line. Returns the exit code: 2 if there
/// are any with --strict, else 0.
int dry_run(const CommandLine& command_line, int world_size);

}  // namespace coeus
