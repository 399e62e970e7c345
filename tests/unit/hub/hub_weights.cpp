// SPDX-License-Identifier: Apache-2.0
// Quantized tensors of Hugging Face folders, whole and in parts, and what is refused.
#include "coeus/hub/hub_weights.hpp"

#include "coeus/device/memory.hpp"
#include "coeus/hub/hub.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/write_safetensors.hpp"

#include <algorithm>
#include <cmath>

using namespace coeus;
using Catch::Contains;

namespace {

const HubIgnores ignores_nothing = [](const std::string&) { return false; };
const std::string mxfp4_config = R"({"quantization_config": {"quant_method": "mxfp4"}})";
const std::string fp8_config =
    R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 8]}})";

std::vector<uint8_t> bytes_of(int64_t count, int factor, int step) {
    std::vector<uint8_t> bytes;
    for (int64_t i = 0; i < count; ++i) bytes.push_back(uint8_t(i * factor + step));
    return bytes;
}

// Equal, or both NaN.
bool same(double a, double b) {
    return std::isnan(b) ? std::isnan(a) : a == b;
}

// Two experts of a matrix "w" [64, 6], transposed in the folder, in MXFP4.
struct Mxfp4Folder {
    static constexpr int64_t experts = 2, rows = 64, cols = 6, groups = rows / 32;
    test::TemporaryFolder folder;
    std::vector<uint8_t> blocks = bytes_of(experts * rows * cols / 2, 83, 5);
    std::vector<uint8_t> scales = bytes_of(experts * cols * groups, 1, 118);
    Shape blocks_shape = {experts, cols, groups, 16}, scales_shape = {experts, cols, groups};

