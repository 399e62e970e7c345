// SPDX-License-Identifier: Apache-2.0
// The label that masks a token in the loss.
#pragma once

#include <cstdint>

namespace coeus {

/// A label with this value does not count in the loss. Tokens have it that a loss mask excludes, and places
/// that have no token.
inline constexpr int32_t ignored_label = -100;

}  // namespace coeus
