// SPDX-License-Identifier: Apache-2.0
// Factors of the embedding, of what sublayers add, of scores and of logits: the model is that whose weights
// contain the factors, wherever they are applied.
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

// The factor by which a parameter of the model without factors is larger.
double factor_of(const DecoderConfig& config, const std::string& name) {
    const double usual_scores = config.is_latent() ? 1 : 1 / std::sqrt(double(config.grouped().head_dim));
    if (name == "tok_embeddings.weight") return config.embedding_scale;
    if (name == "output.weight") return config.logits_scale;
    if (name.ends_with("attention.wq.weight") || name.ends_with("attention.wq.bias"))
        return config.is_latent() ? 1 : config.grouped().scale / usual_scores;
    // a norm after a sublayer removes a factor of its result, and its weight may contain one
    const bool is_around = config.norm_placement == NormPlacement::around;
    for (const char* last :
         {"attention.wo.weight", "attention.wo.bias", "feed_forward.w2.weight", "moe.experts.w2",
          "moe.experts.mlp2_weight", "moe.experts.mlp2_bias", "moe.shared_experts.w2.weight"})
        if (name.ends_with(last)) return is_around ? 1 : config.residual_scale;
    if (is_around && name.find(".post_") != std::string::npos) return config.residual_scale;
    return 1;
}

// Calls f(name, block) for each block of each trained parameter.
template <class F>
void for_each_block(TestModel& model, Tensor Storage::*which, const F& f) {
    for (const Storage& storage : model.parameters().storages())
        for (const Param& param : storage.params())
            if (param.trainable)
                for (const HeldBlock& block : blocks_of(storage, param, storage.*which))
                    f(param.name, block.local);
}

// Random weights, times the factors if `with_factors`.
void set_weights(TestModel& model, const DecoderConfig& config, bool with_factors) {
    for_each_block(model, &Storage::master, [&](const std::string& name, const Tensor& block) {
        const RandomStream random(5, name);
        const double factor = with_factors ? factor_of(config, name) : 1;
        for (int64_t i = 0; i < block.count(); ++i)
            set_element(block, i, factor * 0.4 * normal_quantile(random.uniform(uint64_t(i))));
    });
    model.renew_weights();
}

DecoderConfig without_factors(DecoderConfig config) {
    config.embedding_scale = config.residual_scale = config.logits_scale = 1;
    if (!config.is_latent()) config.grouped().scale = 0;
    return config;
}

}  // namespace

TEST_CASE("factors: a model is that whose weights contain them, with its loss, gradients and logits") {
    for (int kind = 0; kind < std::max(attention_kinds, expert_kinds); ++kind)
        for (const NormType norm : {NormType::rms_norm, NormType::layer_norm, NormType::np_layer_norm}) {
            DecoderConfig config = tiny_config(3);
            set_attention(config, kind % attention_kinds);
            // norms of heads would remove a factor of queries
            if (!config.is_latent()) config.grouped().qk_norm = QkNorm::none;
            set_experts(config, kind % expert_kinds);
            set_scales(config);
            config.norm_offset = false;
            if (config.norm_placement == NormPlacement::before) config.norm_type = norm;
            config.norm_eps = 0.05;
            config.z_loss_weight = kind % 2 == 0 ? 0.03 : 0;
            if (kind % 3 == 2) set_parallel(config);
            CAPTURE(kind, int(norm));
            TestBatch batch = TestBatch(2, 9, config.vocab).split_documents(5, true);
            const StateTypes types = {Dtype::f64, Dtype::f64};
            TestModel model(config, types, {2, 9}), plain(without_factors(config), types, {2, 9});
            set_weights(model, config, false);
            set_weights(plain, config, true);
            CHECK(normalised_error(values(model.logits(batch)), values(plain.logits(batch))) <= 1e-12);
            for (TestModel* one : {&model, &plain}) {
                one->zero_gradients();
                one->forward_backward(batch);
            }
            CHECK(relatively_close(model.scalars.loss, plain.scalars.loss, 1e-12));
            std::vector<double> ours, theirs;
            for_each_block(model, &Storage::gradient, [&](const std::string&, const Tensor& block) {
                for (int64_t i = 0; i < block.count(); ++i) ours.push_back(element(block, i));
            });
            for_each_block(plain, &Storage::gradient, [&](const std::string& name, const Tensor& block) {
                for (int64_t i = 0; i < block.count(); ++i)
                    theirs.push_back(factor_of(config, name) * element(block, i));
            });
            CHECK(normalised_error(ours, theirs) <= 1e-11);
        }
}
