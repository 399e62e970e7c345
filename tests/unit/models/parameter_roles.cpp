// SPDX-License-Identifier: Apache-2.0
// The role of every parameter of every family, by which optimizers choose: Muon takes matrices only, and
// groups and the exclusions of weight decay may name roles.
#include "coeus/models/decoder.hpp"
#include "coeus/models/registry.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <map>
#include <regex>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

// By name, without the number of the layer.
const std::map<std::string, ParamRole> roles = {
    {"tok_embeddings.weight", ParamRole::embedding},
    {"output.weight", ParamRole::output},
    {"norm.weight", ParamRole::norm},
    {"attention_norm.weight", ParamRole::norm},
    {"ffn_norm.weight", ParamRole::norm},
    {"post_attention_norm.weight", ParamRole::norm},
    {"post_ffn_norm.weight", ParamRole::norm},
    {"attention.wq.weight", ParamRole::matrix},
    {"attention.wk.weight", ParamRole::matrix},
    {"attention.wv.weight", ParamRole::matrix},
    {"attention.wo.weight", ParamRole::matrix},
    {"attention.wq.bias", ParamRole::bias},
    {"attention.wk.bias", ParamRole::bias},
    {"attention.wv.bias", ParamRole::bias},
    {"attention.wo.bias", ParamRole::bias},
    {"attention.sinks", ParamRole::bias},
    {"attention.q_norm.weight", ParamRole::norm},
    {"attention.k_norm.weight", ParamRole::norm},
    {"attention.wq_a.weight", ParamRole::matrix},
    {"attention.wq_b.weight", ParamRole::matrix},
    {"attention.wkv_a.weight", ParamRole::matrix},
    {"attention.wkv_b.weight", ParamRole::matrix},
    {"attention.kv_norm.weight", ParamRole::norm},
    {"feed_forward.w1.weight", ParamRole::matrix},
    {"feed_forward.w2.weight", ParamRole::matrix},
    {"feed_forward.w3.weight", ParamRole::matrix},
    {"moe.router.gate.weight", ParamRole::matrix},
    {"moe.router.gate.bias", ParamRole::bias},
    {"moe.expert_bias", ParamRole::bias},
    {"moe.experts.w1", ParamRole::matrix},
    {"moe.experts.w2", ParamRole::matrix},
    {"moe.experts.w3", ParamRole::matrix},
    {"moe.experts.mlp1_weight", ParamRole::matrix},
    {"moe.experts.mlp1_bias", ParamRole::bias},
    {"moe.experts.mlp2_weight", ParamRole::matrix},
    {"moe.experts.mlp2_bias", ParamRole::bias},
    {"moe.shared_gate.weight", ParamRole::matrix},
    {"moe.shared_experts.w1.weight", ParamRole::matrix},
    {"moe.shared_experts.w2.weight", ParamRole::matrix},
    {"moe.shared_experts.w3.weight", ParamRole::matrix},
    {"enorm.weight", ParamRole::norm},
    {"hnorm.weight", ParamRole::norm},
    {"eh_proj.weight", ParamRole::matrix},
    {"mtp_norm.weight", ParamRole::norm},
};

}  // namespace

TEST_CASE("every parameter of every family has the role of its name") {
    std::set<std::string> seen;
    const auto look = [&](const DecoderConfig& config) {
        const Decoder decoder(config, {}, 1);
        for (const Storage& storage : decoder.parameters().storages())
            for (const Param& param : storage.params()) {
                const std::string name =
                    std::regex_replace(param.name, std::regex("^(mtp_)?layers\\.\\d+\\."), "");
                CAPTURE(config.family, config.flavor, param.name);
                const auto role = roles.find(name);
                CHECK(role != roles.end());
                if (role != roles.end()) CHECK(param.role == role->second);
                seen.insert(name);
            }
    };
    for (const ModelFamily& family : model_families())
        if (!family.own_block) look(family.flavors.front());  // others were registered by another test
    for (int number = 0; number < attention_kinds; ++number) {
        DecoderConfig config = tiny_config(3);
        config.mtp.layers = 1;
        set_attention(config, number);
        set_experts(config, number % expert_kinds);
        look(config);
    }
    for (const auto& [name, role] : roles) {
        CAPTURE(name);
        CHECK(seen.contains(name));
    }
}
