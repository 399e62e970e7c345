// SPDX-License-Identifier: Apache-2.0
// Rates: the seconds of a call or a collective, from a machine file. Nothing if the file has no rate for it.
#pragma once

#include "coeus/predict/machine_file.hpp"
#include "coeus/predict/record.hpp"

namespace coeus {

/// Ranks that communicate, spread evenly over nodes.
struct RankGroup {
    int ranks = 1, nodes = 1;
};
/// The group of a rank along axes of a mesh. `ranks_of_node` consecutive ranks are on a node; 0: all are.
RankGroup group_of(const MeshShape& mesh, int rank, unsigned axes, int ranks_of_node);

/// Seconds, and where they are from.
struct Estimate {
    enum class Source : uint8_t {
        exact,  ///< exactly this call
        rate,   ///< a rate of such calls
        peak    ///< the data sheet's peak: what no call is faster than
    };
    double seconds = 0;
    Source source = Source::rate;
};

class Rates {
public:
    /// The machine must outlive it. `nvls`: NCCL may sum in NVLink's switches.
    explicit Rates(const MachineFile& machine, bool nvls = false) : machine_(machine), nvls_(nvls) {}

    const MachineFile& machine() const { return machine_; }
    /// Without the time to launch it. An exact call of the file counts first, then a rate, then the data
    /// sheet's peaks of arithmetic and memory. Nothing if the file has none of them.
    ///
    /// A product or attention takes max(flops / rate, bytes / memory bandwidth). A product's rate is that of
    /// the points of its type and form (or of any form, if none has its own), weighted by the inverse of
    /// their distance in log(m), log(n) and log(k). The rate of attention is that of its kernel, type and
    /// direction, for the nearest width of heads, between points in log(tokens of a sequence). A file without
    /// points of "own_wgmma" has those of "own" for it, which is slower. More bytes of a product count at the
    /// memory's bandwidth, those of attention as those of any other kernel. Any other kernel takes bytes /
    /// rate + seconds, by its own points or those of "*", between points in log(bytes).
    std::optional<Estimate> seconds(const Call& call) const;
    /// Seconds of a collective with `bytes` in its largest operand. Bandwidth is bus bandwidth, as nccl-tests
    /// counts it: with n ranks, an all-reduce moves 2 (n-1)/n times its bytes, the others (n-1)/n times, a
    /// message ("send_receive", at the curve "message") once. It is between points in log(bytes); below the
    /// first point, the time is constant. Over several nodes with r ranks on each: at most per_node r / ranks
    /// of a node, since all groups of an axis share the nodes' networks, and alpha log2(n) + hop (nodes - 1)
    /// more. A message takes that of the slowest link between neighbours, and alpha + hop. In an all-to-all
    /// each rank sends (n-r)/n of its bytes to other nodes, at per_node / ranks of a node.
    std::optional<double> seconds(const std::string& operation, double bytes, RankGroup group) const;

private:
    std::optional<double> product_rate(const Call& call) const;
    std::optional<double> attention_rate(const Call& call, const std::string& kernel) const;
    std::optional<double> row_seconds(const Call& call) const;

    const MachineFile& machine_;
    bool nvls_;
};

}  // namespace coeus
