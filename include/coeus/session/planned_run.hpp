// SPDX-License-Identifier: Apache-2.0
// PlannedRun: a run as it would be on ranks and devices that need not be here: mesh, model, options and
// memory plan of its first rank. Nothing is allocated or run. Dry runs, `coeus info DECK` and `coeus sbatch`
// look at it.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/engine/engine.hpp"

#include <cstdint>
#include <optional>
#include <string>

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

struct PlannedRun {
    /// Plans for `ranks` ranks what is asked for, which outlives it. ConfigError for the same mistakes as a
    /// run's start.
    PlannedRun(const CommandLine& asked, int ranks);

    const CommandLine& command_line;
    MeshShape mesh;
    ModelConfig model;
    CpuShare cpu;  ///< of one rank alone on this host
    PlannedDevice device;
    std::optional<int64_t> chunks_of_checkpoint;
    Engine engine;  ///< of the first rank, without memory
};

}  // namespace coeus
