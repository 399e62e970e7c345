// SPDX-License-Identifier: Apache-2.0
// The memory plan: a list of what a rank holds, by name, with its bytes and where they are.
#pragma once

#include "coeus/plan/layer_memory.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// The memory of the device that computes (of a CPU: the host's), or the host's beside a GPU.
enum class MemoryPlace : uint8_t { device, host };

/// The names of a plan's terms, as users read them.
namespace term {
inline constexpr const char *weights = "weights", *compute_weights = "weights in the compute type",
                            *gradients = "gradients", *moments = "optimizer moments",
                            *gathered_weights = "gathered weights",
                            *unreduced_gradients = "unreduced gradients", *activations = "activations",
                            *flows = "flows between stages", *temporaries = "temporaries",
                            *workspace = "kernel workspace", *token_ids = "token ids",
                            *reduction = "pieces of a reduction", *rope_table = "RoPE table",
                            *cache = "cache of keys and values", *copies = "copies for checkpoints",
                            *snapshot = "in-memory snapshot", *libraries = "buffers of libraries",
                            *nccl = "buffers of NCCL (estimate)", *offloading = "places of offloading",
                            *ids_and_reductions = "token ids and reductions";
}  // namespace term

/// Bytes per rank.
class MemoryPlan {
public:
    struct Term {
        std::string name;
        int64_t bytes;
        MemoryPlace place;
    };

    /// Bytes of a name that is there already are added to it; nothing is noted of 0 bytes.
    void add(const std::string& name, int64_t bytes, MemoryPlace place = MemoryPlace::device);
    /// Weights, gradients and moments.
    void add(const Parameters::Bytes& state, MemoryPlace place = MemoryPlace::device);
    /// The bytes of a term; 0 if the plan has none of this name.
    int64_t bytes(std::string_view name, MemoryPlace place = MemoryPlace::device) const;
    int64_t total(MemoryPlace place = MemoryPlace::device) const;
    /// Those in a place, largest first, and of equal ones the one that was added first.
    std::vector<Term> largest_first(MemoryPlace place = MemoryPlace::device) const;
    /// One line a term, largest first, and the total beside the limit; then the same for a GPU's host.
    std::string text(std::optional<int64_t> limit_bytes) const;

private:
    std::vector<Term> terms_;
};

/// The plan of a generator; `layers` as measure_generation() found them.
MemoryPlan plan_generation(const Decoder& decoder, const KvCache& cache, const LayerMemory& layers);

/// The cosines and sines of all positions.
int64_t rope_table_bytes(const Decoder& decoder);
/// What CUDA's libraries, kernels and graphs take of a GPU beside our own memory: an estimate, until it is
/// measured on one.
inline constexpr int64_t cuda_library_bytes = int64_t(768) << 20;
/// Token ids. On the host: tokens, labels and document starts of two steps of so many local batches (one in
/// use, one being read) and of a validation batch; tokens, labels and positions of this one's part of each
/// local batch of a step, of `context_ranks`. A GPU has them of one local batch, with the document starts of
/// its whole sequences, which the host keeps for copies to it as well.
struct TokenIdBytes {
    int64_t host = 0, device = 0;
};
TokenIdBytes token_id_bytes(const BatchShape& training, int64_t local_batches, const BatchShape& validation,
                            int context_ranks = 1, Backend backend = Backend::cpu);
/// What libraries take for themselves while a model trains, on top of the loaded program: compiled kernels of
/// oneDNN or buffers of OpenBLAS, and MPI's for each peer.
int64_t library_bytes(Dtype compute, int ranks);
/// What NCCL takes of a GPU's memory for so many communicators: an estimate, since it chooses algorithms and
/// channels by machine and size. Of each channel a connection has a buffer for each protocol: Simple 4 MiB
/// (NCCL's documentation, NCCL_BUFFSIZE), LL 8 lines x 512 threads x 8 steps x 16 bytes and LL128 120 words x
/// 640 threads x 8 steps x 8 bytes (its source, src/include/device.h); 16 channels are what it takes at least
/// over NVLink of H100 and B200, of which a ring has one connection each.
int64_t nccl_bytes(int communicators);
/// Throws ConfigError naming the largest terms where the plan exceeds the limit; `remedy` says what to
/// change.
void require_fits(const MemoryPlan& plan, int64_t limit_bytes, const std::function<std::string()>& remedy);
/// The same of what a GPU's run has in host memory.
void require_fits_on_host(const MemoryPlan& plan, int64_t limit_bytes);

}  // namespace coeus
