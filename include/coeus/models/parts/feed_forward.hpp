// SPDX-License-Identifier: Apache-2.0
// The dense feed-forward layer as a part of a model: its fields, and what builds the layer
// (layers/feed_forward.hpp).
#pragma once

#include "coeus/kernels/routing.hpp"
#include "coeus/models/config_field.hpp"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coeus {

class Declare;
class LinearInput;
class Sublayer;
struct HubName;
struct Output;
struct Param;

/// Llama's feed-forward width: round_up(multiplier * int(8 dim / 3), multiple_of).
struct FfnRule {
    double multiplier = 1;
    int64_t multiple_of = 256;

    int64_t width(int64_t dim) const;
    bool operator==(const FfnRule&) const = default;
};

constexpr auto names_of(Activation) {
    return std::array{EnumName<Activation>{"silu", Activation::silu},
                      EnumName<Activation>{"gelu_tanh", Activation::gelu_tanh}};
}

struct FeedForwardConfig {
    int64_t hidden = 0;  ///< width between the matrices
    Activation activation = Activation::silu;

    bool operator==(const FeedForwardConfig&) const = default;
};

template <class Visit>
void for_each_field(ConfigOf<FeedForwardConfig> auto& f, Visit&& visit) {
    // 0 if all layers have experts
    visit(ConfigField{.name = "ffn_hidden", .hub = "intermediate_size", .is_required = true, .least = 0},
          f.hidden);
    visit(ConfigField{.name = "ffn_activation", .kind = FieldKind::constant, .is_later = true}, f.activation);
}

/// ConfigError if there is no width.
void require_valid(const FeedForwardConfig& feed_forward);

/// The weights that multiply the input.
std::vector<Param> first_weights(const Declare& declare, const FeedForwardConfig& feed_forward);
/// The form in which the norm before the layer should give its output, which goes where `output` says.
Output input_form(const Declare& declare, const FeedForwardConfig& feed_forward, Output output);
/// Declares the parameters, with torchtitan's names, and builds the layer. `activated` says where the output
/// of the activation function goes.
std::unique_ptr<Sublayer> build_feed_forward(const Declare& declare, const FeedForwardConfig& feed_forward,
                                             LinearInput input, Output activated,
                                             const std::string& name = "feed_forward");
/// The same for a shared expert whose result has a gate, a parameter of this name (layers/shared_expert.hpp).
std::unique_ptr<Sublayer> build_gated_shared_expert(const Declare& declare,
                                                    const FeedForwardConfig& feed_forward, LinearInput input,
                                                    Output activated, const std::string& name,
                                                    const std::string& gate);

/// Its tensors in usual Hugging Face folders.
std::span<const HubName> feed_forward_hub_names();

}  // namespace coeus
