// SPDX-License-Identifier: Apache-2.0
// TokenScores: what an evaluation knows of each token of a local batch.
#pragma once

#include <cstdint>
#include <vector>

namespace coeus {

/// [sequences, seq_len] each, in the order of the sequences, on whatever ranks the tokens were.
struct TokenScores {
    std::vector<double> losses;             ///< -log p(label); 0 if the token has no label
    std::vector<uint8_t> label_is_largest;  ///< 1: no logit is larger than the label's; 0 without a label
};

}  // namespace coeus
