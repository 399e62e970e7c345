// SPDX-License-Identifier: Apache-2.0
// MemorySnapshot: which tensors hold the arenas' memory, and when, over the kernel calls of one step. Layers
// do not name their tensors. So a tensor is named after the first kernel that gets it, which is the one that
// writes it, and after the weight that this kernel uses.
#pragma once

#include "coeus/engine/engine.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

class MemorySnapshot final : public KernelObserver, public ArenaObserver {
public:
    /// Begins to observe. The engine's arenas have one observer at a time. `max_tensors`: tensors beyond this
    /// number are only counted.
    MemorySnapshot(Engine& engine, size_t max_tensors);
    /// Ends the observation.
    ~MemorySnapshot() override;
    MemorySnapshot(const MemorySnapshot&) = delete;
    MemorySnapshot& operator=(const MemorySnapshot&) = delete;

    /// Memory of one tensor: `bytes` bytes at offset `first` of its arena, held during the calls [from, to).
    struct Held {
        size_t arena;  ///< index into arenas()
        int64_t first, bytes, from, to;
        std::string name;  ///< "rms_norm of layers.0.attention_norm"; empty: no kernel used it
    };
    struct ArenaUse {
        std::string name;
        const Arena* arena;
        int64_t bytes, peak;  ///< peak: in this step
    };
    const std::vector<Held>& held() const { return held_; }
    const std::vector<ArenaUse>& arenas() const { return arenas_; }
    /// The kernel calls, in order: "gemm of layers.0.attention.wq+wk+wv".
    const std::vector<std::string>& calls() const { return calls_; }
    /// Number of tensors beyond max_tensors.
    int64_t left_out() const { return left_out_; }

    /// Writes `step-00000010/rank_0.json` and `.svg` below the folder.
    void write(const std::filesystem::path& folder, int64_t step, int rank) const;
    std::string json(int64_t step, int rank) const;
    /// A picture: memory of the arenas (upwards) over the calls (to the right), each tensor a named area.
    std::string svg(int64_t step, int rank) const;

    void begin(const char* kernel, double flops, double bytes) override;
    void operands(std::span<const Tensor> tensors) override;
    void end() override;
    void allocated(const Arena& arena, int64_t first, const Tensor& tensor) override;
    void rewound(const Arena& arena, int64_t mark) override;

private:
    size_t index_of(const Arena& arena) const;

    Engine& engine_;
    size_t max_tensors_;
    std::vector<ArenaUse> arenas_;
    std::vector<Held> held_;
    std::vector<const void*> addresses_;     // of the tensors in held_
    std::vector<std::vector<size_t>> live_;  // for each arena: indices into held_, sorted by first byte
    std::vector<std::string> calls_;
    std::string part_;  // the module whose weight was used last: "layers.0.attention"
    bool in_kernel_ = false;
    int64_t left_out_ = 0;
    Observation observation_;
};

}  // namespace coeus
