// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/quantization.hpp"

#include <cstdlib>
#include <string_view>

namespace coeus {

bool experts_multiply_8_bits(int architecture) {
    constexpr int since = 89, hopper = 90;
    const char* const text = std::getenv("COEUS_EXPERTS_8_BITS");
    const std::string_view asked = text ? text : "";
    return architecture >= since && (asked == "1" || (asked != "0" && architecture != hopper));
}

}  // namespace coeus
