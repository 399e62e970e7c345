// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/hub.hpp"

#include "coeus/device/memory.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/write_safetensors.hpp"

#include <filesystem>

using namespace coeus;
using Catch::Contains;

namespace {

const std::vector<std::string> built = {"LlamaForCausalLM"};

/// config.json from the text of a Python-like dict body.
std::string config_folder(const test::TemporaryFolder& folder, const std::string& body) {
    test::write_file(folder / "config.json", "{" + body + "}");
    return folder.path();
}

const std::string minimal =
    R"("architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
       "intermediate_size": 96, "vocab_size": 272)";

std::string message_of(const std::string& folder) {
    try {
        read_hub_config(folder, built);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "read without complaint";
}

}  // namespace

TEST_CASE("hub: both forms of config.json give the same model", "[hub]") {
    for (const char* name : {"llama2_mha", "llama31_rope_scaled", "llama3_tied", "llama3_gqa"}) {
        const auto golden = test::golden(std::string("models/") + name);
        if (golden.empty()) return;
        const test::TemporaryFolder folder;
        std::filesystem::copy(golden / "config_4x.json", folder / "config.json");
        const HubConfig now = read_hub_config(golden, built), before = read_hub_config(folder.path(), built);
        CHECK(now.architecture == "LlamaForCausalLM");
        CHECK(now.hidden_size == before.hidden_size);
        CHECK(now.head_dim == before.head_dim);
        CHECK(now.kv_heads == before.kv_heads);
        CHECK(now.tied == before.tied);
        CHECK(now.rope_theta == before.rope_theta);
        CHECK(now.rms_norm_eps == before.rms_norm_eps);
        CHECK(now.rope_scaling.has_value() == before.rope_scaling.has_value());
        CHECK(now.rope_scaling.has_value() == (std::string(name) == "llama31_rope_scaled"));
        CHECK(now.tied == (std::string(name) == "llama3_tied"));
        if (!now.rope_scaling) continue;
        for (const HubConfig& config : {now, before}) {
            CHECK(config.hidden_size == 48);
            CHECK(config.layers == 3);
            CHECK(config.heads == 2);
            CHECK(config.kv_heads == 1);
            CHECK(config.head_dim == 24);
            CHECK(config.intermediate_size == 96);
            CHECK(config.vocab_size == 256);
            CHECK(config.max_positions == 512);
            CHECK(config.rope_theta == 500000);
            CHECK(config.rms_norm_eps == 1e-5);
            CHECK(config.rope_scaling->factor == 8);
            CHECK(config.rope_scaling->low_freq_factor == 1);
            CHECK(config.rope_scaling->high_freq_factor == 4);
            CHECK(config.rope_scaling->original_positions == 64);
        }
    }
}

TEST_CASE("hub: what old files leave out has its default", "[hub]") {
    const test::TemporaryFolder folder;
    const HubConfig config = read_hub_config(config_folder(folder, minimal), built);
    CHECK(config.kv_heads == 4);
    CHECK(config.head_dim == 16);
    CHECK(config.rope_theta == 10000);
    CHECK(config.rms_norm_eps == 1e-6);
    CHECK(config.max_positions == 2048);
    CHECK_FALSE(config.tied);
    CHECK_FALSE(config.rope_scaling);
    const HubConfig odd = read_hub_config(config_folder(folder, minimal + R"(, "head_dim": 20)"), built);
    CHECK(odd.head_dim == 20);
}

TEST_CASE("hub: what is not built or wrong in config.json is said in words", "[hub]") {
    const test::TemporaryFolder folder;
    CHECK_THAT(message_of(folder.path()), Contains("config.json: there is no such file"));
    CHECK_FALSE(is_hub_folder(folder.path()));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": ["Qwen3ForCausalLM"])")),
               Contains("architecture Qwen3ForCausalLM is not built yet; built are LlamaForCausalLM"));
    CHECK(is_hub_folder(folder.path()));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": [])")),
               Contains("architectures must name one architecture"));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": ["LlamaForCausalLM"])")),
               Contains("hidden_size"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "num_key_value_heads": 0)")),
               Contains("num_key_value_heads must be at least 1"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "vocab_size": "many")")),
               Contains("vocab_size"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "attention_bias": true)")),
               Contains("attention_bias must be false (biases are not built yet)"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "hidden_act": "gelu")")),
               Contains("hidden_act must be \"silu\""));
    CHECK_THAT(
        message_of(config_folder(folder, minimal + R"(, "rope_scaling": {"type": "yarn", "factor": 4})")),
        Contains("rope_scaling of type \"yarn\" is not built yet"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "rope_parameters": {"rope_type": "llama3"})")),
               Contains("rope_parameters.factor"));
    const auto scaled = [&](const char* factor, const char* low, const char* high, const char* positions) {
        return message_of(config_folder(
            folder, minimal + fmt::format(R"(, "rope_scaling": {{"rope_type": "llama3", "factor": {},
                        "low_freq_factor": {}, "high_freq_factor": {},
                        "original_max_position_embeddings": {}}})",
                                          factor, low, high, positions)));
    };
    CHECK_THAT(scaled("8", "1", "4", "8192"), Contains("read without complaint"));
    CHECK_THAT(scaled("0", "1", "4", "8192"), Contains("rope_scaling.factor must be at least 1, is 0"));
    CHECK_THAT(scaled("8", "0", "4", "8192"), Contains("low_freq_factor must be greater than 0"));
    CHECK_THAT(scaled("8", "1", "1", "8192"),
               Contains("high_freq_factor must be greater than low_freq_factor, is 1"));
    CHECK_THAT(scaled("8", "1", "4", "0"), Contains("original_max_position_embeddings must be at least 1"));
    CHECK_THAT(message_of(config_folder(folder, "\"broken")), Contains("config.json"));
}

