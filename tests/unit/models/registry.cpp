// SPDX-License-Identifier: Apache-2.0
// Flavours against the counts of torchtitan's tables, and messages about wrong or unsupported names.
#include "coeus/models/registry.hpp"

#include "coeus/models/decoder.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <set>
#include <string_view>

using namespace coeus;
using namespace coeus::test;

namespace {

const DecoderConfig& flavor(std::string_view family, std::string_view name) {
    return find_flavor(find_family(family), name);
}

}  // namespace

TEST_CASE("Llama 3: shapes, parameters and FLOPs per token of every flavour") {
    struct Expected {
        const char* flavor;
        int64_t head_dim, ffn_hidden, parameters;
        int64_t seq_len;
        double flops;
    };
    const Expected table[] = {
        {"debugmodel", 16, 768, 6163712, 2048, 71585280},
        {"1B", 64, 8192, 1235814400, 8192, 10636111872},
        {"3B", 128, 8192, 3212749824, 8192, 27732215808},
        {"8B", 128, 14336, 8030261248, 8192, 57914449920},
        {"70B", 128, 28672, 70553706496, 8192, 481442709504},
        {"405B", 128, 53248, 405853388800, 8192, 2625449459712},
    };
    CHECK(find_family("llama3").flavors.size() == std::size(table));
    for (const Expected& e : table) {
        CAPTURE(e.flavor);
        const DecoderConfig& m = flavor("llama3", e.flavor);
        m.validate();
        CHECK(m.family == "llama3");
        CHECK(m.attention.head_dim == e.head_dim);
        CHECK(m.feed_forward.hidden == e.ffn_hidden);
        CHECK(m.parameters() == e.parameters);
        CHECK(m.flops_per_token(e.seq_len) == e.flops);
        CHECK(m.rope.theta == 500000);
        CHECK(m.rope.scaling ==
              RopeScaling{.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_positions = 8192});
        CHECK(m.norm_eps == 1e-5);
        CHECK(m.norm_type == NormType::rms_norm);
        CHECK(m.vocab == (m.flavor == "debugmodel" ? 2048 : 128256));
        CHECK(m.tied == (m.flavor == "1B" || m.flavor == "3B"));
        CHECK(m.max_seq_len == 131072);
    }
}

TEST_CASE("Llama 2: shapes and parameters of every flavour") {
    // counted from the shapes: 2 V D + L (4 D D + 3 D F + 2 D) + D with F = round_up(8 D / 3, 256)
    struct Expected {
        const char* flavor;
        int64_t dim, layers, heads, kv_heads, ffn_hidden, parameters;
    };
    const Expected table[] = {
        {"debugmodel", 256, 8, 16, 16, 768, 7868672},  {"271M", 1024, 16, 8, 8, 2816, 271090688},
        {"1B", 2048, 18, 16, 16, 5632, 1055991808},    {"7B", 4096, 32, 32, 32, 11008, 6738415616},
        {"13B", 5120, 40, 40, 40, 13824, 13015864320}, {"26B", 5120, 80, 40, 40, 13824, 25704043520},
        {"70B", 8192, 80, 64, 8, 28672, 68976648192},
    };
    CHECK(find_family("llama2").flavors.size() == std::size(table));
    for (const Expected& e : table) {
        CAPTURE(e.flavor);
        const DecoderConfig& m = flavor("llama2", e.flavor);
        m.validate();
        CHECK(m.dim == e.dim);
        CHECK(m.layers == e.layers);
        CHECK(m.attention.heads == e.heads);
        CHECK(m.attention.kv_heads == e.kv_heads);
        CHECK(m.attention.head_dim == e.dim / e.heads);
        CHECK(m.feed_forward.hidden == e.ffn_hidden);
        CHECK(m.parameters() == e.parameters);
        CHECK(m.rope.theta == 10000);
        CHECK_FALSE(m.rope.scaling.has_value());
        CHECK_FALSE(m.tied);
        CHECK(m.vocab == (m.flavor == "debugmodel" ? 2048 : 32000));
    }
}

