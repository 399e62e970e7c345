// SPDX-License-Identifier: Apache-2.0
// Flavours against the counts of torchtitan's tables; messages for names that are wrong or not built.
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
        CHECK(m.head_dim == e.head_dim);
        CHECK(m.ffn_hidden == e.ffn_hidden);
        CHECK(m.parameters() == e.parameters);
        CHECK(m.flops_per_token(e.seq_len) == e.flops);
        CHECK(m.rope_theta == 500000);
        CHECK(m.rope_scaling ==
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
        CHECK(m.heads == e.heads);
        CHECK(m.kv_heads == e.kv_heads);
        CHECK(m.head_dim == e.dim / e.heads);
        CHECK(m.ffn_hidden == e.ffn_hidden);
        CHECK(m.parameters() == e.parameters);
        CHECK(m.rope_theta == 10000);
        CHECK_FALSE(m.rope_scaling.has_value());
        CHECK_FALSE(m.tied);
        CHECK(m.vocab == (m.flavor == "debugmodel" ? 2048 : 32000));
    }
}

TEST_CASE("FLOPs per token: 6 N without the input embedding, and attention") {
    DecoderConfig m = flavor("llama3", "debugmodel");
    const double attention = 6.0 * 6 * 16 * 32 * 100;
    CHECK(m.flops_per_token(100) == 6.0 * (6163712 - 2048 * 256) + attention);
    m.tied = true;  // the table is counted once, as the output
    CHECK(m.flops_per_token(100) == 6.0 * (6163712 - 2048 * 256) + attention);
}

TEST_CASE("a model's parameters are those that the configuration counts") {
    for (const NormType norm : {NormType::rms_norm, NormType::layer_norm, NormType::np_layer_norm})
        for (const bool tied : {false, true}) {
            CAPTURE(int(norm), tied);
            DecoderConfig m = flavor("llama3", "debugmodel");
            m.norm_type = norm;
            m.tied = tied;
            m.kv_heads = 4;
            m.head_dim = 24;
            const Decoder decoder(m, {}, 8);
            CHECK(decoder.parameters().count() == m.parameters());
            std::set<std::string> names;
            for (const Storage& storage : decoder.parameters().storages())
                for (const Param& param : storage.params()) {
                    CHECK(names.insert(param.name).second);
                    CHECK_FALSE(find_family("llama3").hub_name(param.name, m).name.empty());
                }
            CHECK(names.contains("output.weight") == !tied);
            CHECK(names.contains("layers.5.ffn_norm.weight") == (norm != NormType::np_layer_norm));
            CHECK(names.contains("norm.weight") == (norm != NormType::np_layer_norm));
        }
}

TEST_CASE("names in a Hugging Face folder, and whose rows are in another order there") {
    const DecoderConfig& m = flavor("llama3", "8B");
    const auto name = [&](const std::string& ours) { return find_family("llama3").hub_name(ours, m); };
    CHECK(name("tok_embeddings.weight").name == "model.embed_tokens.weight");
    CHECK(name("output.weight").name == "lm_head.weight");
    CHECK(name("norm.weight").name == "model.norm.weight");
    CHECK(name("layers.31.attention_norm.weight").name == "model.layers.31.input_layernorm.weight");
    CHECK(name("layers.0.ffn_norm.weight").name == "model.layers.0.post_attention_layernorm.weight");
    CHECK(name("layers.7.attention.wq.weight").name == "model.layers.7.self_attn.q_proj.weight");
    CHECK(name("layers.7.attention.wq.weight").rotated_heads == 32);
    CHECK(name("layers.7.attention.wk.weight").name == "model.layers.7.self_attn.k_proj.weight");
    CHECK(name("layers.7.attention.wk.weight").rotated_heads == 8);
    CHECK(name("layers.7.attention.wv.weight").name == "model.layers.7.self_attn.v_proj.weight");
    CHECK(name("layers.7.attention.wv.weight").rotated_heads == 0);
    CHECK(name("layers.7.attention.wo.weight").name == "model.layers.7.self_attn.o_proj.weight");
    CHECK(name("layers.10.feed_forward.w1.weight").name == "model.layers.10.mlp.gate_proj.weight");
    CHECK(name("layers.10.feed_forward.w2.weight").name == "model.layers.10.mlp.down_proj.weight");
    CHECK(name("layers.10.feed_forward.w3.weight").name == "model.layers.10.mlp.up_proj.weight");
    CHECK_THROWS_WITH(name("layers.0.attention.wx.weight"),
                      Catch::Contains("no Hugging Face name for layers.0.attention.wx.weight"));
    CHECK_THROWS_WITH(name("something"), Catch::Contains("no Hugging Face name for something"));
    CHECK(find_family("llama2").hub_architecture == "LlamaForCausalLM");
}

TEST_CASE("a wrong model name is told the nearest, a known one that it is not built") {
    CHECK_THROWS_AS(find_family("llama4x"), ConfigError);
    CHECK_THROWS_WITH(
        find_family("lama3"),
        R"(model.name = "lama3": no such model; did you mean "llama3"? known are llama2, llama3)");
    CHECK_THROWS_WITH(find_family("transformer-xl"),
                      R"(model.name = "transformer-xl": no such model; known are llama2, llama3)");
    for (const std::string name : {"deepseek_v3", "gpt_oss", "llama4", "qwen3", "flux", "llama3_ft"})
        CHECK_THROWS_WITH(find_family(name), "model.name = \"" + name +
                                                 "\": this model is not built yet; built are llama2, llama3");
}

TEST_CASE("a wrong flavour is told the nearest and the others") {
    CHECK_THROWS_AS(flavor("llama3", "8b"), ConfigError);
    CHECK_THROWS_WITH(
        flavor("llama3", "debug_model"),
        R"(model.flavor = "debug_model": llama3 has no such flavour; did you mean "debugmodel"? )"
        R"(known are debugmodel, 1B, 3B, 8B, 70B, 405B, or "hf" for the shapes of config.json)");
    CHECK_THROWS_WITH(
        flavor("llama2", "enormous"),
        R"(model.flavor = "enormous": llama2 has no such flavour; )"
        R"(known are debugmodel, 271M, 1B, 7B, 13B, 26B, 70B, or "hf" for the shapes of config.json)");
}
