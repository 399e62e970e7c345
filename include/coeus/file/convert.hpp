// SPDX-License-Identifier: Apache-2.0
// Conversion of runs of elements between stored types, as files need it: neither side need be aligned.
#pragma once

#include "coeus/base/types.hpp"

#include <cstdint>

namespace coeus {

/// Whether convert_elements knows the pair: f64, f32, f16, bf16 among each other; i64, i32, u8 likewise.
bool can_convert(Dtype to, Dtype from);

/// Converts `count` elements. Equal types are copied bit by bit; 16-bit floats are rounded to nearest even
/// from float32. The ranges must not overlap.
void convert_elements(void* to, Dtype to_type, const void* from, Dtype from_type, int64_t count);

}  // namespace coeus
