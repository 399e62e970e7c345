// SPDX-License-Identifier: Apache-2.0
// Shapes of a model: flavour and overrides.
#include "coeus/pretrained/model_source.hpp"

#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "support/catch.hpp"
#include "support/hub_folder.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

Config deck(const std::string& name, const std::string& flavor) {
    Config config;
    config.model.name = name;
    config.model.flavor = flavor;
    return config;
}

}  // namespace

TEST_CASE("model set-up: an unchanged flavour, from the command line and an effective deck too") {
    const TemporaryFolder folder;
    for (const ModelFamily& family : model_families())
        for (const DecoderConfig& flavor : family.flavors) {
            CAPTURE(family.name, flavor.flavor);
            CHECK(model_from_deck(deck(family.name, flavor.flavor)) == flavor);
            const Config read =
                parse_command_line({"--training.dataset_path=x.h5", "--model.name=" + family.name,
                                    "--model.flavor=" + flavor.flavor})
                    .config;
            CHECK(model_from_deck(read) == flavor);
            const std::filesystem::path effective = folder / "deck.toml";
            write_file(effective, deck_text(read));
            CHECK(model_from_deck(parse_command_line({effective.string()}).config) == flavor);
        }
    CHECK_THROWS_WITH(model_from_deck(deck("llama3", "8b")), Contains("did you mean \"8B\"?"));
    CHECK_THROWS_WITH(model_from_deck(deck("lama3", "8B")), Contains("did you mean \"llama3\"?"));
}

TEST_CASE("model set-up: layers of multi-token prediction that a folder's files lack are left out") {
    const TemporaryFolder folder;
    DecoderConfig model = small_model("deepseek_v3", "debugmodel", 32, 4, 192);
    model.moe.keeps_bias = true;
    const std::filesystem::path hub = folder / "hub";
    write_random_folder(hub, model);
    // transformers writes the number, but no tensors
    Json json = hub_config_of(model);
    write_json(json.set("num_nextn_predict_layers", 1), hub / "config.json");
    Config config = deck("deepseek_v3", "hf");
    config.model.hf_assets_path = hub.string();
    config.training.seq_len = 16;
    CHECK(model_from_deck(config).mtp.layers == 1);  // it starts from random weights
    config.checkpoint.initial_load_in_hf = true;
    CHECK(model_from_deck(config).mtp.layers == 0);
    config.model.num_mtp_layers = 1;  // the deck asks for them: loading says that there are none
    CHECK(model_from_deck(config).mtp.layers == 1);
}

TEST_CASE("model set-up: a deck of torchtitan keeps its biases, whether or not a folder holds them") {
    for (const ModelFamily& family : model_families())
        for (const DecoderConfig& flavor : family.flavors) {
            if (flavor.dim > 512 || flavor.moe.experts == 0 || !family.hub_keys) continue;
            CAPTURE(family.name, flavor.flavor);
            Config config = deck(family.name, flavor.flavor);
            config.checkpoint.enable = config.checkpoint.last_save_in_hf = true;
            CHECK(model_from_deck(config) == flavor);
            config.model.moe.load_balance_coeff = 0;
            CHECK(model_from_deck(config).moe.balance_rate == 0);
            CHECK(model_from_deck(config).moe.sequence_balance == 0);
        }
}

TEST_CASE(
    "model set-up: the experts of a folder are balanced as transformers does, unless the deck says how") {
    const TemporaryFolder folder;
    DecoderConfig model = small_model("qwen3", "debugmodel_moe", 32, 2, 8);
    const std::filesystem::path hub = folder / "hub";
    set_router_aux_loss_coef(model, 0.02);
    write_random_folder(hub, model);
    Config config = deck("qwen3", "hf");
    config.model.hf_assets_path = hub.string();
    config.training.seq_len = 16;
    const auto is = [&](double rate, double aux_loss) {
        const DecoderConfig made = model_from_deck(config);
        CHECK(made.moe.balance_rate == rate);
        CHECK(close(router_aux_loss_coef(made), aux_loss, 1e-15));
    };
    is(0, 0.02);
    // the mean over layers and the sum over choices of a token, whatever the deck makes of them
    config.model.n_layers = 1;
    config.model.moe.top_k = 3;
    is(0, 0.02);
    CHECK(close(model_from_deck(config).moe.sequence_balance, 0.02 * 3 / 1, 1e-15));
    config.model.n_layers.reset();
    config.model.moe.top_k.reset();
    config.model.moe.sequence_balance_coeff = 0;
    is(0, 0);
    config.model.moe.sequence_balance_coeff = 0.5;
    is(0, 0.5 * double(model.moe_rows()) / double(model.moe.top_k));
    // the biases and their rate: as in decks of earlier versions, without a loss
    config.model.moe.sequence_balance_coeff.reset();
    for (const double rate : {0.0, 1e-3}) {
        config.model.moe.load_balance_coeff = rate;
        is(rate, 0);
    }
    config.model.moe.sequence_balance_coeff = 0.5;
    CHECK(model_from_deck(config).moe.sequence_balance == 0.5);
    // all layers dense: there is nothing to balance
    config.model.moe = {};
    config.model.n_dense_layers = model.layers;
    config.model.ffn_hidden = 48;
    CHECK(model_from_deck(config).moe.sequence_balance == 0);
}

