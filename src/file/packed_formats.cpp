// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/packed_formats.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/small_floats.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/hub_json.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

namespace coeus {

namespace fs = std::filesystem;

std::string PackedFormat::text() const {
    switch (kind) {
        case Kind::none: return "none";
        case Kind::mxfp4: return "MXFP4";
        case Kind::fp8: return fmt::format("FP8 in blocks of {} x {}", block_rows, block_cols);
    }
    return "unknown";
}

PackedFormat read_packed_format(const std::string& folder) {
    const fs::path file = fs::path(folder) / "config.json";
    if (!is_file_patiently(file)) return {};
    const JsonDocument document = read_hub_config(folder);
    const std::optional<JsonView> config = document.root().find("quantization_config");
    if (!config) return {};
    const JsonView method = (*config)["quant_method"];
    if (method.string() == "mxfp4") return {.kind = PackedFormat::Kind::mxfp4};
    if (method.string() != "fp8") method.reject("must be mxfp4 or fp8 (others are not implemented)");
    if (const std::optional<JsonView> format = config->find("fmt"); format && format->string() != "e4m3")
        format->reject("must be e4m3 (others are not implemented)");
    const JsonView size = (*config)["weight_block_size"];
    const std::vector<int64_t> extents = size.is_null() ? std::vector<int64_t>() : size.integers();
    constexpr int64_t most = 1 << 24;
    const auto is_size = [](int64_t extent) { return extent >= 1 && extent <= most; };
    if (extents.size() != 2 || !std::ranges::all_of(extents, is_size))
        size.reject(
            fmt::format("must be the number of rows and of columns of a block, each from 1 to {}", most));
    return {.kind = PackedFormat::Kind::fp8, .block_rows = extents[0], .block_cols = extents[1]};
}

void decode_mxfp4(float* out, const std::byte* blocks, const std::byte* scales, int64_t first,
                  int64_t count) {
    static constexpr auto pairs = [] {  // the two elements of each byte
        std::array<std::array<float, 2>, 256> all = {};
        for (size_t byte = 0; byte < all.size(); ++byte)
            all[byte] = {e2m1_value(uint8_t(byte & 15)), e2m1_value(uint8_t(byte >> 4))};
        return all;
    }();
    const auto pair_of = [&](int64_t element) { return pairs[size_t(blocks[element / 2])]; };
    for (const int64_t end = first + count; first < end;) {
        const int64_t block = first / mxfp4_block, stop = std::min(end, (block + 1) * mxfp4_block);
        const float scale = e8m0_value(uint8_t(scales[block]));
        if (first % 2 == 1) *out++ = pair_of(first++)[1] * scale;
        for (; first + 1 < stop; first += 2) {
            *out++ = pair_of(first)[0] * scale;
            *out++ = pair_of(first)[1] * scale;
        }
        if (first < stop) *out++ = pair_of(first++)[0] * scale;
    }
}

void decode_fp8(float* out, const Fp8Blocks& from, int64_t first, int64_t count) {
    static constexpr auto values = [] {
        std::array<float, 256> all = {};
        for (size_t code = 0; code < all.size(); ++code) all[code] = e4m3_value(uint8_t(code));
        return all;
    }();
    const int64_t down = div_ceil(from.rows, from.block_rows), across = div_ceil(from.cols, from.block_cols);
    for (const int64_t end = first + count; first < end;) {
        const int64_t row = first / from.cols, col = first % from.cols;
        const int64_t matrix = row / from.rows, block_row = row % from.rows / from.block_rows;
        const int64_t block_col = col / from.block_cols;
        const int64_t block_end = std::min(from.cols, (block_col + 1) * from.block_cols);
        const int64_t stop = std::min(end, first + block_end - col);
        const int64_t block = (matrix * down + block_row) * across + block_col;
        float scale;
        convert_elements(&scale, Dtype::f32, from.scales + block * size_of(from.scale_type), from.scale_type,
                         1);
        for (; first < stop; ++first) *out++ = values[size_t(from.codes[first])] * scale;
    }
}

}  // namespace coeus
