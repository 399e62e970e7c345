// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/finite.hpp"

namespace coeus {

namespace {

// True if all exponent bits of an element are set: it is infinite or NaN.
template <class Bits>
bool any_not_finite(Tensor rows, Bits exponent) {
    Bits found = 0;
    for (int64_t r = 0; r < rows.rows() && !found; ++r) {
        const auto* row = static_cast<const Bits*>(rows.slice_rows(r, 1).data);
        for (int64_t c = 0; c < rows.cols(); ++c) found |= Bits((row[c] & exponent) == exponent);
    }
    return found != 0;
}

}  // namespace

bool any_not_finite(Tensor rows) {
    switch (rows.dtype) {
        case Dtype::f64: return any_not_finite<uint64_t>(rows, 0x7FF0000000000000u);
        case Dtype::f32: return any_not_finite<uint32_t>(rows, 0x7F800000u);
        case Dtype::bf16: return any_not_finite<uint16_t>(rows, 0x7F80u);
        case Dtype::f16: return any_not_finite<uint16_t>(rows, 0x7C00u);
        default: return false;
    }
}

}  // namespace coeus
