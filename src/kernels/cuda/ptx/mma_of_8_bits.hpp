// SPDX-License-Identifier: Apache-2.0
// Which code for GPUs has products of 8-bit floats by mma.
#pragma once

namespace coeus::cuda {

/// True for code of an architecture (89: sm_89) whose mma multiplies 8-bit floats, at twice the rate of
/// bfloat16. For the others from sm_89 on, mma of 8 bits is converted to half precision. GPUs without code of
/// their own run the PTX of an older architecture: cmake/libraries.cmake builds code for sm_89 if the program
/// has any for such a GPU, and for sm_120 with CUDA 12.8 or newer.
constexpr bool has_fast_mma_of_8_bits(int architecture) {
    return architecture == 89 || architecture >= 120;
}

}  // namespace coeus::cuda
