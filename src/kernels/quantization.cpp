// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/quantization.hpp"

namespace coeus {

bool experts_multiply_8_bits(int architecture, std::optional<bool> asked) {
    constexpr int since = 89, hopper = 90;
    return architecture >= since && asked.value_or(architecture != hopper);
}

}  // namespace coeus