    Mxfp4Folder() { scales[7] = 255; }
    void write(Dtype blocks_type = Dtype::u8, bool with_scales = true,
               const std::string& config = mxfp4_config) {
        test::write_file(folder / "config.json", config);
        std::vector<test::NamedTensor> tensors = {
            {"w_blocks", Tensor(blocks.data(), blocks_type, blocks_shape)}};
        if (with_scales) tensors.push_back({"w_scales", Tensor(scales.data(), Dtype::u8, scales_shape)});
        test::write_safetensors(folder / "model.safetensors", tensors);
    }
    double value(int64_t expert, int64_t row, int64_t col) const {
        const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        const int64_t block = (expert * cols + col) * groups + row / 32;
        const int byte = blocks[size_t(block * 16 + row % 32 / 2)], scale = scales[size_t(block)];
        const int code = row % 2 == 0 ? byte & 15 : byte >> 4;
        if (scale == 255) return std::nan("");
        return (code < 8 ? 1 : -1) * magnitudes[code % 8] * std::pow(2., scale - 127);
    }
    // The parameter [experts, cols, rows] of which the folder has [experts, rows, cols].
    HubTensor parameter(const std::vector<HeldBlock>& held) const {
        HubTensor tensor{.shape = {experts, cols, rows}, .places = {}, .blocks = held};
        for (int64_t e = 0; e < experts; ++e)
            tensor.places.push_back({.name = "w",
                                     .shape = {experts, rows, cols},
                                     .first_row = e * cols,
                                     .rows = cols,
                                     .offset = e * rows * cols,
                                     .row_stride = 1,
                                     .col_stride = cols});
        return tensor;
    }
    // The parameter [experts * rows, cols], as the folder would have it.
    HubTensor as_stored(const std::vector<HeldBlock>& held) const {
        HubTensor tensor{.shape = {experts * rows, cols}, .places = {}, .blocks = held};
        for (int64_t e = 0; e < experts; ++e)
            tensor.places.push_back({.name = "w",
                                     .shape = {experts, rows, cols},
                                     .first_row = e * rows,
                                     .rows = rows,
                                     .offset = e * rows * cols,
                                     .row_stride = cols});
        return tensor;
    }
    void load(const std::vector<HubTensor>& tensors) const {
        load_hub_weights(folder.path(), tensors, ignores_nothing, NotFinite::keep);
    }
    std::string refusal() const {
        OwnedTensor all(Dtype::f32, {experts * cols, rows});
        try {
            load({parameter({{all}})});
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "none";
    }
};

// A matrix "w" [10, 19] in FP8 blocks of 4 x 8, with smaller ones at the ends, and a vector "b".
struct Fp8Folder {
    static constexpr int64_t rows = 10, cols = 19;
    test::TemporaryFolder folder;
    std::vector<uint8_t> codes = bytes_of(rows * cols, 37, 3);
    std::vector<float> scales = {0.1F, 0.2F, 0.3F, 1, 2, 3, 1e-3F, NAN, 0.7F}, bias = {1, 2, 3};
    Shape scales_shape = {3, 3};
    void write(Dtype codes_type = Dtype::fp8_e4m3, bool with_scales = true,
               const std::string& config = fp8_config) {
        test::write_file(folder / "config.json", config);
        std::vector<test::NamedTensor> tensors = {{"w", Tensor(codes.data(), codes_type, {rows, cols})},
                                                  {"b", Tensor(bias.data(), Dtype::f32, {3})}};
        if (with_scales) tensors.push_back({"w_scale_inv", Tensor(scales.data(), Dtype::f32, scales_shape)});
        test::write_safetensors(folder / "model.safetensors", tensors);
    }
    double value(int64_t row, int64_t col) const {
        const int code = codes[size_t(row * cols + col)], exponent = code / 8 % 16;
        if (code % 128 == 127) return std::nan("");
        const double magnitude =
            exponent == 0 ? std::ldexp(code % 8, -9) : std::ldexp(8 + code % 8, exponent - 10);
        return float((code < 128 ? magnitude : -magnitude) * double(scales[size_t(row / 4 * 3 + col / 8)]));
    }
    void load(const std::vector<HeldBlock>& held) const {
        OwnedTensor b(Dtype::f32, {3});
        load_hub_weights(
            folder.path(),
            {{.shape = {rows, cols}, .places = {HubPlace::whole("w", {rows, cols})}, .blocks = held},
             {.shape = {3}, .places = {HubPlace::whole("b", {3})}, .blocks = {{b}}}},
            ignores_nothing, NotFinite::keep);
        CHECK(element(b, 2) == 3);
    }
    std::string refusal() const {
        OwnedTensor all(Dtype::f32, {rows, cols});
        try {
            load({{all}});
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "none";
    }
};

// A value after it was rounded to the type of a parameter.
double rounded(double value, Dtype type) {
    return type == Dtype::bf16 ? double(float(bf16(float(value)))) : value;
}

}  // namespace

TEST_CASE("hub weights: MXFP4 is read in parts that begin in the middle of blocks", "[hub]") {
    Mxfp4Folder f;
    f.write();
    for (const Dtype type : {Dtype::bf16, Dtype::f32, Dtype::f64}) {
        constexpr int64_t all_rows = Mxfp4Folder::experts * Mxfp4Folder::cols;
        // all; rows of both experts; columns from the middle of a block on
        OwnedTensor all(type, {all_rows, 64}), some(type, {5, 64}), right(type, {all_rows, 33});
        f.load({f.parameter({{all}, {some, 3, 0}, {right, 0, 29}})});
        for (int64_t row = 0; row < all_rows; ++row)
            for (int64_t col = 0; col < 64; ++col)
                REQUIRE(same(element(all, row * 64 + col), f.value(row / 6, col, row % 6)));
        for (int64_t i = 0; i < some.view.count(); ++i)
            REQUIRE(same(element(some, i), element(all, 3 * 64 + i)));
        for (int64_t row = 0; row < all_rows; ++row)
            for (int64_t col = 0; col < 33; ++col)
                REQUIRE(same(element(right, row * 33 + col), element(all, row * 64 + 29 + col)));
        OwnedTensor turned(type, {37, 3});  // across the experts, and not transposed
        f.load({f.as_stored({{turned, 50, 2}})});
        for (int64_t row = 0; row < 37; ++row)
            for (int64_t col = 0; col < 3; ++col)
                REQUIRE(
                    same(element(turned, row * 3 + col), f.value((50 + row) / 64, (50 + row) % 64, 2 + col)));
    }
    const HubWeights weights = HubWeights::open(f.folder.path());
    CHECK(weights.has("w"));
    CHECK_FALSE(weights.has("v"));
    CHECK(weights.elements(f.parameter({}).places[0]).dtype() == Dtype::bf16);
    CHECK(weights.stored_as("w") == std::vector<std::string>{"w_blocks", "w_scales"});
}

TEST_CASE("hub weights: FP8 is read in parts that begin in the middle of blocks", "[hub]") {
    Fp8Folder f;
    f.write();
    for (const Dtype type : {Dtype::bf16, Dtype::f32, Dtype::f64}) {
        OwnedTensor all(type, {10, 19}), part(type, {5, 9});
        f.load({{all}, {part, 3, 6}});
        for (int64_t row = 0; row < 10; ++row)
            for (int64_t col = 0; col < 19; ++col)
                REQUIRE(same(element(all, row * 19 + col), rounded(f.value(row, col), type)));
        for (int64_t row = 0; row < 5; ++row)
            for (int64_t col = 0; col < 9; ++col)
                REQUIRE(same(element(part, row * 9 + col), rounded(f.value(3 + row, 6 + col), type)));
    }
    const HubWeights weights = HubWeights::open(f.folder.path());
    CHECK(weights.elements(HubPlace::whole("w", {10, 19})).dtype() == Dtype::f32);
    CHECK(weights.stored_as("w") == std::vector<std::string>{"w", "w_scale_inv"});
    CHECK(weights.stored_as("b") == std::vector<std::string>{"b"});
}

TEST_CASE("hub weights: MXFP4 tensors that do not fit the model or lack scales are refused by name",
          "[hub]") {
    Mxfp4Folder f;
    f.write();
    CHECK(f.refusal() == "none");
    f.write(Dtype::u8, false);
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w_blocks' is quantized (MXFP4), but there is no tensor 'w_scales' "
                        "with its scales"));
    f.write(Dtype::fp8_e4m3);
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w_blocks' has elements of type float8_e4m3, but MXFP4 has uint8"));
    f.write(Dtype::u8, true, "{}");
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w_blocks' is quantized, but config.json has no quantization_config "
                        "with quant_method \"mxfp4\""));
    f.write(Dtype::u8, true, fp8_config);
    CHECK_THAT(f.refusal(), Contains("'w_blocks' is quantized, but config.json has no quantization_config"));
    f.scales_shape = {2, 2, 6};
    f.write();
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w_scales' is [2, 2, 6], but the scales of 'w_blocks' (MXFP4) must be "
                        "[2, 6, 2]"));
    f.blocks_shape = {2, 2, 6, 16};
    f.write();
    CHECK_THAT(
        f.refusal(),
        Contains("is of another model: w_blocks is [2, 2, 6, 16] in the file, [2, 6, 2, 16] in this model"));
    OwnedTensor matrix(Dtype::f32, {6, 64}), odd(Dtype::f32, {2, 33, 4});
    CHECK_THROWS_WITH(
        f.load({{.shape = {6, 64}, .places = {HubPlace::whole("w", {6, 64})}, .blocks = {{matrix}}}}),
        Contains("tensor 'w_blocks' cannot be MXFP4: w is [6, 64], not [experts, rows, columns]"));
    CHECK_THROWS_WITH(
        f.load({{.shape = {2, 33, 4}, .places = {HubPlace::whole("w", {2, 33, 4})}, .blocks = {{odd}}}}),
        Contains("tensor 'w_blocks' cannot be MXFP4: [2, 33, 4] has 33 rows, not a multiple of 32"));
}

