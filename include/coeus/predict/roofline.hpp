// SPDX-License-Identifier: Apache-2.0
// Roofline: how long a step takes at the rates of a machine file, by class of kernel. doc/machines.md says
// what is assumed.
#pragma once

#include "coeus/predict/rates.hpp"

namespace coeus {

/// Seconds of a class of work on one rank: of a local batch, and what a step adds to those of its local
/// batches.
struct RooflineRow {
    std::string name;
    double local_batch = 0, once = 0;
};

struct Roofline {
    std::vector<RooflineRow> rows;     ///< none is 0
    double local_batch = 0, once = 0;  ///< seconds; the sums of the rows
    int64_t local_batches = 1;         ///< of a step
    double tokens = 0;                 ///< of a local batch, divided by the ranks that share them
    /// FLOPs of these tokens as MFU counts them, relative to the peak: the seconds of a local batch at an MFU
    /// of 1. Nothing if MFU is not reported for such a run or such a machine.
    std::optional<double> at_peak;
    bool in_tf32 = false;  ///< products are in TF32, for which no rate is known, and have the time of float32
    int64_t launches = 0, launches_once = 0;  ///< of kernels
    int64_t graph_nodes = 0;                  ///< kernels and collectives in graphs; 0: no graphs
    std::vector<std::string> by_data_sheet;   ///< classes of kernels with the time of the data sheet's peaks
    std::vector<std::string> left_out;        ///< what the machine file says nothing about

    double step() const { return double(local_batches) * local_batch + once; }
    /// The largest MFU at these rates, without and with what is done once a step.
    std::optional<double> mfu_of_local_batch() const;
    std::optional<double> mfu_of_step() const;
    /// A table, and lines below it.
    std::string text(const MachineFile& machine, const MeshShape& mesh) const;
};

/// That of options.rank. `in_tf32`: a run multiplies in TF32. ConfigError as record_step().
Roofline roofline_of(const DecoderConfig& config, const EngineOptions& options, const MachineFile& machine,
                     bool in_tf32 = false);

}  // namespace coeus
