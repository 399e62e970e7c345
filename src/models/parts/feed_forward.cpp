// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/parts/feed_forward.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "coeus/layers/feed_forward.hpp"
#include "coeus/layers/shared_expert.hpp"
#include "coeus/models/declare.hpp"
#include "coeus/models/hub_names.hpp"

#include <array>
#include <utility>
#include <vector>

namespace coeus {

int64_t FfnRule::width(int64_t dim) const {
    const int64_t quotient =
        8 * dim / 3;  // rounded down before the multiplication, as in the published widths
    return round_up(int64_t(multiplier * double(quotient)), multiple_of);
}

void require_valid(const FeedForwardConfig& feed_forward) {
    if (feed_forward.hidden < 1)
        throw ConfigError("model.ffn_hidden = {}: must be at least 1", feed_forward.hidden);
}

namespace {

std::vector<Param> gate_and_up(const Declare& declare, int64_t hidden, const std::string& name) {
    const auto in = [&](const char* which, WeightRole role) {
        Param param = declare.linear(name + which, {hidden, declare.model().dim}, role, Split::rows);
        param.together = columns_together(hidden, declare.parameters().place().tp);
        return param;
    };
    return {in(".w1", WeightRole::gate), in(".w3", WeightRole::up)};
}

}  // namespace

std::vector<Param> first_weights(const Declare& declare, const FeedForwardConfig& feed_forward) {
    return gate_and_up(declare, feed_forward.hidden, "feed_forward");
}

Output input_form(const Declare& declare, const FeedForwardConfig& feed_forward, Output output) {
    return output_for(declare, first_weights(declare, feed_forward), output);
}

namespace {

// The matrices of a layer, and where the input of the last one goes.
struct Matrices {
    LinearWeight w13;
    const Storage& w2;
    Output activated;
};

Matrices declare_matrices(const Declare& declare, const FeedForwardConfig& feed_forward, Output activated,
                          const std::string& name) {
    LinearWeight w13 = declare.add_stack(gate_and_up(declare, feed_forward.hidden, name));
    Param down = declare.linear(name + ".w2", {declare.model().dim, feed_forward.hidden}, WeightRole::down,
                                Split::cols);
    down.together = columns_together(feed_forward.hidden, declare.parameters().place().tp);
    return {std::move(w13), declare.parameters().add(down), output_for(declare, {down}, activated)};
}

}  // namespace

std::unique_ptr<Sublayer> build_feed_forward(const Declare& declare, const FeedForwardConfig& feed_forward,
                                             LinearInput input, Output activated, const std::string& name) {
    const Matrices m = declare_matrices(declare, feed_forward, activated, name);
    return std::make_unique<FeedForward>(m.w13, m.w2, input, m.activated, feed_forward.activation);
}

std::unique_ptr<Sublayer> build_gated_shared_expert(const Declare& declare,
                                                    const FeedForwardConfig& feed_forward, LinearInput input,
                                                    Output activated, const std::string& name,
                                                    const std::string& gate) {
    const Matrices m = declare_matrices(declare, feed_forward, activated, name);
    Param of_gate = declare.weight(gate, {1, declare.model().dim}, WeightRole::router, Split::partial);
    of_gate.sums_products = true;
    return std::make_unique<SharedExpert>(TokenLinear(declare.parameters().add(std::move(of_gate)), input),
                                          m.w13, m.w2, input, m.activated, feed_forward.activation);
}

namespace {

constexpr std::array names_of_feed_forward = {HubName{"feed_forward.w1.weight", "mlp.gate_proj.weight"},
                                              HubName{"feed_forward.w2.weight", "mlp.down_proj.weight"},
                                              HubName{"feed_forward.w3.weight", "mlp.up_proj.weight"}};

}  // namespace

std::span<const HubName> feed_forward_hub_names() {
    return names_of_feed_forward;
}

}  // namespace coeus