TEST_CASE("model set-up: a loss balances a flavour whose folders have no place for biases") {
    for (const auto& [family, flavor] :
         {std::pair("mixtral", "debugmodel"), std::pair("qwen2", "debugmodel_moe"),
          std::pair("granite", "3.0-1B-A400M")}) {
        CAPTURE(family);
        Config config = deck(family, flavor);
        const auto is = [&](double rate, double aux_loss) {
            const DecoderConfig made = model_from_deck(config);
            CHECK(made.moe.balance_rate == rate);
            CHECK(close(router_aux_loss_coef(made), aux_loss, 1e-15));
            CHECK(hub_holds_biases(made) == (rate == 0));
        };
        is(0, 0.001);
        config.model.n_layers = 2;
        is(0, 0.001);
        config.model.moe.load_balance_coeff = 1e-3;
        is(1e-3, 0);
        config.model.moe.load_balance_coeff.reset();
        config.model.moe.sequence_balance_coeff = 0;
        is(0, 0);
    }
}

TEST_CASE("model set-up: a folder with a place for balancing biases keeps them") {
    const TemporaryFolder folder;
    DecoderConfig model = small_model("deepseek_v3", "debugmodel", 32, 4, 192);
    model.moe.keeps_bias = true;
    const std::filesystem::path hub = folder / "hub";
    write_random_folder(hub, model);
    Config config = deck("deepseek_v3", "hf");
    config.model.hf_assets_path = hub.string();
    config.training.seq_len = 16;
    CHECK(model_from_deck(config).moe.balance_rate == 1e-3);
    CHECK(model_from_deck(config).moe.sequence_balance == 0);
}

TEST_CASE("model set-up: every field can be overridden") {
    Config config = deck("llama3", "8B");
    Config::Model& m = config.model;
    m.n_layers = 3;
    m.n_heads = 8;
    m.n_kv_heads = 4;
    m.head_dim = 10;
    m.dim = 48;
    m.ffn_hidden = 77;
    m.vocab_size = 99;
    m.rope_theta = 1e4;
    m.rope_scaling_factor = 8;
    m.norm_eps = 1e-3;
    m.norm_type = "layernorm";
    m.tied_embeddings = true;
    m.max_seq_len = 4096;
    const DecoderConfig model = model_from_deck(config);
    CHECK(model.layers == 3);
    CHECK(model.head_sizes().heads == 8);
    CHECK(model.head_sizes().kv_heads == 4);
    CHECK(model.head_sizes().head_dim == 10);
    CHECK(model.dim == 48);
    CHECK(model.feed_forward.hidden == 77);
    CHECK(model.vocab == 99);
    CHECK(model.rope.theta == 1e4);
    CHECK(std::get<Llama3Scaling>(model.rope.scaling).factor == 8);
    CHECK(model.norm_eps == 1e-3);
    CHECK(model.norm_type == NormType::layer_norm);
    CHECK(model.tied);
    CHECK(model.max_seq_len == 4096);
    m.norm_type = "fused_rmsnorm";
    m.rope_scaling_factor = 1;
    CHECK(model_from_deck(config).norm_type == NormType::rms_norm);
    CHECK((model_from_deck(config).rope.scaling == RopeScaling{}));
    m.norm_type = "np_layernorm";
    CHECK(model_from_deck(config).norm_type == NormType::np_layer_norm);
    // without the option, that of the flavour
    CHECK(model_from_deck(deck("cohere2", "debugmodel")).norm_type == NormType::layer_norm);
}