TEST_CASE("FLOPs per token: 6 N without the input embedding, plus attention") {
    DecoderConfig m = flavor("llama3", "debugmodel");
    const double attention = 6.0 * 6 * 16 * 32 * 100;
    CHECK(m.flops_per_token(100) == 6.0 * (6163712 - 2048 * 256) + attention);
    m.tied = true;  // the table is counted once, as the output
    CHECK(m.flops_per_token(100) == 6.0 * (6163712 - 2048 * 256) + attention);
}

TEST_CASE("a model has as many parameters as its configuration computes") {
    for (const NormType norm : {NormType::rms_norm, NormType::layer_norm, NormType::np_layer_norm})
        for (const bool tied : {false, true}) {
            CAPTURE(int(norm), tied);
            DecoderConfig m = flavor("llama3", "debugmodel");
            m.norm_type = norm;
            m.tied = tied;
            m.attention.kv_heads = 4;
            m.attention.head_dim = 24;
            const Decoder decoder(m, {}, 8);
            CHECK(decoder.parameters().count() == m.parameters());
            std::set<std::string> names;
            for (const Storage& storage : decoder.parameters().storages())
                for (const Param& param : storage.params()) {
                    CHECK(names.insert(param.name).second);
                    int64_t rows = 0;
                    for (const HubPlace& place : find_family("llama3").hub_places(param.name, param.shape, m))
                        rows += place.rows;
                    CHECK(rows == param.shape.rows());
                }
            CHECK(names.contains("output.weight") == !tied);
            CHECK(names.contains("layers.5.ffn_norm.weight") == (norm != NormType::np_layer_norm));
            CHECK(names.contains("norm.weight") == (norm != NormType::np_layer_norm));
        }
}

TEST_CASE("places in a Hugging Face folder, and the parameters whose rows are in another order there") {
    const DecoderConfig& m = flavor("llama3", "8B");
    const auto place = [&](const std::string& ours, const Shape& shape = {64, 5}) {
        const std::vector<HubPlace> places = find_family("llama3").hub_places(ours, shape, m);
        CHECK(places.size() == 1);
        CHECK(places.front().shape == shape);
        return places.front();
    };
    const auto name = [&](const std::string& ours) { return place(ours).name; };
    CHECK(name("tok_embeddings.weight") == "model.embed_tokens.weight");
    CHECK(name("output.weight") == "lm_head.weight");
    CHECK(place("norm.weight", {4096}).name == "model.norm.weight");
    CHECK(name("layers.31.attention_norm.weight") == "model.layers.31.input_layernorm.weight");
    CHECK(name("layers.0.ffn_norm.weight") == "model.layers.0.post_attention_layernorm.weight");
    CHECK(name("layers.7.attention.wq.weight") == "model.layers.7.self_attn.q_proj.weight");
    CHECK(place("layers.7.attention.wq.weight", {4096, 4096}).rotated_heads == 32);
    CHECK(name("layers.7.attention.wk.weight") == "model.layers.7.self_attn.k_proj.weight");
    CHECK(place("layers.7.attention.wk.weight", {1024, 4096}).rotated_heads == 8);
    CHECK(name("layers.7.attention.wv.weight") == "model.layers.7.self_attn.v_proj.weight");
    CHECK(place("layers.7.attention.wv.weight", {1024, 4096}).rotated_heads == 0);
    CHECK(name("layers.7.attention.wo.weight") == "model.layers.7.self_attn.o_proj.weight");
    CHECK(name("layers.10.feed_forward.w1.weight") == "model.layers.10.mlp.gate_proj.weight");
    CHECK(name("layers.10.feed_forward.w2.weight") == "model.layers.10.mlp.down_proj.weight");
    CHECK(name("layers.10.feed_forward.w3.weight") == "model.layers.10.mlp.up_proj.weight");
    for (const char* wrong : {"layers.0.attention.wx.weight", "something", "layers.0"})
        CHECK_THROWS_WITH(name(wrong), Catch::Contains(std::string("no Hugging Face name for ") + wrong));
    CHECK(find_family("llama2").architectures == std::vector<std::string>{"LlamaForCausalLM"});
    const auto ignores = [](const std::string& tensor, bool tied) {
        DecoderConfig config = flavor("llama3", "debugmodel");
        config.tied = tied;
        return find_family("llama3").hub_ignores(tensor, config);
    };
    CHECK(ignores("model.layers.3.self_attn.rotary_emb.inv_freq", false));
    CHECK(ignores("lm_head.weight", true));
    CHECK_FALSE(ignores("lm_head.weight", false));
    CHECK_FALSE(ignores("model.layers.0.self_attn.q_norm.weight", true));
}

