// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/decoder_config.hpp"

#include "coeus/models/decoder.hpp"
#include "coeus/models/model_config.hpp"
#include "coeus/models/registry.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <cctype>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

// The message of validate() for the tiny model after a change, or "".
std::string complaint(const std::function<void(DecoderConfig&)>& change) {
    DecoderConfig config = tiny_config();
    change(config);
    try {
        config.validate();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a model's shapes are checked") {
    CHECK(complaint([](DecoderConfig&) {}) == "");
    CHECK(complaint([](DecoderConfig& c) { c.dim = 0; }) == "model.dim = 0: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.layers = -1; }) == "model.n_layers = -1: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.grouped().heads = 0; }) ==
          "model.n_heads = 0: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.grouped().kv_heads = 0; }) ==
          "model.n_kv_heads = 0: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.feed_forward.hidden = 0; }) ==
          "model.ffn_hidden = 0: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.vocab = 0; }) == "model.vocab_size = 0: must be at least 1");
}

TEST_CASE("norms after sublayers, and norms that add 1 to their weights, are RMSNorms") {
    using enum NormPlacement;
    const auto of = [](NormType type, NormPlacement placement, bool offset) {
        return complaint([=](DecoderConfig& c) {
            c.norm_type = type;
            c.norm_placement = placement;
            c.norm_offset = offset;
        });
    };
    for (const NormPlacement placement : {before, after, around})
        for (const bool offset : {false, true}) CHECK(of(NormType::rms_norm, placement, offset) == "");
    CHECK(of(NormType::layer_norm, before, false) == "");
    CHECK(of(NormType::layer_norm, after, true) ==
          "model.norm_type = \"layernorm\": must be \"rmsnorm\", because llama3 tiny has norms after its "
          "sublayers");
    CHECK(of(NormType::np_layer_norm, before, true) ==
          "model.norm_type = \"np_layernorm\": must be \"rmsnorm\", because llama3 tiny has norms that add 1 "
          "to "
          "their weights");
}

TEST_CASE("heads must fit, and the nearest valid numbers are named") {
    CHECK(complaint([](DecoderConfig& c) {
              c.grouped().heads = 7;
              c.grouped().head_dim = 0;
          }) == "model.n_heads = 7: must divide model.dim = 24 (nearest: 6 or 12)");
    CHECK(complaint([](DecoderConfig& c) {
              c.grouped().heads = 48;
              c.grouped().head_dim = 0;
          }) == "model.n_heads = 48: must divide model.dim = 24 (nearest: 12)");
    CHECK(complaint([](DecoderConfig& c) { c.grouped().kv_heads = 3; }) ==
          "model.n_kv_heads = 3: must divide model.n_heads = 4 (nearest: 2 or 4)");
    CHECK(complaint([](DecoderConfig& c) { c.grouped().kv_heads = 9; }) ==
          "model.n_kv_heads = 9: must divide model.n_heads = 4 (nearest: 4)");
    CHECK(complaint([](DecoderConfig& c) { c.grouped().head_dim = 5; }) ==
          "model.head_dim = 5: must be even, because RoPE rotates pairs (nearest: 6)");
}

TEST_CASE("RoPE rotates whole pairs of a part of a head, and the nearest valid part is named") {
    const auto part = [](double fraction, int64_t head_dim = 6) {
        return complaint([=](DecoderConfig& c) {
            c.grouped().rope_fraction = fraction;
            c.grouped().head_dim = head_dim;
        });
    };
    CHECK(part(1) == "");
    CHECK(part(2.0 / 3) == "");
    CHECK(part(0.4) == "");  // 2.4 columns, rounded down
    CHECK(part(0.5, 80) == "");
    CHECK(part(0.5) ==
          "model.partial_rotary_factor = 0.5: RoPE would rotate 3 of the 6 columns of a head; the "
          "number must be even and at least 2 (nearest: 0.6666666666666666)");
    CHECK(part(0.1, 8) ==
          "model.partial_rotary_factor = 0.1: RoPE would rotate 0 of the 8 columns of a head; "
          "the number must be even and at least 2 (nearest: 0.25)");
    CHECK(part(0.3, 128) == "");
    CHECK(part(0.29, 128) ==
          "model.partial_rotary_factor = 0.29: RoPE would rotate 37 of the 128 columns of a "
          "head; the number must be even and at least 2 (nearest: 0.296875)");
    CHECK(part(0) == "model.partial_rotary_factor = 0: must be greater than 0 (usual: 1)");
    CHECK(part(1.5) == "model.partial_rotary_factor = 1.5: must be at most 1, which is a whole head");
    // the nearest part is itself valid
    for (int64_t head_dim = 2; head_dim <= 256; head_dim += 2)
        for (const double wrong : {0.001, 0.21, 0.49, 0.77, 0.999}) {
            const std::string message = part(wrong, head_dim), nearest = "(nearest: ";
            if (message.empty()) continue;
            CAPTURE(head_dim, message);
            CHECK(part(std::stod(message.substr(message.find(nearest) + nearest.size())), head_dim) == "");
        }
}