TEST_CASE("model set-up: norms are the family's, unless a deck says which") {
    Config config = deck("cohere2", "debugmodel");
    CHECK(model_from_deck(config).norm_type == NormType::layer_norm);
    config.model.norm_type = "rmsnorm";
    CHECK(model_from_deck(config).norm_type == NormType::rms_norm);
    config.model.name = "llama3";
    CHECK(model_from_deck(config) == find_flavor(find_family("llama3"), "debugmodel"));
}

TEST_CASE("model set-up: a deck chooses the scaling of RoPE") {
    Config config = deck("llama3", "8B");
    Config::Model& m = config.model;
    const auto scaling = [&] { return model_from_deck(config).rope.scaling; };
    const auto message = [&] {
        try {
            scaling();
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const bool has_scaling = scaling() != RopeScaling{};  // Llama 3.1's
    REQUIRE(has_scaling);
    m.rope_scaling_original_positions = 2048;
    CHECK((scaling() == RopeScaling{Llama3Scaling{.original_positions = 2048}}));
    m.rope_scaling_type = "default";
    CHECK(message() ==
          "model.rope_scaling_original_positions = 2048: a RoPE with model.rope_scaling_type = "
          "\"default\" has no such field; remove it");
    m.rope_scaling_original_positions.reset();
    CHECK((scaling() == RopeScaling{}));
    m.rope_scaling_type = "yarn";
    CHECK_THAT(message(), Contains("model.rope_scaling_type = \"yarn\": set model.rope_scaling_factor too"));
    m.rope_scaling_factor = 4;
    CHECK_THAT(message(), Contains("set model.rope_scaling_original_positions too, the length of the rows"));
    m.rope_scaling_original_positions = 2048;
    CHECK((scaling() == RopeScaling{YarnScaling{.factor = 4, .original_positions = 2048}}));
    m.rope_scaling_type = "dynamic";
    CHECK((scaling() == RopeScaling{DynamicScaling{.factor = 4, .original_positions = 2048}}));
    m.rope_scaling_type = "linear";
    CHECK_THAT(message(), Contains("model.rope_scaling_original_positions = 2048: a RoPE with"));
    m.rope_scaling_original_positions.reset();
    CHECK((scaling() == RopeScaling{LinearScaling{.factor = 4}}));
    m.rope_scaling_factor = 1;
    CHECK((scaling() == RopeScaling{}));
    m.rope_scaling_type = "llama3";  // the flavour's own: its other fields stay
    m.rope_scaling_factor = 16;
    CHECK((scaling() == RopeScaling{Llama3Scaling{.factor = 16}}));
}

TEST_CASE("model set-up: values that follow from overridden ones") {
    Config config = deck("llama3", "debugmodel");
    config.model.dim = 96;
    CHECK(model_from_deck(config).head_sizes().head_dim == 96 / 16);
    CHECK(model_from_deck(config).feed_forward.hidden == 256);
    config.model.multiple_of = 32;
    CHECK(model_from_deck(config).feed_forward.hidden == 256);
    config.model.multiple_of = 10;
    CHECK(model_from_deck(config).feed_forward.hidden == 260);
    config.model.ffn_dim_multiplier = 1.3;
    CHECK(model_from_deck(config).feed_forward.hidden == 340);  // 332.8 is truncated to 332, then rounded up
    config.model.n_heads = 4;
    CHECK(model_from_deck(config).head_sizes().head_dim == 24);
    CHECK(model_from_deck(config).head_sizes().kv_heads == 4);  // each head had its own keys, and still has
    config.model.n_heads = 5;
    CHECK_THROWS_WITH(model_from_deck(config), Contains("model.n_heads = 5: must divide model.dim = 96"));
    config.model.n_heads = 4;
    config.model.n_kv_heads = 3;
    CHECK_THROWS_WITH(model_from_deck(config),
                      Contains("model.n_kv_heads = 3: must divide model.n_heads = 4"));
    config.model.n_kv_heads = 1;
    config.training.seq_len = 200000;
    CHECK_THROWS_WITH(model_from_deck(config),
                      "training.seq_len = 200000: llama3 debugmodel allows at most 131072; reduce it, or "
                      "increase model.max_seq_len");
}

TEST_CASE("model set-up: a new width keeps the flavour's rule for the feed-forward width") {
    Config config = deck("llama3", "8B");
    config.model.dim = 8192;
    CHECK(model_from_deck(config).feed_forward.hidden == 28672);  // 1.3 x 21845, to 1024
    config.model.multiple_of = 100;
    CHECK(model_from_deck(config).feed_forward.hidden == 28400);
    config.model.ffn_dim_multiplier = 1;
    CHECK(model_from_deck(config).feed_forward.hidden == 21900);
}

TEST_CASE("model set-up: the shapes of a Hugging Face folder can be overridden") {
    const auto folder = golden("models/llama3_gqa");
    if (folder.empty()) return;
    Config config = deck("llama3", "hf");
    config.model.hf_assets_path = folder.string();
    config.training.seq_len = 64;
    const DecoderConfig model = model_from_deck(config);
    CHECK(model.dim == 64);
    CHECK(model.head_sizes().kv_heads == 2);
    CHECK(model.feed_forward.hidden == 96);
    CHECK(model.vocab == 272);
    CHECK(model.max_seq_len == 64);
    config.model.name = "llama2";
    CHECK(model_from_deck(config).family == "llama2");
    config.model.n_layers = 1;
    CHECK(model_from_deck(config).layers == 1);
    config.model.dim = 32;
    CHECK_THROWS_WITH(
        model_from_deck(config),
        "model.dim = 32: the feed-forward width of this flavour is a number, 96, which does not "
        "follow from another; set model.ffn_hidden too");
    config.model.ffn_hidden = 40;
    CHECK(model_from_deck(config).feed_forward.hidden == 40);
    config.training.seq_len = 65;
    CHECK_THROWS_WITH(model_from_deck(config), Contains("allows at most 64"));
    config.training.seq_len = 64;
    config.validation.enable = true;
    config.validation.seq_len = 65;
    CHECK_THROWS_WITH(model_from_deck(config), Contains("validation.seq_len = 65") && Contains("at most 64"));
}

TEST_CASE("model set-up: layers of multi-token prediction and their loss belong together") {
    Config config = deck("deepseek_v3", "debugmodel");
    CHECK(model_from_deck(config).mtp.layers == 0);
    config.loss.loss_fn = "MTPLoss";
    config.loss.mtp_scale = 0.1;
    CHECK_THROWS_WITH(model_from_deck(config),
                      "loss.loss_fn = \"MTPLoss\": needs layers that predict further tokens, but "
                      "model.num_mtp_layers = 0; set it to 1, or loss.loss_fn = \"CrossEntropyLoss\"");
    config.model.num_mtp_layers = 1;
    CHECK(model_from_deck(config).mtp.layers == 1);
    CHECK(model_from_deck(config).mtp.scale == 0.1);
    config.loss.loss_fn.reset();
    CHECK(model_from_deck(config).mtp.layers == 1);
    config.loss.loss_fn = "ChunkedLossWrapper";
    CHECK_THROWS_WITH(
        model_from_deck(config),
        "loss.loss_fn = \"ChunkedLossWrapper\": does not train the layers of "
        "model.num_mtp_layers = 1; set loss.loss_fn = \"MTPLoss\", or model.num_mtp_layers = 0");
    config.model.num_mtp_layers = 65;
    CHECK_THROWS_WITH(model_from_deck(config), "model.num_mtp_layers = 65: must be at most 64");
}

TEST_CASE("model set-up: a loss that balances sequences needs layers with experts") {
    Config config = deck("llama3", "debugmodel");
    config.model.moe.sequence_balance_coeff = 0.01;
    CHECK_THROWS_WITH(
        model_from_deck(config),
        "model.moe.sequence_balance_coeff = 0.01: llama3 debugmodel has no layer with experts, whose "
        "loads it would balance; remove it");
    config.model.moe.num_experts = 4;
    config.model.moe.hidden = 64;
    CHECK(model_from_deck(config).moe.sequence_balance == 0.01);
    config.model.n_dense_layers = 6;  // all
    CHECK_THROWS_WITH(model_from_deck(config), Contains("has no layer with experts"));
    config.model.moe.num_experts.reset();
    config.model.moe.sequence_balance_coeff = 0;
    CHECK(model_from_deck(config).moe.sequence_balance == 0);
}
