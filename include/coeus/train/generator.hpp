// SPDX-License-Identifier: Apache-2.0
// Generator: writes text with a trained model, token by token; and how the next token is drawn.
#pragma once

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

/// A token drawn from logits; `index` is its number in the text, so that the same seed gives the same text.
int32_t draw_token(std::span<const float> logits, const Sampling& sampling, uint64_t index);

class Generator {
public:
    /// Takes the memory for `context` tokens; weights are loaded into decoder().parameters().
    Generator(const DecoderConfig& config, Dtype dtype, int64_t context, int threads);

    Decoder& decoder() { return decoder_; }
    /// After the weights were loaded.
    void weights_changed() { decoder_.parameters().refresh_compute(exec_, cpu_kernels()); }
    /// Logits of the token after the last one; only the newest `context` tokens are looked at. Throws
    /// NotFiniteError where one is not finite.
    std::span<const float> next_logits(std::span<const int32_t> tokens);

private:
    int64_t context_;
    Decoder decoder_;
    Stage stage_;
    Exec exec_;
    Frame frame_;
    Arena temp_;
    StepState step_;
    OwnedTensor tokens_, positions_, logits_;
    std::vector<float> last_;
};

}  // namespace coeus
