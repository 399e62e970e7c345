// SPDX-License-Identifier: Apache-2.0
// Generator: the logits of the next token of several texts, each of which keeps its keys and values, so that
// a token costs one row of work; and how a token is drawn from logits.
#pragma once

#include "coeus/device/staged_ids.hpp"
#include "coeus/layers/kv_cache.hpp"
#include "coeus/pipeline/stage.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/state/step_state.hpp"

#include <span>
#include <vector>

namespace coeus {

/// Temperature first, then the k most likely, then the smallest set with probability p (Holtzman et al.
/// 2020).
struct Sampling {
    double temperature = 0.8;  ///< 0: always the most likely token
    int64_t top_k = 0;         ///< 0: all
    double top_p = 1;
    uint64_t seed = 0;
};

/// A token drawn from logits; `index` is its number in the text number `text`, so that the same seed gives
/// the same texts, in whatever company they are written.
int32_t draw_token(std::span<const float> logits, const Sampling& sampling, uint64_t index,
                   uint64_t text = 0);

class Generator {
public:
    /// The most texts side by side. Generated on a CPU, no bit of a text depends on the others.
    static int64_t most_sequences(const Device& device) { return kernels_of(device.backend()).thin_rows; }

    /// Plans and takes all memory: for `sequences` texts of up to `context` tokens. Weights are loaded into
    /// decoder().parameters(). The device must outlive it. ConfigError where it does not fit into its memory.
    Generator(const DecoderConfig& config, Dtype dtype, int64_t context, int64_t sequences, int threads,
              const Device& device = host_device());

    Decoder& decoder() { return decoder_; }
    const MemoryPlan& plan() const { return plan_; }
    int64_t context() const { return cache_.context(); }
    int64_t sequences() const { return cache_.sequences(); }
    /// Tokens that a slot holds.
    int64_t length(int64_t slot) const { return lengths_[size_t(slot)]; }
    /// After the weights were loaded.
    void weights_changed() { decoder_.parameters().refresh_compute(exec_, *kernels_); }

    /// Begins a text of 1 to `context` tokens in a slot, whatever was there: logits [1, V] (f64 with f64,
    /// else f32) of the token that follows, on the host. They stay until the next call. NotFiniteError where
    /// one is not finite.
    Tensor read(int64_t slot, std::span<const int32_t> tokens);

    struct Next {
        int64_t slot;
        int32_t token;
    };
    /// One more token for each of these slots, which have room for it and are all different: logits
    /// [number of them, V].
    Tensor append(std::span<const Next> tokens);

private:
    Tensor run(const Batch& batch, const KvExchange& exchange);
    KvCache cache_;
    Decoder decoder_;
    Stage stage_;
    LayerMemory layers_;
    MemoryPlan plan_;
    const Kernels* kernels_;
    Exec exec_;
    Frame frame_;
    Arena temp_;
    StepState step_;
    StagedIds tokens_, positions_, slots_;
    OwnedTensor logits_, staged_logits_;  // the latter of a GPU alone
    Tensor logits_on_host_;
    std::vector<int64_t> lengths_;
};

}  // namespace coeus
