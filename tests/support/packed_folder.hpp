// SPDX-License-Identifier: Apache-2.0
// Packed Hugging Face folders of small models, next to folders with the decoded weights.
#pragma once

#include "coeus/file/packed_formats.hpp"
#include "coeus/models/decoder_config.hpp"

#include <filesystem>
#include <vector>

namespace coeus::test {

struct PackedModel {
    DecoderConfig model;
    PackedFormat format;
};
/// Small models in the formats in which such models are published: a gpt-oss whose experts are MXFP4; a
/// Qwen 3 and a DeepSeek V3 with experts whose matrices are FP8 in blocks of 128 x 128. Tensor parallelism
/// divides them in the middle of blocks, and the blocks at the ends are smaller.
std::vector<PackedModel> packed_models();

/// Writes the same random weights into two new folders. `packed`: experts of gpt-oss as MXFP4, or matrices
/// of layers (`*_proj`) as FP8, other tensors in bfloat16. `decoded`: all in float32, computed by the
/// definitions of the formats.
void write_packed_folder(const std::filesystem::path& packed, const std::filesystem::path& decoded,
                         const PackedModel& of);

}  // namespace coeus::test