TEST_CASE("hub: rows of rotated heads", "[hub]") {
    // one head of 6: pairs (0,3) (1,4) (2,5) become (0,1) (2,3) (4,5)
    const int64_t theirs[] = {0, 3, 1, 4, 2, 5};
    for (int64_t head = 0; head < 3; ++head)
        for (int64_t r = 0; r < 6; ++r) CHECK(half_split_row(head * 6 + r, 6) == head * 6 + theirs[r]);
    CHECK(half_split_row(3, 2) == 3);
}

TEST_CASE("hub: weights come in our order and type, whole or in parts", "[hub]") {
    const auto folder = test::golden("models/llama3_gqa");
    if (folder.empty()) return;
    const Safetensors weights = Safetensors::open(folder);
    const std::string k_proj = "model.layers.1.self_attn.k_proj.weight";
    std::vector<HubTensor> all;
    for (const std::string& name : weights.names())
        all.push_back({.name = name, .shape = weights.entry(name).shape});
    // 2 key-value heads of 16, one as a whole, one from its sixth row, only some columns
    OwnedTensor whole(Dtype::f64, {32, 64}), part(Dtype::f32, {10, 20});
    const auto wanted = [&](Tensor local, int64_t row, int64_t col) {
        for (HubTensor& tensor : all)
            if (tensor.name == k_proj)
                tensor.local = local, tensor.first_row = row, tensor.first_col = col,
                tensor.rotated_heads = 2;
        load_hub_weights(folder, all);
    };
    wanted(whole, 0, 0);
    wanted(part, 21, 30);
    const auto stored = weights.read_all<double>(k_proj);
    for (int64_t r = 0; r < 32; ++r)
        for (int64_t c = 0; c < 64; ++c)
            REQUIRE(element(whole, r * 64 + c) == stored[size_t(half_split_row(r, 16) * 64 + c)]);
    for (int64_t r = 0; r < 10; ++r)
        for (int64_t c = 0; c < 20; ++c)
            REQUIRE(element(part, r * 20 + c) == element(whole, (21 + r) * 64 + 30 + c));
}

TEST_CASE("hub: weights of another model are refused in words", "[hub]") {
    const test::TemporaryFolder folder;
    std::vector<float> values = {1, 2, 3, 4, 5, 6};
    std::vector<int64_t> integers = {1, 2};
    const auto write = [&](const std::vector<test::NamedTensor>& more) {
        std::vector<test::NamedTensor> tensors = {
            {"a", Tensor(values.data(), Dtype::f32, {3, 2})},
            {"lm_head.weight", Tensor(values.data(), Dtype::f32, {1})},
            {"x.rotary_emb.inv_freq", Tensor(values.data(), Dtype::f32, {1})}};
        tensors.insert(tensors.end(), more.begin(), more.end());
        test::write_safetensors(folder / "model.safetensors", tensors);
    };
    OwnedTensor a(Dtype::f32, {3, 2}), b(Dtype::f32, {2});
    write({});
    load_hub_weights(folder.path(), {{.name = "a", .shape = {3, 2}, .local = a}});
    CHECK(element(a, 5) == 6);
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), {{.name = "a", .shape = {2, 3}, .local = a}}),
                      Contains("is of another model: a is [3, 2] in the file, [2, 3] in this model"));
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), {{.name = "b", .shape = {2}, .local = b}}),
                      Contains("has no tensor 'b'"));
    write({{"q_norm.weight", Tensor(values.data(), Dtype::f32, {1})}});
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), {{.name = "a", .shape = {3, 2}, .local = a}}),
                      Contains("it has 'q_norm.weight', which no parameter of this model takes"));
    write({{"b", Tensor(integers.data(), Dtype::i64, {2})}});
    CHECK_THROWS_WITH(load_hub_weights(folder.path(), {{.name = "b", .shape = {2}, .local = b}}),
                      Contains("tensor 'b' holds int64, where a floating type is expected"));
}