TEST_CASE("RoPE of a part of a head changes neither parameters nor FLOPs") {
    DecoderConfig whole = tiny_config(), part = whole;
    part.grouped().rope_fraction = 1.0 / 3;
    CHECK(part.head_sizes().rotated_dim == 2);
    CHECK(part.parameters() == whole.parameters());
    CHECK(part.flops_per_token(64) == whole.flops_per_token(64));
}

TEST_CASE("what a message names as the nearest valid numbers is valid") {
    // all numbers in the parentheses at the end
    const auto named = [](const std::string& message) {
        std::vector<int64_t> numbers;
        for (size_t at = message.rfind('('); at < message.size(); ++at)
            if (std::isdigit(message[at]) != 0) {
                size_t digits = 0;
                numbers.push_back(std::stoll(message.substr(at), &digits));
                at += digits;
            }
        return numbers;
    };
    const auto of_heads = [](int64_t dim, int64_t heads) {
        return complaint([=](DecoderConfig& c) {
            c.dim = dim;
            c.grouped() = {.heads = heads, .kv_heads = heads, .head_dim = dim % heads == 0 ? dim / heads : 0};
        });
    };
    const auto of_kv_heads = [](int64_t heads, int64_t kv_heads) {
        return complaint(
            [=](DecoderConfig& c) { c.grouped() = {.heads = heads, .kv_heads = kv_heads, .head_dim = 8}; });
    };
    const auto of_groups = [](int64_t experts, int64_t groups) {
        return complaint(
            [=](DecoderConfig& c) { c.moe = {.experts = experts, .hidden = 8, .groups = groups}; });
    };
    const auto check = [&](const auto& complaint_of, int64_t n, int64_t most) {
        for (int64_t value = 1; value <= most; ++value) {
            const std::string message = complaint_of(n, value);
            if (message.empty() || message.find("head_dim") != std::string::npos) continue;
            CAPTURE(n, value, message);
            const std::vector<int64_t> near = named(message);
            CHECK((near.size() == 1 || near.size() == 2));
            for (const int64_t number : near) CHECK(complaint_of(n, number) == "");
        }
    };
    for (int64_t dim = 2; dim <= 50; dim += 2) check(of_heads, dim, dim + 3);
    for (int64_t heads = 1; heads <= 24; ++heads) check(of_kv_heads, heads, heads + 3);
    for (int64_t experts = 1; experts <= 24; ++experts) check(of_groups, experts, experts + 3);
    for (const int64_t experts : {126, 128, 130, 131, 192}) check(of_groups, experts, experts + 3);
    // there are more groups than there may be, but not too few experts
    CHECK(of_groups(7, 7) ==
          "model.moe.num_expert_groups = 7: there may be at most 64 groups, each of at least 2 experts, and "
          "there are 7 experts (largest: 1)");
    CHECK_THAT(of_groups(130, 65), Catch::EndsWith("and there are 130 experts (largest: 26)"));
    CHECK_THAT(of_groups(12, 7), Catch::EndsWith("must divide model.moe.num_experts = 12 (nearest: 6)"));
}

