// SPDX-License-Identifier: Apache-2.0
// What a deck can name among the layers that are not computed in 8 bits.
#pragma once

namespace coeus {

/// Among the parts of names of layers that are not computed in 8 bits: leaves out small layers, which would
/// not be faster. It has sizes for the recipes tensorwise and rowwise only.
inline constexpr const char* auto_filter = "auto_filter_small_kn";

}  // namespace coeus
