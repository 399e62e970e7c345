// SPDX-License-Identifier: Apache-2.0
// Generator: computes the logits of the next token for several texts. Caches the keys and values
// of each text, so that each new token needs only one row of computation.
//
// Ranks of a mesh divide the work as in training. Tensor-parallel ranks divide heads, so each caches its part
// of the keys and values; pipeline ranks have those of their layers. Context-parallel ranks divide the tokens
// of a prompt, and they divide the cached heads further. A single new token cannot be divided: each of them
// computes it, but attends with its own heads. The ranks of one pipeline, with all tensor- and
// context-parallel ones, work on the same texts: these are those of a data rank. Data ranks (dp_replicate x
// dp_shard) have texts of their own. They step together, since they gather weights and exchange rows of
// experts.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/device/staged_ids.hpp"
#include "coeus/layers/exchanges/exchanges.hpp"
#include "coeus/layers/kv_cache.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/pipeline/executor.hpp"
#include "coeus/pipeline/gathered_logits.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/state/fsdp.hpp"
#include "coeus/state/step_state.hpp"

#include <optional>
#include <span>
#include <vector>

namespace coeus {

/// Where a generator computes. Mesh and device must outlive it.
struct GeneratorPlace {
    int threads = 1;
    const Device& device = host_device();
    const Mesh& mesh = mesh_of_one();
    int64_t memory_bytes = 0;  ///< what the rank may use of the device; 0: all of it
    int64_t nccl_bytes = 0;    ///< of these, what NCCL takes; 0: it does not carry the tensors of the ranks
};

class Generator {
public:
    /// Plans and allocates all memory for `sequences` texts, of each data rank, of up to `context` tokens.
    /// The caller loads weights into decoder(), which has no layers of multi-token prediction. ConfigError if
    /// a rank's device has too little memory, or if the pipeline has more ranks than layers allow. Collective
    /// over the mesh, like all that computes.
    Generator(const DecoderConfig& config, Dtype dtype, int64_t context, int64_t sequences,
              const GeneratorPlace& place = {});

    Decoder& decoder() { return decoder_; }
    const MemoryPlan& plan() const { return plan_; }
    /// The sizes of the arenas as planned, and their peaks so far.
    const LayerMemory& layer_memory() const { return layers_; }
    LayerMemory used() const;
    const Mesh& mesh() const { return mesh_; }
    int64_t context() const { return cache_.context(); }
    int64_t sequences() const { return cache_.sequences(); }
    /// The most texts that one append() continues, at most sequences(). With so few on a CPU, each text of
    /// one rank is bit-identical whatever the others are.
    int64_t texts_at_once() const { return texts_at_once_; }
    /// Number of tokens of the text in a slot.
    int64_t length(int64_t slot) const { return lengths_[size_t(slot)]; }
    /// Must be called after weights are loaded.
    void weights_changed();

    // The next two return logits on the host: f64 if the model computes in f64, else f32. They are valid
    // until the next call, and absent on ranks that do not have the last stage, and on all but one of the
    // context-parallel ranks. All data ranks must make the same call with the same `longest`.

    /// Starts a text of 1 to `context` tokens in a slot, in place of the slot's previous text. Returns the
    /// logits [1, V] of the next token. Without tokens, the rank only takes part in the work of the others.
    /// `longest`: the most tokens that a data rank reads; 0: it is this one.
    Tensor read(int64_t slot, std::span<const int32_t> tokens, int64_t longest = 0);

    struct Next {
        int64_t slot;
        int32_t token;
    };
    /// Appends one token to each of these slots, which must be distinct and not full. Returns the logits of
    /// the next tokens, [number of slots, V]. There may be no slots, if other data ranks have some.
    /// `longest`: the most slots of a data rank, at most texts_at_once(); 0: it is this one.
    Tensor append(std::span<const Next> tokens, int64_t longest = 0);

private:
    int64_t tp() const { return mesh_.size(axis::tp); }
    int64_t cp() const { return mesh_.size(axis::cp); }
    bool has_logits() const { return decoder_.parts().front().last == decoder_.segments().size(); }
    Executor executor();
    MemoryPlan plan(const GeneratorPlace& place) const;
    void allocate(const GeneratorPlace& place);
    Tensor run(const BatchShape& shape, const KvExchange& exchange, std::span<const int64_t> tokens);

    const Mesh& mesh_;
    Exec exec_;
    DecoderPart part_;
    KvCache cache_;
    int64_t texts_at_once_;
    Decoder decoder_;
    Gathered gathered_;
    GatheredLogits logits_;
    Executor executor_;
    LayerMemory layers_;
    MemoryPlan plan_;
    const Kernels* kernels_;
    Arena temp_;
    StepState step_;
    StagedIds tokens_, positions_, slots_;
    std::optional<Exchanges> exchanges_;  // its streams must end before the arenas
    std::vector<int64_t> lengths_;
};

}  // namespace coeus
