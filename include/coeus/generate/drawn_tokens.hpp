// SPDX-License-Identifier: Apache-2.0
// DrawnTokens: the next tokens of texts, each drawn on the rank that has its logits, and known to all.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <cstdint>
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

class DrawnTokens {
public:
    /// In the place of a token, below all tokens: its logits are not finite.
    static constexpr int32_t not_finite = -1;

    /// Only ids below `vocab` are drawn: the model's vocabulary may be padded for speed.
    DrawnTokens(const Sampling& sampling, int64_t vocab) : sampling_(sampling), row_(size_t(vocab)) {}

    /// Starts over, with no token of `texts` texts drawn.
    void begin(size_t texts) { drawn_.assign(texts, drawn_elsewhere); }
    /// Draws the next token of a text, counted from 0, from its logits [1, V] on the host, as draw_token().
    void draw(size_t text, const Tensor& logits, uint64_t index, uint64_t number);
    /// The tokens that all ranks have drawn, or not_finite. Collective.
    std::vector<int32_t> agreed(const Communicator& world);

private:
    static constexpr int32_t drawn_elsewhere = -2;
    Sampling sampling_;
    std::vector<int32_t> drawn_;
    std::vector<float> row_;
};

}  // namespace coeus
