// SPDX-License-Identifier: Apache-2.0
// Roofline: how long a step takes at the rates of a machine file, by class of kernel. doc/machines.md says
// what is assumed.
#pragma once

#include "coeus/comm/launch_order.hpp"
#include "coeus/predict/rates.hpp"

namespace coeus {

/// Seconds of a class of work on one rank: of a local batch, and what a step adds to those of its local
/// batches.
struct RooflineRow {
    std::string name;
    double local_batch = 0, once = 0;
};

/// Seconds of the operations of a purpose, and of those parts for which the computation waits: of a local
/// batch, and what a step adds.
struct CommunicationRow {
    std::string name;
    double total = 0, exposed = 0;
    double total_once = 0, exposed_once = 0;
};

/// Seconds of a step in another order of operations: of a local batch, and what a step adds.
struct OtherOrder {
    LaunchOrder order = LaunchOrder::serial;
    double local_batch = 0, once = 0;
    double exposed = 0, exposed_once = 0;  ///< of all communication
};

/// A step whose tensor-parallel ranks exchange tokens in the other way.
struct OtherTokens {
    bool overlapped = true;  ///< asynchronous tensor parallelism
    double step = 0;         ///< seconds
};

struct Roofline {
    std::vector<RooflineRow> rows;     ///< none is 0
    double local_batch = 0, once = 0;  ///< seconds; the sums of the rows
    int pipeline_rank = 0;             ///< whose these are
    /// step() by each pipeline rank; empty: they were not compared.
    std::vector<double> steps_of_ranks;
    LaunchOrder order = LaunchOrder::overlapped;
    std::vector<CommunicationRow> communication;  ///< no total is 0
    std::optional<OtherOrder> other;              ///< nothing if a rank has fewer than two communicators
    std::optional<OtherTokens> other_tokens;      ///< nothing without tensor parallelism
    int64_t local_batches = 1;                    ///< of a step
    double tokens = 0;                            ///< of a local batch, divided by the ranks that share them
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

private:
    std::string communication_text() const;
    std::string pipeline_text() const;
};

/// The order of NCCL's operations in a run on the machine: overlapped if the file has no versions of NCCL and
/// driver. `max_ctas`: comm.max_ctas.
LaunchOrder planned_order(const MachineFile& machine, const EngineOptions& options, int64_t max_ctas = 0);

/// That of options.rank. In a pipeline, all ranks' actions are taken to be as long as this rank's, and it
/// waits for them as in simulate(). `in_tf32`: a run multiplies in TF32. ConfigError as record_step().
Roofline roofline_of(const ModelConfig& config, const EngineOptions& options, const MachineFile& machine,
                     LaunchOrder order = LaunchOrder::overlapped, bool in_tf32 = false);
/// That of the pipeline rank with the longest step.
Roofline roofline_of_slowest(const ModelConfig& config, const EngineOptions& options,
                             const MachineFile& machine, LaunchOrder order = LaunchOrder::overlapped,
                             bool in_tf32 = false);

}  // namespace coeus
