// SPDX-License-Identifier: Apache-2.0
// Numbers of a model's parameters, counted in what its parts declare.
#pragma once

#include "coeus/models/decoder_config.hpp"

namespace coeus {

struct ElementCounts {
    int64_t all = 0;     ///< elements of all parameters; a tied matrix counts once
    int64_t active = 0;  ///< those that one token uses
};

/// Counts one layer of each kind, and what is outside of layers. The model must be valid.
ElementCounts count_elements(const DecoderConfig& model);

/// The most elements that a model may have.
inline constexpr double most_elements = 1e15;
/// ConfigError if there are more elements than that. Fewer of them have less bytes than 64 bits can count.
void require_countable(double elements);
/// The same for a model, one of whose parameters alone may have more elements than 64 bits can count.
void require_countable(const DecoderConfig& model);

}  // namespace coeus
