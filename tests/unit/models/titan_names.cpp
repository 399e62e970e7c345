// SPDX-License-Identifier: Apache-2.0
// Names of parameters in torchtitan of 2026.
#include "coeus/models/titan_names.hpp"

#include "support/catch.hpp"

using namespace coeus;

TEST_CASE("titan names: the output, q, k, v and experts have other names in torchtitan of 2026") {
    CHECK(newest_titan_name("output.weight") == "lm_head.weight");
    CHECK(newest_titan_name("layers.0.attention.wq.weight") == "layers.0.attention.qkv_linear.wq.weight");
    CHECK(newest_titan_name("layers.0.attention.wv.bias") == "layers.0.attention.qkv_linear.wv.bias");
    CHECK(newest_titan_name("layers.1.moe.experts.w1") == "layers.1.moe.routed_experts.inner_experts.w1_EFD");
    CHECK(newest_titan_name("layers.1.moe.experts.mlp2_bias") ==
          "layers.1.moe.routed_experts.inner_experts.mlp2_bias_ED");
    CHECK(newest_titan_name("layers.1.moe.expert_bias") == "layers.1.moe.expert_bias_E");
    for (const char* name : {"tok_embeddings.weight", "layers.0.attention.wo.weight",
                             "layers.0.attention.wq_a.weight", "layers.0.attention_norm.weight",
                             "layers.1.moe.shared_experts.w1.weight", "layers.1.moe.router.gate.weight"})
        CHECK(newest_titan_name(name) == name);
}
