// SPDX-License-Identifier: Apache-2.0
// Packed formats of weights in Hugging Face folders, which call them quantized: how config.json describes
// them, and the decoders of their blocks. Sources: OCP Microscaling Formats (MX) Specification 1.0,
// section 6.3 (MXFP4); DeepSeek-V3 Technical Report, section 3.3 (FP8 with a scale for each block of 128 x
// 128).
#pragma once

#include "coeus/base/types.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace coeus {

/// How a folder stores its weights: "quantization_config" in its config.json.
struct PackedFormat {
    enum class Kind : uint8_t {
        none,
        mxfp4,  ///< "mxfp4" (gpt-oss): 32 adjacent elements of a row have one scale
        fp8     ///< "fp8" (DeepSeek-V3): block_rows x block_cols elements of a matrix have one scale
    };
    Kind kind = Kind::none;
    int64_t block_rows = 0, block_cols = 0;  ///< only fp8

    explicit operator bool() const { return kind != Kind::none; }
    bool operator==(const PackedFormat&) const = default;
    /// "MXFP4", "FP8 in blocks of 128 x 128"; "none".
    std::string text() const;
};

/// Reads config.json in a folder; Kind::none if the file is absent. ConfigError, with file, key and
/// value: a method other than mxfp4 and fp8, a format other than e4m3, blocks without a size.
PackedFormat read_packed_format(const std::string& folder);

/// Elements of an MXFP4 block, and bytes that hold them: two elements each, the first in the low four bits.
inline constexpr int64_t mxfp4_block = 32, mxfp4_block_bytes = 16;

/// Decodes elements [first, first + count) of a flattened MXFP4 tensor. `blocks`: [blocks, 16] bytes.
/// `scales`: [blocks] E8M0 codes. An element is its E2M1 value times the scale of its block, which is exact
/// unless it exceeds the range of float32. Neither pointer needs an alignment.
void decode_mxfp4(float* out, const std::byte* blocks, const std::byte* scales, int64_t first, int64_t count);

/// A matrix of E4M3 codes, or several of them, with one scale for each block. Blocks at the last rows and
/// columns of a matrix may be smaller.
struct Fp8Blocks {
    const std::byte* codes;   ///< [matrices, rows, cols]
    const std::byte* scales;  ///< [matrices, ceil(rows / block_rows), ceil(cols / block_cols)]; unaligned
    Dtype scale_type;         ///< a floating-point type
    int64_t rows, cols;       ///< of one matrix
    int64_t block_rows, block_cols;
};
/// Decodes elements [first, first + count) of the flattened matrices: the E4M3 value times the scale, in
/// float32.
void decode_fp8(float* out, const Fp8Blocks& from, int64_t first, int64_t count);

}  // namespace coeus