TEST_CASE("experts, groups and choices must fit each other") {
    const auto of_experts = [](const std::function<void(MoeConfig&)>& change) {
        return complaint([&](DecoderConfig& c) {
            c.moe = {.experts = 12, .top_k = 2, .hidden = 8, .groups = 3, .kept_groups = 2};
            change(c.moe);
        });
    };
    CHECK(of_experts([](MoeConfig&) {}) == "");
    CHECK(of_experts([](MoeConfig& m) { m.top_k = 8; }) == "");
    CHECK(of_experts([](MoeConfig& m) { m.top_k = 9; }) ==
          "model.moe.top_k = 9: must be at most 8, the number of experts that may be chosen");
    CHECK(of_experts([](MoeConfig& m) { m.top_k = 0; }) == "model.moe.top_k = 0: must be at least 1");
    CHECK(of_experts([](MoeConfig& m) { m.hidden = 0; }) == "model.moe.hidden = 0: must be at least 1");
    CHECK(of_experts([](MoeConfig& m) { m.groups = 5; }) ==
          "model.moe.num_expert_groups = 5: must divide model.moe.num_experts = 12 (nearest: 4 or 6)");
    CHECK(of_experts([](MoeConfig& m) { m.groups = 12; }) ==
          "model.moe.num_expert_groups = 12: there may be at most 64 groups, each of at least 2 experts, and "
          "there are 12 experts (largest: 6)");
    CHECK(of_experts([](MoeConfig& m) { m.kept_groups = 4; }) ==
          "model.moe.num_limited_groups = 4: must be at most model.moe.num_expert_groups = 3");
    CHECK(
        of_experts([](MoeConfig& m) { m.biases = true; }) ==
        "moe.biases = true: experts have biases only if the rows of their gate and up projections take turns "
        "in one matrix (moe.gate_interleaved)");
    CHECK(of_experts([](MoeConfig& m) { m.shared_gate = true; }) ==
          "model.moe.shared_gate = true: there are no shared experts, which it is for; set "
          "model.moe.num_shared_experts = 1 too");
    CHECK(of_experts([](MoeConfig& m) { m.gate = {.activation = Activation::gelu_tanh, .alpha = 1.702}; }) ==
          "moe.gate_alpha = 1.702: only moe.activation = \"silu\" has it; others need 1");
    CHECK(of_experts([](MoeConfig& m) { m.scale = 0; }) ==
          "model.moe.route_scale = 0: must be greater than 0 (usual: 1)");
    CHECK(of_experts([](MoeConfig& m) { m.balance_rate = -1; }) ==
          "model.moe.load_balance_coeff = -1: must be at least 0 (usual: 1e-3)");
    CHECK(of_experts([](MoeConfig& m) { m.balance_rate = 0; }) == "");
    CHECK(of_experts([](MoeConfig& m) { m.sequence_balance = 1e-4; }) == "");
    CHECK(of_experts([](MoeConfig& m) { m.sequence_balance = -1e-4; }) ==
          "model.moe.sequence_balance_coeff = -0.0001: must be at least 0 (usual: 1e-4)");
    // dense layers are checked only if there are some
    const auto without_width = [](int64_t first) {
        return complaint([&](DecoderConfig& c) {
            c.moe = {.experts = 2, .hidden = 8};
            c.moe_layers.first = first;
            c.feed_forward.hidden = 0;
        });
    };
    CHECK(without_width(0) == "");
    CHECK(without_width(1) == "model.ffn_hidden = 0: must be at least 1");
}

TEST_CASE("constants must be positive numbers") {
    for (const double wrong : {0.0, -1.0, std::nan("")}) {
        CHECK_THAT(complaint([&](DecoderConfig& c) { c.norm_eps = wrong; }),
                   Catch::StartsWith("model.norm_eps = ") &&
                       Catch::EndsWith(": must be greater than 0 (usual: 1e-5)"));
        CHECK_THAT(complaint([&](DecoderConfig& c) { c.rope.theta = wrong; }),
                   Catch::StartsWith("model.rope_theta = ") &&
                       Catch::EndsWith(": must be greater than 0 (usual: 500000)"));
    }
}

TEST_CASE("Llama's feed-forward width") {
    CHECK(FfnRule{}.width(256) == 768);
    CHECK(FfnRule{1.3, 1024}.width(4096) == 14336);
    CHECK(FfnRule{1.3, 4096}.width(8192) == 28672);
    CHECK(FfnRule{1.2, 4096}.width(16384) == 53248);
    CHECK(FfnRule{1, 1}.width(3) == 8);
    CHECK(FfnRule{1, 256}.width(1) == 256);
}

TEST_CASE("decoder configuration: the numbers of layers with experts") {
    DecoderConfig model = find_flavor(find_family("qwen3"), "debugmodel_moe");
    for (const int64_t period : {0, 1, 2, 3, 9})
        for (const int64_t first : {0, 1, 2, 7, 8, 20})
            for (const int64_t mtp : {0, 2}) {
                CAPTURE(period, first, mtp);
                model.moe_layers = {.period = period, .first = first};
                model.mtp.layers = mtp;
                int64_t row = 0;
                for (int64_t layer = 0; layer < model.all_layers(); ++layer) {
                    CHECK(model.moe_row(layer) == row);
                    if (!model.layer(layer).is_dense()) ++row;
                }
                CHECK(model.moe_rows() == row);
                CHECK(int64_t(model.layers_with_experts().size()) == row);
            }
    model.mtp.layers = 0;
    model.moe_layers = {.first = model.layers};
    CHECK_FALSE(model.has_experts());
    CHECK_THAT(ModelConfig(model)->shapes(), !Catch::Contains("experts"));
    model.moe_layers = {.first = model.layers - 1};
    CHECK(model.has_experts());
    CHECK_THAT(ModelConfig(model)->shapes(), Catch::Contains(" experts of "));
    model.moe.experts = 0;
    CHECK(model.moe_rows() == 0);
    CHECK_FALSE(model.has_experts());
}

