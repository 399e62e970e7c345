// SPDX-License-Identifier: Apache-2.0
#include "support/packed_folder.hpp"

#include "coeus/models/hub_model.hpp"
#include "support/hub_folder.hpp"

#include <cmath>

namespace coeus::test {

namespace {

namespace fs = std::filesystem;

uint8_t* bytes(const Tensor& tensor) {
    return static_cast<uint8_t*>(tensor.data);
}

void add_plain(FolderTensors& stored, FolderTensors& decoded, const std::string& name, const Shape& shape,
               Numbers& random) {
    const Tensor brief = stored.add(name, Dtype::bf16, shape), exact = decoded.add(name, Dtype::f32, shape);
    for (int64_t i = 0; i < shape.count(); ++i) {
        const double value = small_number(random);
        set_element(brief, i, value);
        set_element(exact, i, value);
    }
}

// [experts, rows, cols]; a block is 32 adjacent rows of one column, and a byte has two of them.
void add_mxfp4(FolderTensors& stored, FolderTensors& decoded, const std::string& name, const Shape& shape,
               Numbers& random) {
    const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int64_t rows = shape[1], cols = shape[2], groups = rows / 32;
    const Tensor blocks = stored.add(name + "_blocks", Dtype::u8, {shape[0], cols, groups, 16});
    const Tensor scales = stored.add(name + "_scales", Dtype::u8, {shape[0], cols, groups});
    const Tensor values = decoded.add(name, Dtype::f32, shape);
    for (int64_t block = 0; block < scales.count(); ++block) {
        const int64_t expert = block / (cols * groups), col = block / groups % cols, group = block % groups;
        const int exponent = -8 + below(5, random);
        bytes(scales)[block] = uint8_t(127 + exponent);
        for (int64_t i = 0; i < 32; ++i) {
            const int code = below(16, random);
            uint8_t& pair = bytes(blocks)[block * 16 + i / 2];
            pair = uint8_t(i % 2 == 0 ? code : pair + 16 * code);
            const double value = (code < 8 ? 1 : -1) * magnitudes[code % 8] * std::pow(2., exponent);
            set_element(values, (expert * rows + group * 32 + i) * cols + col, value);
        }
    }
}

void add_fp8(FolderTensors& stored, FolderTensors& decoded, const std::string& name, const Shape& shape,
             const PackedFormat& format, Numbers& random) {
    const int64_t across = (shape[1] + format.block_cols - 1) / format.block_cols;
    const int64_t down = (shape[0] + format.block_rows - 1) / format.block_rows;
    const Tensor codes = stored.add(name, Dtype::fp8_e4m3, shape);
    const Tensor scales = stored.add(name + "_scale_inv", Dtype::f32, {down, across});
    const Tensor values = decoded.add(name, Dtype::f32, shape);
    for (int64_t i = 0; i < scales.count(); ++i) set_element(scales, i, (100 + below(900, random)) * 1e-6);
    for (int64_t i = 0; i < shape.count(); ++i) {
        const int code = below(127, random), sign = below(2, random);  // 127 is NaN
        bytes(codes)[i] = uint8_t(code + 128 * sign);
        const double magnitude = code < 8 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, code / 8 - 10);
        const int64_t row = i / shape[1], col = i % shape[1];
        const double scale = element(scales, row / format.block_rows * across + col / format.block_cols);
        set_element(values, i, (sign ? -magnitude : magnitude) * scale);
    }
}

Json described(const PackedFormat& format) {
    Json json = Json::object();
    if (format.kind == PackedFormat::Kind::mxfp4) {
        json.set("quant_method", "mxfp4");
        json.set("modules_to_not_convert", std::vector<std::string>{"lm_head", "model.embed_tokens"});
        return json;
    }
    json.set("activation_scheme", "dynamic").set("fmt", "e4m3").set("quant_method", "fp8");
    json.set("weight_block_size", std::vector<int64_t>{format.block_rows, format.block_cols});
    return json;
}

DecoderConfig gpt_oss() {
    DecoderConfig model = small_model("gpt_oss", "debugmodel", 64, 2, 16);
    model.grouped().window = 8;
    model.moe.experts = 4;
    model.moe.top_k = 2;
    model.moe.hidden = 96;
    return model;
}

DecoderConfig qwen3() {
    DecoderConfig model = small_model("qwen3", "debugmodel_moe", 144, 4, 36);
    model.moe.experts = 3;
    model.moe.top_k = 2;
    model.moe.hidden = 200;
    return model;
}

DecoderConfig deepseek_v3() {
    DecoderConfig model = small_model("deepseek_v3", "671B", 144, 4, 24);
    LatentAttentionConfig& a = model.latent();
    a.kv_rank = 136;
    a.q_rank = 40;
    a.rope_dim = 8;
    a.value_dim = 20;
    a.latent_norm_eps = 1e-6;
    model.feed_forward.hidden = 200;
    model.moe_layers.first = 1;
    model.moe.experts = 4;
    model.moe.top_k = 2;
    model.moe.hidden = model.moe.shared_hidden = 136;
    model.moe.groups = 2;
    model.moe.kept_groups = 1;
    return model;
}

}  // namespace

std::vector<PackedModel> packed_models() {
    const PackedFormat fp8 = {.kind = PackedFormat::Kind::fp8, .block_rows = 128, .block_cols = 128};
    return {{gpt_oss(), {.kind = PackedFormat::Kind::mxfp4}}, {qwen3(), fp8}, {deepseek_v3(), fp8}};
}

void write_packed_folder(const fs::path& packed, const fs::path& decoded, const PackedModel& of) {
    const auto& [model, format] = of;
    FolderTensors stored, exact;
    Numbers random;
    for (const auto& [name, shape] : folder_shapes(model)) {
        if (format.kind == PackedFormat::Kind::mxfp4 && shape.rank == 3)
            add_mxfp4(stored, exact, name, shape, random);
        else if (format.kind == PackedFormat::Kind::fp8 && name.ends_with("_proj.weight"))
            add_fp8(stored, exact, name, shape, format, random);
        else
            add_plain(stored, exact, name, shape, random);
    }
    exact.write(decoded, hub_config_of(model));
    stored.write(packed, hub_config_of(model).set("quantization_config", described(format)));
}

}  // namespace coeus::test