TEST_CASE("equal layers are one group") {
    const DecoderConfig& m = flavor("llama3", "debugmodel");
    CHECK(equal_layers(m) == std::vector<std::vector<int64_t>>{{0, 1, 2, 3, 4, 5}});
}

TEST_CASE(
    "initial values by role: a tied table starts as an output, projections into the residual path are "
    "smaller") {
    DecoderConfig m = flavor("llama3", "debugmodel");
    const auto init = [&](WeightRole role, int64_t layer = 0) {
        return find_family("llama3").init(role, layer, m);
    };
    CHECK(init(WeightRole::embedding).std == 1);
    CHECK(init(WeightRole::output).std == 1.0 / 16);
    CHECK(init(WeightRole::output).bound == 3.0 / 16);
    CHECK(init(WeightRole::norm).constant == 1);
    for (const WeightRole role : {WeightRole::attention_in, WeightRole::gate})
        CHECK(init(role, 7).std == 0.02);
    for (const WeightRole role : {WeightRole::attention_out, WeightRole::up, WeightRole::down})
        CHECK(init(role, 7).std == 0.02 / 4);
    m.tied = true;
    CHECK(init(WeightRole::embedding).std == 1.0 / 16);
}

TEST_CASE("the error for a wrong model name has the nearest name, an unsupported model has its own error") {
    CHECK_THROWS_AS(find_family("llama4x"), ConfigError);
    CHECK_THROWS_WITH(
        find_family("lama3"),
        R"(model.name = "lama3": there is no such model; did you mean "llama3"? known are llama2, llama3, mistral, qwen2, qwen3)");
    CHECK_THROWS_WITH(find_family("transformer-xl"),
                      R"(model.name = "transformer-xl": there is no such model; known are llama2, llama3, mistral, qwen2, qwen3)");
    for (const std::string name : {"deepseek_v3", "gpt_oss", "llama4", "flux", "llama3_ft"})
        CHECK_THROWS_WITH(
            find_family(name),
            "model.name = \"" + name + "\": this model is not implemented yet; implemented: llama2, llama3, "
            "mistral, qwen2, qwen3");
}

TEST_CASE("the error for a wrong flavour has the nearest and the other flavours") {
    CHECK_THROWS_AS(flavor("llama3", "8b"), ConfigError);
    CHECK_THROWS_WITH(
        flavor("llama3", "debug_model"),
        R"(model.flavor = "debug_model": llama3 has no such flavour; did you mean "debugmodel"? )"
        R"(known are debugmodel, 1B, 3B, 8B, 70B, 405B, or "hf" for the shapes of config.json)");
    // the nearest in size, not in spelling
    CHECK_THROWS_WITH(
        flavor("llama3", "7b"),
        Contains(R"(llama3 has no such flavour (7B is a flavour of llama2); did you mean "8B"?)"));
    CHECK_THROWS_WITH(flavor("llama3", "100B"), Contains(R"(did you mean "70B"?)"));
    CHECK_THROWS_WITH(flavor("llama2", "300m"), Contains(R"(did you mean "271M"?)"));
    CHECK_THROWS_WITH(
        flavor("llama2", "enormous"),
        R"(model.flavor = "enormous": llama2 has no such flavour; )"
        R"(known are debugmodel, 271M, 1B, 7B, 13B, 26B, 70B, or "hf" for the shapes of config.json)");
}