TEST_CASE("a model's parameters are counted in one layer of each kind, and are those of the whole decoder") {
    for (int attention = 0; attention < attention_kinds; ++attention)
        for (int experts = 0; experts < expert_kinds; ++experts)
            for (const int choice : {0, 1, 2, 3}) {
                CAPTURE(attention, experts, choice);
                DecoderConfig model = tiny_config(5, choice % 2 == 1);
                set_attention(model, attention);
                set_experts(model, experts);
                if (choice > 1) set_layer_choices(model, choice == 2 ? "110" : "01101");
                if (choice == 1) set_two_ropes(model);
                model.mtp.layers = choice;
                model.validate();
                const Decoder decoder(model, {}, 1);
                int64_t all = 0, active = 0;
                for (const Storage* storage : decoder.parameters().model())
                    for (const Param& param : storage->params()) {
                        if (param.is_exact) continue;
                        all += param.shape.count();
                        const bool is_of_experts = param.name.find(".moe.experts.") != std::string::npos;
                        active += is_of_experts ? param.shape.count() / model.moe.experts * model.moe.top_k
                                                : param.shape.count();
                    }
                CHECK(model.parameters() == all);
                CHECK(model.active_parameters() == active);
                // the output projection is used once more for each depth, and the table is only looked up
                const int64_t products = model.mtp.layers - (model.tied ? 0 : 1);
                CHECK(model.flops_per_token(64) == 6.0 * double(active + products * model.vocab * model.dim) +
                                                       model.score_flops_per_token(64));
            }
}

TEST_CASE("models with more parameters than can be counted are refused before their number is an integer") {
    constexpr int64_t most = int64_t(1) << 24;
    const std::string refusal =
        " parameters are more than the maximum of 1e15; reduce model.dim, "
        "model.n_layers or model.ffn_hidden";
    // one matrix is too large: heads of 2^24 columns together, or experts
    CHECK(complaint([](DecoderConfig& c) { c.dim = c.grouped().heads = c.grouped().kv_heads = most; }) ==
          "model: 1.7e+15" + refusal);
    CHECK(complaint([](DecoderConfig& c) {
              c.dim = c.grouped().heads = c.grouped().kv_heads = c.grouped().head_dim = most;
          }) == "model: 4.7e+21" + refusal);
    CHECK(complaint([](DecoderConfig& c) {
              c.dim = most;
              c.moe = {.experts = 1 << 16, .hidden = most};
          }) == "model: 1.8e+19" + refusal);
    // all matrices are small enough, and there are too many of them
    CHECK(complaint([](DecoderConfig& c) {
              c.dim = 1 << 20;
              c.feed_forward.hidden = 1 << 20;
              c.layers = 1 << 16;
          }) == "model: 2.2e+17" + refusal);
    CHECK(complaint([](DecoderConfig& c) {
              c.dim = 1 << 20;
              c.feed_forward.hidden = 1 << 20;
          }) == "");
}

TEST_CASE("sublayers side by side have no norms after them, and norms after sublayers need no factor") {
    CHECK(
        complaint([](DecoderConfig& c) {
            c.parallel_block = true;
            c.norm_placement = NormPlacement::around;
        }) ==
        "model.parallel_block = true: llama3 tiny has norms after its sublayers, and sublayers side by side "
        "have only one norm before them; set model.parallel_block = false");
    CHECK(
        complaint([](DecoderConfig& c) {
            c.residual_scale = 0.5;
            c.norm_placement = NormPlacement::after;
        }) ==
        "model.residual_scale = 0.5: the sublayers of llama3 tiny end with norms and do not begin with them, "
        "and the weights of these norms contain such a factor; set model.residual_scale = 1");
    CHECK(complaint([](DecoderConfig& c) {
              c.residual_scale = 0.5;
              c.norm_placement = NormPlacement::around;
          }) == "");
}

TEST_CASE("factors must be greater than 0, but that of scores may be 0") {
    CHECK(complaint([](DecoderConfig& c) { set_scales(c); }) == "");
    CHECK(complaint([](DecoderConfig& c) { c.embedding_scale = 0; }) ==
          "model.embedding_scale = 0: must be greater than 0 (usual: 1)");
    CHECK(complaint([](DecoderConfig& c) { c.residual_scale = -0.5; }) ==
          "model.residual_scale = -0.5: must be greater than 0 (usual: 1)");
    CHECK(complaint([](DecoderConfig& c) { c.logits_scale = 0; }) ==
          "model.logits_scale = 0: must be greater than 0 (usual: 1)");
    CHECK(complaint([](DecoderConfig& c) { c.grouped().scale = -1; }) ==
          "model.attention_scale = -1: must be at least 0 (usual: 0, which means head_dim^-1/2)");
}
