// SPDX-License-Identifier: Apache-2.0
// Flavours against the counts of torchtitan's tables, and messages about wrong or unsupported names.
#include "coeus/models/registry.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/decoder.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const DecoderConfig& flavor(std::string_view family, std::string_view name) {
    return find_flavor(find_family(family), name);
}

struct Counts {
    std::string flavor;
    int64_t parameters, active, seq_len;
    double flops;  // per token, at seq_len
};

void check_counts(const char* family, const Counts& expected) {
    CAPTURE(family, expected.flavor);
    const DecoderConfig& m = flavor(family, expected.flavor);
    m.validate();
    CHECK(m.parameters() == expected.parameters);
    CHECK(m.active_parameters() == expected.active);
    CHECK(m.flops_per_token(expected.seq_len) == expected.flops);
}

// A number of billions with as many decimals as `like`, a number of torchtitan's table.
std::string in_billions(double number, std::string_view like) {
    return fmt::format("{:.{}f}", number / 1e9, like.size() - like.find('.') - 1);
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
        CHECK(m.head_sizes().head_dim == e.head_dim);
        CHECK(m.feed_forward.hidden == e.ffn_hidden);
        CHECK(m.parameters() == e.parameters);
        CHECK(m.flops_per_token(e.seq_len) == e.flops);
        CHECK(m.rope.theta == 500000);
        CHECK((m.rope.scaling ==
               RopeScaling(Llama3Scaling{
                   .factor = 8, .low_frequency = 1, .high_frequency = 4, .original_positions = 8192})));
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
        CHECK(m.head_sizes().heads == e.heads);
        CHECK(m.head_sizes().kv_heads == e.kv_heads);
        CHECK(m.head_sizes().head_dim == e.dim / e.heads);
        CHECK(m.feed_forward.hidden == e.ffn_hidden);
        CHECK(m.parameters() == e.parameters);
        CHECK(m.rope.theta == 10000);
        CHECK((m.rope.scaling == RopeScaling{}));
        CHECK_FALSE(m.tied);
        CHECK(m.vocab == (m.flavor == "debugmodel" ? 2048 : 32000));
    }
}

TEST_CASE("Qwen 3: shapes, parameters and FLOPs per token of every dense flavour") {
    struct Expected {
        const char* flavor;
        int64_t dim, layers, heads, ffn_hidden, parameters, seq_len;
        const char* billion_flops;  // as torchtitan's table rounds them
    };
    const Expected table[] = {
        {"debugmodel", 256, 8, 16, 3072, 31987968, 2048, "0.595"},
        {"0.6B", 1024, 28, 16, 3072, 596049920, 4096, "6.39"},
        {"1.7B", 2048, 28, 16, 6144, 1720574976, 4096, "13.14"},
        {"4B", 2560, 36, 32, 9728, 4022468096, 4096, "31.38"},
        {"8B", 4096, 36, 32, 12288, 8190735360, 4096, "52.66"},
        {"14B", 5120, 40, 40, 17408, 14768307200, 4096, "94.01"},
        {"32B", 5120, 64, 64, 25600, 32762123264, 4096, "217.7"},
    };
    for (const Expected& e : table) {
        CAPTURE(e.flavor);
        const DecoderConfig& m = flavor("qwen3", e.flavor);
        m.validate();
        CHECK(m.dim == e.dim);
        CHECK(m.layers == e.layers);
        CHECK(m.grouped() ==
              GroupedAttentionConfig{
                  .heads = e.heads, .kv_heads = 8, .head_dim = 128, .qk_norm = QkNorm::before_rope});
        CHECK(m.feed_forward.hidden == e.ffn_hidden);
        CHECK(m.parameters() == e.parameters);
        CHECK(in_billions(m.flops_per_token(e.seq_len), e.billion_flops) == e.billion_flops);
        const bool is_debug = m.flavor == "debugmodel";
        CHECK(m.rope == RopeConfig{.theta = 1e6, .layout = RopeLayout::half_split});
        CHECK(m.norm_eps == 1e-6);
        CHECK(m.vocab == (is_debug ? 2048 : 151936));
        CHECK(m.tied == (e.dim <= 2560));
        CHECK(m.max_seq_len == (is_debug ? 4096 : 40960));
    }
    CHECK(flavor("qwen3", "debugmodel").flops_per_token(2048) == 594580992);
}

