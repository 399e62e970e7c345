// SPDX-License-Identifier: Apache-2.0
// Keys of config.json that describe experts, and how they are balanced.
#include "coeus/models/hub_keys.hpp"

namespace coeus {

double router_aux_loss_coef(const DecoderConfig& model) {
    return model.moe.sequence_balance * double(model.moe_rows()) / double(model.moe.top_k);
}

void set_router_aux_loss_coef(DecoderConfig& model, double coefficient) {
    const int64_t layers = model.moe_rows();
    model.moe.sequence_balance = layers > 0 ? coefficient * double(model.moe.top_k) / double(layers) : 0;
}

void HubKeys::balance(DecoderConfig& config, double usual) {
    constexpr double most = 0.1;
    const char* key = "router_aux_loss_coef";
    double coefficient = usual;
    if (out_) {
        coefficient = without_last_digits(router_aux_loss_coef(config));
        if (config.moe.sequence_balance > 0 || !config.moe.has_balance_bias()) number(key, coefficient);
        return;
    }
    number(key, coefficient);
    if (!(coefficient >= 0)) (*in_)[key].reject("must be at least 0");
    bool is_added = false;
    truth("output_router_logits", is_added);
    if (!is_added && coefficient > most) coefficient = usual;
    config.moe.balance_rate = 0;
    set_router_aux_loss_coef(config, coefficient);
}

void HubKeys::shared_experts(MoeConfig& moe, const HubExperts& names) {
    const char* key = names.shared;
    int64_t shared = moe.hidden > 0 ? moe.shared_hidden / moe.hidden : 0;
    integer(names.experts, moe.experts);
    integer(names.top_k, moe.top_k);
    integer("moe_intermediate_size", moe.hidden);
    if (in_ && is_null(*in_, key)) shared = 0;
    integer(key, shared, 0);
    moe.shared_hidden = shared * moe.hidden;
    constexpr int64_t most = ConfigField{}.most;
    if (in_ && in_->contains(key) && moe.shared_hidden > most)
        (*in_)[key].reject(
            fmt::format("must be at most {} (its product with moe_intermediate_size = {} must be "
                        "at most {})",
                        most / moe.hidden, moe.hidden, most));
    if (names.scale) number(names.scale, moe.scale);
}

void HubKeys::expert_groups(MoeConfig& moe) {
    truth("norm_topk_prob", moe.normalise);
    integer("n_group", moe.groups);
    integer("topk_group", moe.kept_groups);
}

}  // namespace coeus
