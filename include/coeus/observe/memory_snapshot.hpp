// SPDX-License-Identifier: Apache-2.0
// MemorySnapshot: who holds the arenas' memory when, over the kernel calls of one step. Layers give their
// tensors no names: a tensor is called after the first kernel that gets it, which is the one that writes it,
// and after the weight which that kernel uses.
#pragma once

#include "coeus/engine/engine.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

class MemorySnapshot final : public KernelObserver, public ArenaObserver {
public:
    /// Observes from now on; the engine's arenas have one observer at a time. `max_tensors`: what comes after
    /// so many is counted, not kept.
    MemorySnapshot(Engine& engine, size_t max_tensors);
    /// Ends the observation.
    ~MemorySnapshot() override;
    MemorySnapshot(const MemorySnapshot&) = delete;
    MemorySnapshot& operator=(const MemorySnapshot&) = delete;

    /// Memory of one tensor, `first` bytes into its arena, during the calls [from, to).
    struct Held {
        size_t arena;
        int64_t first, bytes, from, to;
        std::string name;  ///< "rms_norm of layers.0.attention_norm"; empty: no kernel was given it
    };
    struct ArenaUse {
        std::string name;
        const Arena* arena;
        int64_t bytes, peak;  ///< peak: in this step
    };
    const std::vector<Held>& held() const { return held_; }
    const std::vector<ArenaUse>& arenas() const { return arenas_; }
    /// What was called, in order: "gemm of layers.0.attention.wq+wk+wv".
    const std::vector<std::string>& calls() const { return calls_; }
    int64_t left_out() const { return left_out_; }

    /// `step-00000010/rank_0.json` and `.svg` below the folder.
    void write(const std::filesystem::path& folder, int64_t step, int rank) const;
    std::string json(int64_t step, int rank) const;
    /// The memory of the arenas over the calls, each tensor a named area.
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
    std::vector<const void*> addresses_;     // of held_
    std::vector<std::vector<size_t>> live_;  // of each arena, indices of held_, by first byte
    std::vector<std::string> calls_;
    std::string part_;  // whose weight was used last: "layers.0.attention"
    bool in_kernel_ = false;
    int64_t left_out_ = 0;
    Observation observation_;
};

}  // namespace coeus