TEST_CASE("hub weights: FP8 tensors that do not fit the model or lack scales are refused by name", "[hub]") {
    Fp8Folder f;
    f.write();
    CHECK(f.refusal() == "none");
    f.write(Dtype::fp8_e4m3, false);
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w' is quantized (FP8 in blocks of 4 x 8), but there is no tensor "
                        "'w_scale_inv' with its scales"));
    f.write(Dtype::u8);
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w' has elements of type uint8, but a floating-point type is expected"));
    f.write(Dtype::fp8_e4m3, true, "{}");
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w' is quantized, but config.json has no quantization_config with "
                        "quant_method \"fp8\""));
    f.scales_shape = {9, 1};
    f.write();
    CHECK_THAT(f.refusal(),
               Contains("tensor 'w_scale_inv' is [9, 1], but the scales of 'w' (FP8 in blocks of 4 x 8) "
                        "must be [3, 3]"));
    test::write_safetensors(f.folder / "model.safetensors",
                            {{"w", Tensor(f.codes.data(), Dtype::fp8_e4m3, {10, 19})},
                             {"w_scale_inv", Tensor(f.codes.data(), Dtype::u8, {3, 3})}});
    CHECK_THAT(f.refusal(), Contains("tensor 'w_scale_inv' has elements of type uint8, but scales have a "
                                     "floating-point type"));
    test::write_safetensors(f.folder / "model.safetensors",
                            {{"b", Tensor(f.codes.data(), Dtype::fp8_e4m3, {3})}});
    OwnedTensor b(Dtype::f32, {3});
    CHECK_THROWS_WITH(
        load_hub_weights(f.folder.path(),
                         {{.shape = {3}, .places = {HubPlace::whole("b", {3})}, .blocks = {{b}}}},
                         ignores_nothing),
        Contains("tensor 'b' is [3], but only matrices can be FP8"));
}

