// SPDX-License-Identifier: Apache-2.0
// Recording: the kernels and collectives of a step, in the order in which a rank submits them. The engine
// itself runs the step, with kernels that compute nothing, on a device without memory (make_planned_device)
// and with ranks that are not there (Mesh::planned).
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

    auto operator<=>(const Call&) const = default;
    /// "gemm bfloat16 nt 4096x12288x4096", "rms_norm bfloat16 67125248 bytes"
    std::string key() const;
};

/// A collective of this rank with others.
struct Collective {
    std::string operation;  ///< "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send_receive"
    unsigned axes = 0;      ///< of the mesh
    double bytes = 0;       ///< of the largest operand

    auto operator<=>(const Collective&) const = default;
};

/// What a rank submits. Weights are gathered and gradients reduced on queues of their own, beside the
/// computation.
struct Submitted {
    enum class Kind : uint8_t {
        kernel,             ///< of the computation; `index` is that of a Call
        gather,             ///< of weights; `index` is that of a Collective
        reduce,             ///< of gradients; likewise
        exchange,           ///< any other collective, for which the computation waits; likewise
        wait_for_gathers,   ///< the computation waits for all gathers so far
        wait_for_room,      ///< the computation waits for all reductions so far but the last
        wait_for_gradients  ///< the computation waits for all reductions
    };
    Kind kind;
    uint32_t index = 0;
};

struct Recording {
    MeshShape mesh;
    int rank = 0;
    std::vector<Call> calls;              ///< each once
    std::vector<Collective> collectives;  ///< each once
    std::vector<Submitted> submitted;     ///< of a step
    int64_t launches() const;             ///< kernels of the step
    int64_t communications() const;       ///< collectives of the step
};

/// Records a step with options.accumulation local batches on options.rank. Not for offloaded state
/// (StateTypes::offload), whose transfers are not seen: ConfigError.
Recording record_step(const DecoderConfig& config, const EngineOptions& options);

}  // namespace coeus
