// SPDX-License-Identifier: Apache-2.0
// Recording: the kernels and collectives of a step and the waits of queues for each other, in the order in
// which a rank submits them. The engine itself runs the step, with kernels that compute nothing, on a device
// without memory (make_planned_device) and with ranks that are not there (Mesh::planned).
#pragma once

#include "coeus/engine/engine.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

/// A call of a kernel: what its time depends on.
struct Call {
    std::string kernel;   ///< an entry of Kernels
    std::string variant;  ///< see PlannedKernel
    Dtype type = Dtype::f32;
    std::array<int64_t, 3> size = {};
    double flops = 0, bytes = 0;
    int launches = 1;
    double more_bytes = 0;  ///< of kernels before and after that of the call itself

    auto operator<=>(const Call&) const = default;
    /// "gemm bfloat16 nt 4096x12288x4096", "rms_norm bfloat16 67125248 bytes"
    std::string key() const;
};

/// What tensors go between ranks for.
enum class Purpose : uint8_t {
    weights,    ///< gathers of divided weights
    gradients,  ///< sums of gradients over shards and replicas, and of the loss
    tensor,     ///< tokens and losses of tensor parallelism
    context,    ///< keys, values and their gradients, if sequences are divided
    stages,     ///< messages of a pipeline
    experts,    ///< rows of tokens to experts of other ranks, and back
    others      ///< norm, scales of 8-bit tensors, the optimizer's matrices
};
inline constexpr size_t num_purposes = size_t(Purpose::others) + 1;

/// An operation of this rank with others: a collective, a message, or several of one communicator that begin
/// together.
struct Collective {
    std::string operation;  ///< "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send_receive",
                            ///< "peer_copy" by copy engines
    unsigned axes = 0;      ///< of the mesh
    double bytes = 0;       ///< of the largest operand; of several together, their sum
    Purpose purpose = Purpose::others;

    auto operator<=>(const Collective&) const = default;
};

/// What a rank submits to one of its queues. Queue 0 is the computation's.
struct Submitted {
    enum class Kind : uint8_t {
        kernel,      ///< `index` is that of a Call
        collective,  ///< `index` is that of a Collective
        wait,        ///< later work of the queue waits for the entry with the number `index`, of another one
        begin_action,  ///< of the pipeline, until end_action; `index` is an ActionKind
        end_action
    };
    Kind kind = Kind::kernel;
    uint32_t queue = 0;
    uint32_t index = 0;
    Purpose purpose = Purpose::others;  ///< of a kernel beside the computation: that of its operation

    bool operator==(const Submitted&) const = default;
};

struct Recording {
    MeshShape mesh;
    int rank = 0;
    std::vector<Call> calls;              ///< each once
    std::vector<Collective> collectives;  ///< each once
    std::vector<Submitted> submitted;     ///< of a step
    uint32_t queues = 1;
    int64_t launches() const;         ///< kernels of the step's computation
    int64_t launches_beside() const;  ///< collectives of the step, and the kernels of other queues
};

/// Records a step with options.accumulation local batches on options.rank. With options.graphs, the
/// computation waits for all queues at the end of each local batch, where a graph ends, and experts' rows go
/// to other ranks in blocks (EngineOptions::expert_blocks). In rounds, there are as many rows as memory is
/// planned for. Kernels beside the computation are those of gathers of weights and sums of gradients: casts
/// before and after, scales, additions to owned gradients. Not for offloaded state (StateTypes::offload),
/// whose transfers are not seen: ConfigError.
Recording record_step(const ModelConfig& config, const EngineOptions& options);

}  // namespace coeus
