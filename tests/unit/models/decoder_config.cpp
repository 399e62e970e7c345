// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/decoder_config.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"

#include <cmath>
#include <functional>

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
    CHECK(complaint([](DecoderConfig& c) { c.attention.heads = 0; }) ==
          "model.n_heads = 0: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.attention.kv_heads = 0; }) ==
          "model.n_kv_heads = 0: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.feed_forward.hidden = 0; }) ==
          "model.ffn_hidden = 0: must be at least 1");
    CHECK(complaint([](DecoderConfig& c) { c.vocab = 0; }) == "model.vocab_size = 0: must be at least 1");
}

TEST_CASE("heads must fit, and the nearest valid numbers are named") {
    CHECK(complaint([](DecoderConfig& c) {
              c.attention.heads = 7;
              c.attention.head_dim = 0;
          }) == "model.n_heads = 7: must divide model.dim = 24 (nearest: 6 or 8)");
    CHECK(complaint([](DecoderConfig& c) {
              c.attention.heads = 48;
              c.attention.head_dim = 0;
          }) == "model.n_heads = 48: must divide model.dim = 24 (nearest: 24)");
    CHECK(complaint([](DecoderConfig& c) { c.attention.kv_heads = 3; }) ==
          "model.n_kv_heads = 3: must divide model.n_heads = 4 (nearest: 2 or 4)");
    CHECK(complaint([](DecoderConfig& c) { c.attention.kv_heads = 9; }) ==
          "model.n_kv_heads = 9: must divide model.n_heads = 4 (nearest: 4)");
    CHECK(complaint([](DecoderConfig& c) { c.attention.head_dim = 5; }) ==
          "model.head_dim = 5: must be even, because RoPE rotates pairs (nearest: 6)");
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
