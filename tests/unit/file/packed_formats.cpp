// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/packed_formats.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <cstring>
#include <vector>

using namespace coeus;
using Catch::Contains;

namespace {

const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

std::vector<std::byte> bytes_of(int64_t count, int factor, int step) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < count; ++i) bytes.push_back(std::byte(i * factor + step));
    return bytes;
}

// Equal, or both NaN.
bool same(float a, double b) {
    return std::isnan(b) ? std::isnan(a) : double(a) == b;
}

PackedFormat read(const std::string& config) {
    const test::TemporaryFolder folder;
    test::write_file(folder / "config.json", config);
    return read_packed_format(folder.path().string());
}

}  // namespace

TEST_CASE("quantized: MXFP4 has the first element of a byte in its low bits, and a scale for 32 elements") {
    // 6 blocks; all 256 bytes would need 16 of them, so the bytes of each block begin elsewhere
    const std::vector<std::byte> blocks = bytes_of(6 * 16, 83, 5);
    const int scales[] = {127, 130, 0, 255, 100, 254};
    std::vector<std::byte> codes;
    for (const int scale : scales) codes.push_back(std::byte(scale));
    std::vector<double> expected;
    for (int64_t i = 0; i < 6 * 32; ++i) {
        const int byte = int(blocks[size_t(i / 2)]), code = i % 2 == 0 ? byte % 16 : byte / 16;
        const int scale = scales[i / 32];
        const double value = (code < 8 ? 1 : -1) * e2m1[code % 8] * std::pow(2., scale - 127);
        expected.push_back(scale == 255 ? std::nan("") : double(float(value)));
    }
    std::vector<float> all(6 * 32);
    decode_mxfp4(all.data(), blocks.data(), codes.data(), 0, 6 * 32);
    for (size_t i = 0; i < all.size(); ++i) {
        CAPTURE(i);
        CHECK(same(all[i], expected[i]));
    }
    // parts, of even and odd elements, inside of blocks and beyond them
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{1, 1}, {31, 2}, {33, 62}, {5, 100}, {191, 1}, {64, 0}}) {
        CAPTURE(first, count);
        std::vector<float> part(size_t(count) + 1, -77.F);
        decode_mxfp4(part.data(), blocks.data(), codes.data(), first, count);
        for (int64_t i = 0; i < count; ++i) CHECK(same(part[size_t(i)], expected[size_t(first + i)]));
        CHECK(part.back() == -77.F);
    }
}

TEST_CASE("quantized: FP8 has a scale for each block of rows and columns, smaller at the edges") {
    // two matrices [5, 7] in blocks of 2 x 3: 3 x 3 blocks, the last ones smaller
    constexpr int64_t rows = 5, cols = 7, count = 2 * rows * cols;
    const std::vector<std::byte> codes = bytes_of(count, 37, 3);
    for (const bool halves : {false, true}) {
        std::vector<float> scales;
        std::vector<bf16> rounded;
        for (int i = 0; i < 2 * 3 * 3; ++i) {
            scales.push_back(halves ? 0.5F + 0.25F * float(i) : 0.1F + float(i));
            rounded.emplace_back(scales.back());
        }
        // one byte off, as files may have them
        std::vector<std::byte> stored(1 + scales.size() * 4);
        std::memcpy(stored.data() + 1, halves ? (void*)rounded.data() : (void*)scales.data(),
                    scales.size() * (halves ? 2 : 4));
        const Fp8Blocks from = {.codes = codes.data(),
                                .scales = stored.data() + 1,
                                .scale_type = halves ? Dtype::bf16 : Dtype::f32,
                                .rows = rows,
                                .cols = cols,
                                .block_rows = 2,
                                .block_cols = 3};
        std::vector<double> expected;
        for (int64_t i = 0; i < count; ++i) {
            const int code = int(codes[size_t(i)]), exponent = code / 8 % 16;
            double value = exponent == 0 ? std::ldexp(code % 8, -9) : std::ldexp(8 + code % 8, exponent - 10);
            if (code % 128 == 127) value = std::nan("");
            const int64_t matrix = i / (rows * cols), row = i / cols % rows, col = i % cols;
            const float scale = scales[size_t(matrix * 9 + row / 2 * 3 + col / 3)];
            expected.push_back(float((code < 128 ? value : -value) * double(scale)));
        }
        for (int64_t first = 0; first < count; ++first)
            for (const int64_t length : {int64_t(1), int64_t(4), count - first}) {
                if (first + length > count) continue;
                std::vector<float> part(size_t(length) + 1, -77.F);
                decode_fp8(part.data(), from, first, length);
                for (int64_t i = 0; i < length; ++i)
                    REQUIRE(same(part[size_t(i)], expected[size_t(first + i)]));
                REQUIRE(part.back() == -77.F);
            }
    }
}

TEST_CASE("quantized: config.json describes the quantization of a folder") {
    CHECK_FALSE(read("{}"));
    CHECK_FALSE(read(R"({"quantization_config": null})"));
    CHECK_FALSE(read_packed_format("no such folder"));
    const PackedFormat mxfp4 = read(R"({"quantization_config": {"quant_method": "mxfp4",
                                        "modules_to_not_convert": ["lm_head"]}})");
    CHECK(mxfp4.kind == PackedFormat::Kind::mxfp4);
    CHECK(mxfp4.text() == "MXFP4");
    const PackedFormat fp8 = read(R"({"quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3",
                                      "quant_method": "fp8", "weight_block_size": [128, 64]}})");
    CHECK(fp8 == PackedFormat{.kind = PackedFormat::Kind::fp8, .block_rows = 128, .block_cols = 64});
    CHECK(fp8.text() == "FP8 in blocks of 128 x 64");
    const auto refused = [](const std::string& content, const std::string& message) {
        CHECK_THROWS_WITH(read(R"({"quantization_config": )" + content + "}"),
                          Contains("config.json: quantization_config") && Contains(message));
    };
    refused(R"({"quant_method": "awq", "bits": 4})",
            "quant_method must be mxfp4 or fp8 (others are not implemented), is \"awq\"");
    refused(R"({"load_in_8bit": true})", "quant_method");
    refused(R"("mxfp4")", "must be");
    refused(R"({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]})",
            "fmt must be e4m3 (others are not implemented), is \"e5m2\"");
    refused(R"({"quant_method": "fp8", "weight_block_size": null})",
            "weight_block_size must be the number of rows and of columns of a block, each from 1 to "
            "16777216, is null");
    refused(R"({"quant_method": "fp8"})", "weight_block_size");
    refused(R"({"quant_method": "fp8", "weight_block_size": [128]})", "weight_block_size must be");
    refused(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", "weight_block_size must be");
}