TEST_CASE("Qwen 3 with experts: parameters, active parameters and FLOPs per token") {
    check_counts("qwen3", {"debugmodel_moe", 315758848, 51517696, 4096, 1111266816});
    check_counts("qwen3", {"30B-A3B", 30532122624, 3353032704, 4096, 27914883072});
    check_counts("qwen3", {"235B-A22B", 235093634560, 22190763520, 4096, 167260001280});
}

TEST_CASE("DeepSeek V3: parameters, active parameters and FLOPs per token of every flavour") {
    const Counts table[] = {
        {"debugmodel", 33014016, 28098816, 2048, 542934528},
        {"16B", 15706484224, 2661150208, 4096, 18105996288},
        {"236B", 235741434880, 21375800320, 4096, 185507051520},
        {"671B", 671026404352, 37552282624, 4096, 281158232064},
    };
    for (const Counts& expected : table) check_counts("deepseek_v3", expected);
    const Decoder decoder(flavor("deepseek_v3", "debugmodel"), {}, 8);
    CHECK(decoder.parameters().count() == 33014016 + 5 * 8);  // with the balancing biases
}

TEST_CASE("Llama 4: parameters, active parameters and FLOPs per token of every flavour") {
    const Counts table[] = {
        {"debugmodel", 15017216, 6759680, 2048, 75161088},
        {"17bx16e", 107769861120, 17172894720, 8192, 120989644800},
        {"17bx128e", 400711848960, 17184691200, 8192, 121060423680},
    };
    CHECK(find_family("llama4").flavors.size() == 2 * std::size(table));
    for (Counts expected : table) {
        check_counts("llama4", expected);
        expected.flavor += "_irope";
        check_counts("llama4", expected);
    }
    const DecoderConfig& m = flavor("llama4", "17bx128e_irope");
    for (const int64_t layer : {0, 1, 4, 47}) {
        CAPTURE(layer);
        const LayerConfig config = m.layer(layer);
        CHECK(config.is_dense() == (layer % 2 == 0));
        CHECK(config.grouped().rope == (layer % 4 != 0));
        CHECK(config.grouped().chunk == (layer % 4 != 0 ? 8192 : 0));
    }
    CHECK(flavor("llama4", "17bx128e").layer(0).grouped().rope);
    CHECK(flavor("llama4", "17bx128e").layer(0).grouped().chunk == 0);
}

TEST_CASE("constants of flavours that no number of parameters shows") {
    const DecoderConfig &v2 = flavor("deepseek_v3", "236B"), &v3 = flavor("deepseek_v3", "671B"),
                        &small = flavor("deepseek_v3", "16B");
    CHECK((v2.moe.groups == 8 && v2.moe.kept_groups == 3 && v2.moe.scale == 16));
    CHECK((v2.moe.score == ScoreFunction::softmax && !v2.moe.normalise));
    CHECK((v3.moe.groups == 8 && v3.moe.kept_groups == 4 && v3.moe.scale == 2.5));
    CHECK((v3.moe.score == ScoreFunction::sigmoid && v3.moe.normalise));
    CHECK((small.moe.groups == 1 && small.moe.scale == 1));
    for (const auto& [name, mscale] :
         {std::pair("debugmodel", 0.7), {"16B", 0.7}, {"236B", 1}, {"671B", 1}}) {
        CAPTURE(name);
        const auto yarn = std::get<YarnScaling>(flavor("deepseek_v3", name).rope.scaling);
        CHECK((yarn.mscale == mscale && yarn.mscale_all_dim == mscale));
        CHECK((yarn.factor == 40 && yarn.beta_fast == 32 && yarn.beta_slow == 1 && yarn.truncate));
        CHECK(flavor("deepseek_v3", name).moe.balance_rate == 1e-3);
    }
    CHECK(flavor("qwen3", "235B-A22B").rope.theta == 5e6);
    CHECK(flavor("qwen3", "30B-A3B").rope.theta == 1e6);
    const DecoderConfig &scout = flavor("llama4", "17bx16e"), &maverick = flavor("llama4", "17bx128e");
    CHECK(scout.rope.scaling ==
          RopeScaling(Llama3Scaling{
              .factor = 16, .low_frequency = 1, .high_frequency = 1, .original_positions = 8192}));
    CHECK(maverick.rope.scaling == RopeScaling{});
    CHECK((scout.rope.theta == 500000 && scout.rope.layout == RopeLayout::interleaved));
    CHECK((scout.max_seq_len == 10485760 && maverick.max_seq_len == 1048576));
    CHECK((scout.moe.top_k == 1 && scout.moe.gate.scales_input && !scout.moe.normalise));
    CHECK(flavor("llama4", "debugmodel_irope").grouped().chunk == 256);
}

