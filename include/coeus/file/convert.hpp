// SPDX-License-Identifier: Apache-2.0
// Conversion of adjacent elements between stored types, for files: source and target may be unaligned.
#pragma once

#include "coeus/base/types.hpp"

#include <cstdint>

namespace coeus {

/// True if convert_elements() can convert this pair of types: f64, f32, f16, bf16 among each other; i64, i32,
/// u8 among each other.
bool can_convert(Dtype to, Dtype from);

/// Converts `count` elements. Equal types are copied bit by bit. Values become 16-bit floats by rounding from
/// float32 to nearest even. The ranges must not overlap. LogicError unless can_convert().
void convert_elements(void* to, Dtype to_type, const void* from, Dtype from_type, int64_t count);

}  // namespace coeus
