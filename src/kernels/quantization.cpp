// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/quantization.hpp"

#include <cstdlib>
#include <string_view>

namespace coeus {

bool experts_multiply_8_bits(int architecture) {
    constexpr int since = 89;
    const char* const text = std::getenv("COEUS_EXPERTS_8_BITS");
    return architecture >= since && std::string_view(text ? text : "") != "0";
}

}  // namespace coeus
