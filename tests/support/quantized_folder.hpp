// SPDX-License-Identifier: Apache-2.0
// Quantized Hugging Face folders of small models, next to folders with the decoded weights.
#pragma once

#include "coeus/file/quantized.hpp"
#include "coeus/models/decoder_config.hpp"

#include <filesystem>

namespace coeus::test {

/// A gpt-oss of 2 layers whose experts are MXFP4, as published ones are. Blocks of 32 elements do not end
/// where tensor parallelism divides the experts' width of 96.
DecoderConfig mxfp4_model();
/// A Qwen 3 of 2 layers with experts. Its matrices have FP8 blocks of 128 x 128, and smaller ones at their
/// ends; tensor parallelism divides them in the middle of a block.
DecoderConfig fp8_model();

/// Writes the same random weights into two new folders. `quantized`: experts of gpt-oss as MXFP4, or matrices
/// of layers (`*_proj`) as FP8, other tensors in bfloat16. `decoded`: all in float32, computed by the
/// definitions of the formats.
void write_quantized_folder(const std::filesystem::path& quantized, const std::filesystem::path& decoded,
                            const DecoderConfig& model, const Quantization& quantization);

}  // namespace coeus::test