TEST_CASE("shared experts follow the width of the experts") {
    const auto shared = [](std::map<std::string, FieldValue> values) {
        DecoderConfig m = flavor("deepseek_v3", "debugmodel");
        override_fields(m, [&](const std::string& name) {
            const auto found = values.find(name);
            return found == values.end() ? std::nullopt : std::optional(found->second);
        });
        return m.moe.shared_hidden;
    };
    CHECK(shared({}) == 512);
    CHECK(shared({{"moe.hidden", int64_t(96)}}) == 192);
    CHECK(shared({{"moe.num_shared_experts", int64_t(3)}}) == 768);
    CHECK(shared({{"moe.hidden", int64_t(96)}, {"moe.num_shared_experts", int64_t(0)}}) == 0);
}

TEST_CASE("latent attention: wrong widths are refused") {
    const auto refusal = [](const std::function<void(LatentAttentionConfig&)>& change) -> std::string {
        DecoderConfig m = flavor("deepseek_v3", "debugmodel");
        change(m.latent());
        try {
            m.validate();
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "valid";
    };
    CHECK(refusal([](LatentAttentionConfig&) {}) == "valid");
    CHECK(refusal([](LatentAttentionConfig& a) { a.rope_dim = 63; }) ==
          "model.qk_rope_head_dim = 63: must be even and less than model.head_dim = 192 (nearest: 64)");
    CHECK(refusal([](LatentAttentionConfig& a) { a.rope_dim = 192; }) ==
          "model.qk_rope_head_dim = 192: must be even and less than model.head_dim = 192 (nearest: 190)");
    CHECK(refusal([](LatentAttentionConfig& a) { a.kv_rank = 0; }) ==
          "model.kv_lora_rank = 0: must be at least 1");
}

TEST_CASE("gpt-oss: shapes, parameters and active parameters of every flavour") {
    struct Expected {
        const char* flavor;
        int64_t dim, layers, experts, parameters;
        const char* billions_active;  // as torchtitan's table rounds them
    };
    const Expected table[] = {
        {"debugmodel", 256, 4, 8, 81489440, "0.0460"},
        {"20b", 2880, 24, 32, 20914757184, "4.19"},
        {"120b", 2880, 36, 128, 116829156672, "5.71"},
    };
    CHECK(find_family("gpt_oss").flavors.size() == std::size(table));
    for (const Expected& e : table) {
        CAPTURE(e.flavor);
        const DecoderConfig& m = flavor("gpt_oss", e.flavor);
        m.validate();
        CHECK(m.dim == e.dim);
        CHECK(m.layers == e.layers);
        CHECK(m.moe.experts == e.experts);
        CHECK(m.parameters() == e.parameters);
        CHECK(in_billions(double(m.active_parameters()), e.billions_active) == e.billions_active);
        for (int64_t layer = 0; layer < m.layers; ++layer)
            CHECK(m.layer(layer).head_sizes().window == (layer % 2 == 0 ? 128 : 0));
    }
    const Decoder decoder(flavor("gpt_oss", "debugmodel"), {}, 8);
    CHECK(decoder.parameters().count() == 81489440 + 4 * 8);  // with the balancing biases
}

TEST_CASE("Qwen 2 and Mistral: parameters of every flavour, as published") {
    struct Expected {
        const char *family, *flavor;
        int64_t head_dim, parameters;
    };
    const Expected table[] = {
        {"qwen2", "0.5B", 64, 494032768},        {"qwen2", "1.5B", 128, 1543714304},
        {"qwen2", "3B", 128, 3085938688},        {"qwen2", "7B", 128, 7615616512},
        {"qwen2", "14B", 128, 14770033664},      {"qwen2", "32B", 128, 32763876352},
        {"qwen2", "72B", 128, 72706203648},      {"qwen2", "debugmodel", 16, 5249280},
        {"mistral", "7B-v0.1", 128, 7241732096}, {"mistral", "7B-v0.3", 128, 7248023552},
        {"mistral", "debugmodel", 16, 5770496},  {"mistral", "Small-24B-2501", 128, 23572403200},
    };
    size_t dense = 0;
    for (const char* family : {"qwen2", "mistral"})
        dense += size_t(std::ranges::count_if(find_family(family).flavors,
                                              [](const DecoderConfig& each) { return !each.has_experts(); }));
    CHECK(dense == std::size(table));
    for (const Expected& e : table) {
        CAPTURE(e.family, e.flavor);
        const DecoderConfig& m = flavor(e.family, e.flavor);
        m.validate();
        const bool is_qwen = m.family == "qwen2";
        CHECK(m.head_sizes().head_dim == e.head_dim);
        CHECK(m.grouped().bias == (is_qwen ? AttentionBias::qkv : AttentionBias::none));
        CHECK(m.rope.layout == RopeLayout::half_split);
        CHECK(m.parameters() == e.parameters);
    }
    CHECK(flavor("mistral", "7B-v0.1").layer(31).head_sizes().window == 4096);
    CHECK(flavor("mistral", "7B-v0.3").layer(31).head_sizes().window == 0);
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
            m.grouped().kv_heads = 4;
            m.grouped().head_dim = 24;
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

namespace {

std::set<std::string> parameter_names(const Decoder& decoder) {
    std::set<std::string> names;
    for (const Storage& storage : decoder.parameters().storages())
        for (const Param& param : storage.params()) names.insert(param.name);
    return names;
}

}  // namespace

TEST_CASE(
    "a model with norms of heads, biases and sinks has as many parameters as its configuration computes") {
    for (const QkNorm qk_norm : {QkNorm::none, QkNorm::before_rope})
        for (const AttentionBias bias :
             {AttentionBias::none, AttentionBias::qkv, AttentionBias::all, AttentionBias::out})
            for (const bool sinks : {false, true}) {
                CAPTURE(int(qk_norm), int(bias), sinks);
                DecoderConfig m = flavor("qwen3", "debugmodel");
                m.grouped().qk_norm = qk_norm;
                m.grouped().bias = bias;
                m.grouped().sinks = sinks;
                m.grouped().head_dim = 24;
                const Decoder decoder(m, {}, 8);
                CHECK(decoder.parameters().count() == m.parameters());
                const std::set<std::string> names = parameter_names(decoder);
                CHECK(names.contains("layers.7.attention.q_norm.weight") == (qk_norm != QkNorm::none));
                CHECK(names.contains("layers.7.attention.k_norm.weight") == (qk_norm != QkNorm::none));
                CHECK(names.contains("layers.7.attention.wv.bias") ==
                      (bias == AttentionBias::qkv || bias == AttentionBias::all));
                CHECK(names.contains("layers.7.attention.wo.bias") ==
                      (bias == AttentionBias::out || bias == AttentionBias::all));
                CHECK(names.contains("layers.7.attention.sinks") == sinks);
            }
}

TEST_CASE("rows of Qwen and Mistral have the same order in a Hugging Face folder") {
    for (const char* family : {"mistral", "qwen2", "qwen3"}) {
        CAPTURE(family);
        const DecoderConfig& m = flavor(family, "debugmodel");
        const auto place = [&](const std::string& ours, const Shape& shape) {
            const std::vector<HubPlace> places = find_family(family).hub_places(ours, shape, m);
            REQUIRE(places.size() == 1);
            CHECK(places.front().shape == shape);
            CHECK(places.front().rotated_heads == 0);
            return places.front().name;
        };
        CHECK(place("layers.5.attention.wq.weight", {64, 5}) == "model.layers.5.self_attn.q_proj.weight");
        CHECK(place("layers.5.attention.wk.weight", {64, 5}) == "model.layers.5.self_attn.k_proj.weight");
        for (const std::string name : {"q", "k", "v"})
            CHECK(place("layers.5.attention.w" + name + ".bias", {64}) ==
                  "model.layers.5.self_attn." + name + "_proj.bias");
        for (const std::string name : {"q_norm", "k_norm"})
            CHECK(place("layers.5.attention." + name + ".weight", {64}) ==
                  "model.layers.5.self_attn." + name + ".weight");
    }
}

TEST_CASE("experts whose gate and up take turns in one matrix, with and without biases") {
    for (const bool biases : {false, true}) {
        CAPTURE(biases);
        DecoderConfig m = flavor("gpt_oss", "debugmodel");
        m.moe.biases = biases;
        m.moe.balance_rate = 0;
        const Decoder decoder(m, {}, 8);
        CHECK(decoder.parameters().count() == m.parameters());
        const std::set<std::string> names = parameter_names(decoder);
        CHECK(names.contains("layers.3.moe.experts.mlp1_weight"));
        CHECK(names.contains("layers.3.moe.experts.mlp1_bias") == biases);
        CHECK(names.contains("layers.3.moe.experts.mlp2_bias") == biases);
        CHECK_FALSE(names.contains("layers.3.moe.experts.w1"));
    }
}

TEST_CASE("biases of a Llama have the order of the rows of their matrix in a Hugging Face folder") {
    const DecoderConfig& m = flavor("llama3", "8B");
    const auto rotated = [&](const std::string& ours, int64_t rows) {
        return find_family("llama3").hub_places(ours, {rows}, m).front().rotated_heads;
    };
    CHECK(rotated("layers.0.attention.wq.bias", 4096) == 32);
    CHECK(rotated("layers.0.attention.wk.bias", 1024) == 8);
    CHECK(rotated("layers.0.attention.wv.bias", 1024) == 0);
    CHECK(rotated("layers.0.attention.wo.bias", 4096) == 0);
}

TEST_CASE("only the rotated rows of a Llama's heads have another order in a Hugging Face folder") {
    DecoderConfig m = flavor("llama3", "8B");
    const auto row_of = [&](const char* name, int64_t row) {
        const HubPlace place = find_family("llama3").hub_places(name, {1024, 4096}, m).front();
        return place.index(row, 0) / 4096;
    };
    CHECK(row_of("layers.0.attention.wk.weight", 128 + 33) == 128 + 64 + 16);
    m.grouped().rope_fraction = 0.5;
    for (const auto& [ours, theirs] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 0}, {1, 32}, {2, 1}, {33, 32 + 16}, {63, 63}, {64, 64}, {97, 97}, {127, 127}}) {
        CAPTURE(ours);
        CHECK(row_of("layers.0.attention.wk.weight", 128 + ours) == 128 + theirs);
        CHECK(row_of("layers.0.attention.wv.weight", 128 + ours) == 128 + ours);
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
    DecoderConfig other = m;
    other.windowed = {.period = 2};  // a window of no tokens is none
    CHECK(other.layer_kinds().size() == 1);
    other.grouped().window = 4;
    other.mtp.layers = 2;
    CHECK(equal_layers(other) == std::vector<std::vector<int64_t>>{{0, 2, 4}, {1, 3, 5}});
    CHECK(other.layer_kinds()[1].layers == std::vector<int64_t>{1, 3, 5, 6, 7});
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

TEST_CASE("initial values of Qwen 3: one distribution for all matrices in 2026, those of Llama in 2025") {
    DecoderConfig m = flavor("qwen3", "8B");
    const auto init = [&](WeightRole role) { return find_family("qwen3").init(role, 3, m); };
    CHECK(m.initial_values == InitialValues::of_2026);
    for (const WeightRole role :
         {WeightRole::embedding, WeightRole::output, WeightRole::attention_in, WeightRole::attention_out,
          WeightRole::gate, WeightRole::up, WeightRole::down})
        CHECK(init(role).std == 0.02);
    CHECK(init(WeightRole::norm).constant == 1);
    CHECK(init(WeightRole::attention_bias).constant == 0);
    CHECK(init(WeightRole::attention_bias).std == 0);
    m.initial_values = InitialValues::of_2025;
    CHECK(init(WeightRole::embedding).std == 1);
    CHECK(init(WeightRole::output).std == 1.0 / 64);
    CHECK(init(WeightRole::attention_in).std == 0.02);
    CHECK(init(WeightRole::down).std == 0.02 / std::sqrt(8.0));
}

TEST_CASE("the error for a wrong model name has the nearest name, an unsupported model has its own error") {
    CHECK_THROWS_AS(find_family("llama4x"), ConfigError);
    const std::string known = join(family_names(), ", ");
    CHECK_THROWS_WITH(
        find_family("lama3"),
        R"(model.name = "lama3": there is no such model; did you mean "llama3"? known are )" + known);
    CHECK_THROWS_WITH(find_family("transformer-xl"),
                      R"(model.name = "transformer-xl": there is no such model; known are )" + known);
    CHECK(find_family("llama3_ft").name == "llama3");
    for (const std::string name : {"flux"})
        CHECK_THROWS_WITH(
            find_family(name),
            "model.name = \"" + name + "\": this model is not implemented yet; implemented: " + known);
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
