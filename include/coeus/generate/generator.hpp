// SPDX-License-Identifier: Apache-2.0
// Generator: computes the logits of the next token for several texts. Caches the keys and values
// of each text, so that each new token needs only one row of computation. Also samples a token from logits.
#pragma once

#include "coeus/device/staged_ids.hpp"
#include "coeus/layers/kv_cache.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/pipeline/stage.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/state/step_state.hpp"

#include <span>
#include <vector>

namespace coeus {

/// How a token is chosen. Applied in this order: temperature; only the k most likely tokens; of these, only
/// the smallest set whose total probability is at least p (Holtzman et al. 2020).
struct Sampling {
    double temperature = 0.8;  ///< 0: always the most likely token
    int64_t top_k = 0;         ///< 0: all
    double top_p = 1;
    uint64_t seed = 0;
};

/// Samples a token from logits. `index`: the number of the token in its text; `text`: the number of the text.
/// The same seed gives the same texts, however many are generated at the same time.
int32_t draw_token(std::span<const float> logits, const Sampling& sampling, uint64_t index,
                   uint64_t text = 0);

class Generator {
public:
    /// The maximum number of texts at the same time. On a CPU, each text is bit-identical whatever the others
    /// are.
    static int64_t most_sequences(const Device& device) { return kernels_of(device.backend()).thin_rows; }

    /// Plans and allocates all memory for `sequences` texts of up to `context` tokens. The caller loads
    /// weights into decoder(), which has no layers of multi-token prediction. The device must outlive the
    /// generator. ConfigError if the device has too little memory.
    Generator(const DecoderConfig& config, Dtype dtype, int64_t context, int64_t sequences, int threads,
              const Device& device = host_device());

    Decoder& decoder() { return decoder_; }
    const MemoryPlan& plan() const { return plan_; }
    int64_t context() const { return cache_.context(); }
    int64_t sequences() const { return cache_.sequences(); }
    /// Number of tokens of the text in a slot.
    int64_t length(int64_t slot) const { return lengths_[size_t(slot)]; }
    /// Must be called after weights are loaded.
    void weights_changed() { decoder_.parameters().refresh_compute(exec_, *kernels_); }

    /// Starts a text of 1 to `context` tokens in a slot, in place of the slot's previous text. Returns the
    /// logits [1, V] of the next token, on the host: f64 if the model computes in f64, else f32. They are
    /// valid until the next call. NotFiniteError if one is not finite.
    Tensor read(int64_t slot, std::span<const int32_t> tokens);

    struct Next {
        int64_t slot;
        int32_t token;
    };
    /// Appends one token to each of these slots, which must be distinct and not full. Returns the logits of
    /// the next tokens, [number of slots, V].
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
    OwnedTensor logits_, staged_logits_;  // the latter only with a GPU
    Tensor logits_on_host_;
    std::vector<int64_t> lengths_;
};

}  // namespace coeus