TEST_CASE("hub weights: an unquantized tensor takes precedence, and its blocks belong to no parameter",
          "[hub]") {
    Mxfp4Folder f;
    f.write();
    std::vector<float> values(2 * 64 * 6, 1.5F);
    test::write_safetensors(f.folder / "model.safetensors",
                            {{"w", Tensor(values.data(), Dtype::f32, {2, 64, 6})},
                             {"w_blocks", Tensor(f.blocks.data(), Dtype::u8, f.blocks_shape)}});
    CHECK_THAT(f.refusal(), Contains("it has 'w_blocks', which no parameter of this model uses"));
}

TEST_CASE("hub weights: one wrong tensor among 45,000 is named", "[hub]") {
    const test::TemporaryFolder folder;
    constexpr int experts = 15'000;
    std::vector<float> values = {1, 2, 3, 4};
    std::vector<test::NamedTensor> tensors;
    std::vector<HubTensor> parameters;
    for (int e = 0; e < experts; ++e)
        for (const char* matrix : {"gate", "up", "down"}) {
            const std::string name =
                fmt::format("model.layers.{}.mlp.experts.{}.{}_proj.weight", e / 256, e % 256, matrix);
            tensors.push_back({name, Tensor(values.data(), Dtype::f32, {2, 2})});
            parameters.push_back({.shape = {2, 2}, .places = {HubPlace::whole(name, {2, 2})}});
        }
    const std::string file = folder / "model.safetensors", named = tensors[30'000].name;
    const auto refusal = [&](const std::vector<test::NamedTensor>& written) {
        test::write_safetensors(file, written);
        try {
            load_hub_weights(folder.path(), parameters, ignores_nothing);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string("none");
    };
    CHECK(refusal(tensors) == "none");
    auto wrong = tensors;
    wrong.erase(wrong.begin() + 30'000);
    CHECK_THAT(refusal(wrong), Contains("has no tensor '" + named + "'"));
    wrong = tensors;
    wrong[30'000].tensor = Tensor(values.data(), Dtype::f32, {4});
    CHECK_THAT(refusal(wrong), Contains(named + " is [4] in the file, [2, 2] in this model"));
    wrong = tensors;
    wrong.push_back({named + "s", tensors[0].tensor});
    CHECK_THAT(refusal(wrong), Contains("it has '" + named + "s', which no parameter of this model uses"));
    // the same tensor in two files
    test::write_safetensors(file, tensors);
    test::write_safetensors(folder / "more.safetensors", {tensors[30'000]});
    std::filesystem::rename(file, folder / "first.safetensors");
    test::write_file(folder / "model.safetensors.index.json", "{\"weight_map\": {\"" + tensors[0].name +
                                                                  "\": \"first.safetensors\", \"" + named +
                                                                  "\": \"more.safetensors\"}}");
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), parameters, ignores_nothing),
                      Contains("tensor '" + named + "' appears twice"));
}

TEST_CASE("hub weights: a quantized element that is not finite is refused with tensor and block", "[hub]") {
    const auto refusal = [](const test::TemporaryFolder& folder, const HubTensor& parameter) {
        try {
            load_hub_weights(folder.path(), {parameter}, ignores_nothing);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string("none");
    };
    Mxfp4Folder four;
    std::ranges::fill(four.scales, uint8_t(127));
    four.write();
    OwnedTensor values(Dtype::f32, {Mxfp4Folder::experts * Mxfp4Folder::cols, Mxfp4Folder::rows});
    CHECK(refusal(four.folder, four.parameter({{values}})) == "none");
    for (const int scale : {255, 254}) {  // NaN; 2^127, by which an element leaves float32
        four.scales[3] = uint8_t(scale);
        std::fill_n(four.blocks.begin() + 3 * mxfp4_block_bytes, mxfp4_block_bytes, uint8_t(0x77));
        four.write();
        CHECK_THAT(refusal(four.folder, four.parameter({{values}})),
                   Contains("tensor 'w_blocks' has an element that is not finite, in block 3 (scale " +
                            std::to_string(scale) + " of E8M0)"));
    }
    Fp8Folder eight;
    const HubTensor matrix = {.shape = {Fp8Folder::rows, Fp8Folder::cols},
                              .places = {HubPlace::whole("w", {Fp8Folder::rows, Fp8Folder::cols})}};
    const auto refused = [&] {
        eight.write();
        test::write_safetensors(
            eight.folder / "model.safetensors",
            {{"w", Tensor(eight.codes.data(), Dtype::fp8_e4m3, {Fp8Folder::rows, Fp8Folder::cols})},
             {"w_scale_inv", Tensor(eight.scales.data(), Dtype::f32, {3, 3})}});
        OwnedTensor all(Dtype::f32, {Fp8Folder::rows, Fp8Folder::cols});
        HubTensor parameter = matrix;
        parameter.blocks = {{all}};
        return refusal(eight.folder, parameter);
    };
    std::ranges::fill(eight.codes, uint8_t(0x38));  // 1
    std::ranges::fill(eight.scales, 1.F);
    CHECK(refused() == "none");
    eight.codes[5 * 19 + 17] = 0x7f;
    CHECK_THAT(refused(),
               Contains("tensor 'w' has an element that is not finite, in element 112, of the block "
                        "of row 1 and column 2 of scales (code 0x7f)"));
    eight.codes[5 * 19 + 17] = 0x38;
    for (const float bad : {NAN, HUGE_VALF}) {
        eight.scales[3] = bad;
        CHECK_THAT(refused(), Contains("in element 76, of the block of row 1 and column 0 of scales"));
    }
}

TEST_CASE("hub weights: the size of FP8 blocks has bounds", "[hub]") {
    const test::TemporaryFolder folder;
    const auto read = [&](const std::string& size) {
        test::write_file(
            folder / "config.json",
            R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": )" + size + "}}");
        try {
            return read_packed_format(folder.path()).text();
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
    };
    CHECK(read("[128, 16777216]") == "FP8 in blocks of 128 x 16777216");
    for (const char* wrong :
         {"[0, 128]", "[128, -1]", "[4611686018427387904, 128]", "[128, 16777217]", "[128]"})
        CHECK_THAT(read(wrong),
                   Contains("weight_block_size must be the number of rows and of columns of a block, "
                            "each from 1 to 16777216"));
}
