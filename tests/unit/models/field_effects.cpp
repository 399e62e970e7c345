// SPDX-License-Identifier: Apache-2.0
// What a model's description says reaches its layers: each field on which no shape depends changes the
// logits, in every kind of model that can have it, also with documents. Golden values have only the
// combinations of published models; many ranks and gradients cannot see a field that nothing reads.
#include "coeus/base/random.hpp"
#include "coeus/models/config_fields.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"
#include "unit/models/change.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

// Fields that only some models can have, or that change nothing in others.
using Condition = std::function<bool(const DecoderConfig&)>;
const std::map<std::string, Condition>& conditions() {
    const Condition never = [](const DecoderConfig&) { return false; },
                    latent = [](const DecoderConfig&m) { return m.is_latent(); },
                    others = [](const DecoderConfig&m) { return !m.is_latent(); },
                    usual_norms =
                        [](const DecoderConfig&m) {
                            return m.norm_placement == NormPlacement::before && !m.norm_offset;
                        },
                    windowed = [](const DecoderConfig&m) { return m.head_sizes().window > 0; },
                    without_rope = [](const DecoderConfig&m) { return m.without_rope.period > 0; },
                    warm = [](const DecoderConfig&m) { return !m.is_latent() && m.grouped().temperature; },
                    experts = [](const DecoderConfig&m) { return m.moe.experts > 0; },
                    groups = [](const DecoderConfig&m) { return m.moe.groups > 1; },
                    clamped = [](const DecoderConfig&m) { return m.moe.gate.limit > 0; },
                    scaled = [](const DecoderConfig&m) { return m.moe.experts > 0 && !m.moe.biases; },
                    with_alpha =
                        [](const DecoderConfig&m) {
                            return m.moe.experts > 0 && m.moe.gate.activation == Activation::silu;
                        },
                    without_alpha =
                        [](const DecoderConfig&m) { return m.moe.experts > 0 && m.moe.gate.alpha == 1; },
                    dense = [](const DecoderConfig&m) { return m.moe_rows() < m.layers; };
    static const std::map<std::string, Condition> all = {
        {"partial_rotary_factor", others},
        {"norm_type", usual_norms},
        {"latent_norm_eps", latent},
        {"window_period", windowed},
        {"window_first_layer", windowed},
        {"window_layers", windowed},
        {"attention_chunk", others},
        {"nope_period", others},
        {"nope_first_layer", without_rope},
        {"nope_layers", without_rope},
        {"window_rope_theta", others},
        {"window_rope_scaling", others},
        {"temperature_scale", warm},
        {"temperature_floor", warm},
        {"temperature_offset", warm},
        {"temperature_everywhere", warm},
        {"moe.top_k", experts},
        {"moe.score_func", experts},
        {"moe.route_norm", [](const DecoderConfig& m) { return m.moe.experts > 0 && m.moe.top_k > 1; }},
        {"moe.route_scale", experts},
        {"moe.num_expert_groups", never},  // it must divide the number of experts
        {"moe.num_limited_groups", groups},
        {"moe.gate_limit", clamped},
        {"moe.gate_alpha", with_alpha},
        {"residual_scale", [](const DecoderConfig& m) { return m.norm_placement != NormPlacement::after; }},
        {"moe.activation", without_alpha},
        {"ffn_activation", dense},
        {"moe.gate_shift", experts},
        {"moe.score_before_experts", scaled},
        {"moe.load_balance_coeff", never},  // of updates
    };
    return all;
}

// Logits of a sequence of documents that end in windows and chunks, with the same random weights for every
// model that has these shapes.
std::vector<double> logits_of(const DecoderConfig& config) {
    TestBatch batch = TestBatch(1, 13, config.vocab).split_documents(5, true);
    TestModel model(config, {Dtype::f64, Dtype::f64}, {batch.sequences, batch.seq_len});
    for (const Storage& storage : model.parameters().storages())
        for (const Param& param : storage.params()) {
            const RandomStream random(5, param.name);
            uint64_t count = 0;
            // initial values of norms are such that an offset has no effect
            const bool is_norm = param.role == ParamRole::norm;
            for (const HeldBlock& block : blocks_of(storage, param, storage.master))
                for (int64_t i = 0; i < block.local.count(); ++i)
                    set_element(block.local, i,
                                (is_norm ? 1 : element(block.local, i)) +
                                    0.4 * normal_quantile(random.uniform(count++)));
        }
    model.renew_weights();
    return values(model.logits(batch));
}

std::vector<DecoderConfig> kinds() {
    std::vector<DecoderConfig> all;
    for (int number = 0; number < std::max(attention_kinds, expert_kinds); ++number) {
        all.push_back(tiny_config(4));
        set_attention(all.back(), number % attention_kinds);
        set_experts(all.back(), number % expert_kinds);
    }
    // latent attention with a window, which no published model has
    all.push_back(all[3]);
    all.back().latent().window = 3;
    all.push_back(tiny_config(4));
    set_two_ropes(all.back());
    return all;
}

}  // namespace

TEST_CASE("every constant of a model's description changes its logits, wherever it can be set") {
    std::set<std::string> seen;
    for (const DecoderConfig& config : kinds()) {
        const std::vector<double> plain = logits_of(config);
        int number = 0;
        for_each_field(config, [&](const ConfigField& field, const auto&) {
            const int of_field = number++;
            if (field.kind != FieldKind::constant) return;
            DecoderConfig other = config;
            int at = 0;
            for_each_field(other, [&](const ConfigField&, auto& value) {
                if (at++ == of_field) change(value);
            });
            const auto condition = conditions().find(field.name);
            if (condition != conditions().end() && !condition->second(config)) return;
            CAPTURE(describe_model(config), field.name);
            REQUIRE_NOTHROW(other.validate());
            const std::vector<double> changed = logits_of(other);
            double largest = 0;
            for (size_t i = 0; i < plain.size(); ++i)
                largest = worse_of(largest, std::fabs(plain[i] - changed[i]));
            CHECK(largest > 1e-9);
            seen.insert(field.name);
        });
    }
    for (const auto& [name, condition] : conditions())
        if (name != "moe.num_expert_groups" && name != "moe.load_balance_coeff") CHECK(seen.contains(name));
}
