// SPDX-License-Identifier: Apache-2.0
// MemoryPlan: a list of everything that a rank holds in memory: name, bytes and place.
#pragma once

#include "coeus/plan/layer_memory.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// Memory of the device that computes (for a CPU run: the host's), or of the host of a GPU.
enum class MemoryPlace : uint8_t { device, host };

/// The names of a plan's terms, as users see them.
namespace term {
inline constexpr const char *weights = "weights", *compute_weights = "weights in the compute type",
                            *gradients = "gradients", *moments = "optimizer moments",
                            *gathered_weights = "gathered weights", *weight_scales = "scales of weights",
                            *kept_operands = "weights in 8 bits",
                            *unreduced_gradients = "unreduced gradients",
                            *summed_gradients = "gradients while summed", *activations = "activations",
                            *flows = "pipeline buffers", *temporaries = "temporaries",
                            *tokens = "tokens of other ranks", *workspace = "kernel workspace",
                            *reduction = "reduction buffers", *position_tables = "position tables",
                            *cache = "key/value cache", *logits = "logits",
                            *copies = "copies for checkpoints", *snapshot = "in-memory snapshot",
                            *libraries = "library buffers", *nccl = "NCCL buffers (estimate)",
                            *spare = "kept free", *offloading = "offloading buffers",
                            *scores = "scores of tokens";
}  // namespace term

/// The plan of a rank; all sizes are bytes per rank.
class MemoryPlan {
public:
    struct Term {
        std::string name;
        int64_t bytes;
        MemoryPlace place;
    };

    /// Adds a term. Bytes for an existing name and place are added to that term; 0 bytes are ignored.
    void add(const std::string& name, int64_t bytes, MemoryPlace place = MemoryPlace::device);
    /// Adds weights, gradients and moments.
    void add(const Parameters::Bytes& state, MemoryPlace place = MemoryPlace::device);
    /// The bytes of a term; 0 if the plan has no term of this name.
    int64_t bytes(std::string_view name, MemoryPlace place = MemoryPlace::device) const;
    int64_t total(MemoryPlace place = MemoryPlace::device) const;
    /// The terms in a place, the largest first; terms of equal size in the order in which they were added.
    std::vector<Term> largest_first(MemoryPlace place = MemoryPlace::device) const;
    /// One line per term, the largest first, then the total and the limit; then the same for a GPU's host.
    std::string text(std::optional<int64_t> limit_bytes) const;

private:
    std::vector<Term> terms_;
};

/// The most rows of a micro-batch that generates: of a rank's part of a prompt, or of the next tokens of
/// texts.
int64_t most_rows(const KvCache& cache, int64_t texts_at_once, const MeshShape& mesh);
/// The plan for generation, from the result of measure_generation(), without what the generator itself has.
MemoryPlan plan_generation(const Model& model, const KvCache& cache, int64_t texts_at_once,
                           const LayerMemory& layers, const MeshShape& mesh = {});

/// Memory that CUDA's libraries, kernels and graphs take on a GPU besides Coeus's own: an estimate, until it
/// is measured on a GPU.
inline constexpr int64_t cuda_library_bytes = int64_t(768) << 20;
/// Bytes that libraries allocate themselves while a model trains, in addition to the loaded program: compiled
/// kernels of oneDNN or buffers of OpenBLAS, and MPI's buffers for each peer.
int64_t library_bytes(Dtype compute, int ranks);
/// Bytes that NCCL takes on a GPU for this many communicators; `nvls`: it may sum in NVLink's switches. This
/// is an estimate until it is measured, since NCCL chooses algorithms and channels by machine and size. A
/// connection has, for each channel, a buffer per protocol: Simple 4 MiB (NCCL's documentation,
/// NCCL_BUFFSIZE), LL 8 lines x 512 threads x 8 steps x 16 bytes, and LL128 120 words x 640 threads x 8 steps
/// x 8 bytes (NCCL's source, src/include/device.h). A communicator is assumed to have a ring and a tree of 16
/// channels, its minimum over the NVLink of H100 and B200. For NVLS: src/transport/nvls.cc.
int64_t nccl_bytes(int communicators, bool nvls = false);
/// Bytes of a GPU that a plan with NCCL keeps free, since NCCL allocates during the first steps and its need
/// is an estimate.
inline constexpr int64_t spare_bytes = int64_t(1) << 30;
/// Throws ConfigError with the largest terms if the plan exceeds the limit; `remedy` returns what to change.
void require_fits(const MemoryPlan& plan, int64_t limit_bytes, const std::function<std::string()>& remedy);
/// The same for host memory in a run on GPUs.
void require_fits_on_host(const MemoryPlan& plan, int64_t limit_bytes);

}  // namespace coeus
