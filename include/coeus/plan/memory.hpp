// SPDX-License-Identifier: Apache-2.0
// The memory plan: the same layers run once with kernels that do nothing over arenas that only measure. What
// they would have used at most is what the run allocates; nothing is allocated later.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/layers/exchanges.hpp"
#include "coeus/layers/kv_cache.hpp"
#include "coeus/pipeline/executor.hpp"

#include <functional>
#include <optional>
#include <string>

namespace coeus {

/// Micro-batch of training or validation; sequences 0: not used.
struct BatchShape {
    int64_t sequences = 0, seq_len = 0;
    int64_t count() const { return sequences * seq_len; }
};

/// Bytes per rank of what a GPU's run has in host memory, beside the GPU's.
struct HostMemory {
    Parameters::Bytes state;  ///< offloaded weights and moments
    int64_t activations = 0;  ///< offloaded inputs of blocks, of all micro-batches alive
    int64_t copies = 0;       ///< of weights and moments, for checkpoints written beside the training
    int64_t snapshot = 0;     ///< of weights and moments, to go back to
    int64_t exchange = 0;     ///< token ids, pieces of reductions
    int64_t total() const { return state.total() + activations + copies + snapshot + exchange; }
};

/// Bytes per rank.
struct MemoryPlan {
    Parameters::Bytes state;
    Gathered::Bytes gathered;  ///< weights and gradients of units in use, where ranks divide them
    int64_t activations = 0;   ///< frames of all micro-batches alive
    ExecutorMemory executor;   ///< of which activations and the slots of flows follow
    int64_t temporaries = 0;
    int64_t workspace = 0;   ///< scratch of kernels
    int64_t batches = 0;     ///< token ids, filled in by token_id_bytes
    int64_t reduction = 0;   ///< pieces of the peers' gradients, filled in by Communicator::reduction_bytes
    int64_t tables = 0;      ///< RoPE
    int64_t cache = 0;       ///< keys and values of generation
    int64_t copies = 0;      ///< of weights and moments, for checkpoints written beside the training
    int64_t snapshot = 0;    ///< of weights and moments, to go back to
    int64_t libraries = 0;   ///< filled in by library_bytes
    int64_t nccl = 0;        ///< an estimate, filled in by nccl_bytes
    int64_t offloading = 0;  ///< places that offloaded state and activations pass through
    HostMemory on_host;      ///< not in the total

    /// Arithmetic of a micro-batch's forward and backward, with what is computed again.
    double flops = 0;

    int64_t total() const {
        return state.total() + gathered.weights + gathered.gradients + activations + executor.slots +
               temporaries + workspace + batches + reduction + tables + cache + copies + snapshot +
               libraries + nccl + offloading;
    }
    /// Those that are not 0, largest first.
    std::vector<std::pair<std::string, int64_t>> terms() const;
    std::vector<std::pair<std::string, int64_t>> terms_on_host() const;
    /// One line a term, largest first, and the total beside the limit; what a GPU's run has on the host.
    std::string text(std::optional<int64_t> limit_bytes) const;
};

/// The larger of what training (a micro-batch) and validation need (shapes of whole sequences), on the mesh's
/// rank, whose stages these are. The callers add `gathered`, `batches` and `reduction`.
MemoryPlan plan_training(const Decoder& decoder, const Executor& executor, const BatchShape& training,
                         const BatchShape& validation, int threads, const Mesh& mesh,
                         const ExchangeOptions& exchanges = {}, Backend backend = Backend::cpu);
/// Of a whole decoder on one rank, one micro-batch after the other.
MemoryPlan plan_training(const Decoder& decoder, const BatchShape& training, const BatchShape& validation,
                         int threads, const Mesh& mesh = mesh_of_one(),
                         const ExchangeOptions& exchanges = {});
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
/// Forward only, for generation: `batch.sequences` texts side by side, each of up to `batch.seq_len` tokens.
/// One at a time is read whole, then all go on by a token at a time. `cache`: without memory.
MemoryPlan plan_generation(const Decoder& decoder, const KvCache& cache, int threads,
                           Backend backend = Backend::cpu);
/// Throws ConfigError naming the largest terms where the plan exceeds the limit; `remedy` says what to
/// change.
void require_fits(const MemoryPlan& plan, int64_t limit_bytes, const std::function<std::string()>& remedy);
/// The same of what a GPU's run has in host memory.
void require_fits_on_host(const MemoryPlan& plan, int64_t limit_bytes);

}  // namespace coeus
