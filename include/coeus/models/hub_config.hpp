// SPDX-License-Identifier: Apache-2.0
// Between the keys of config.json, in Hugging Face folders, and the fields of a model: the usual keys, and
// what the families need for their own ones. hub_model.hpp reads the file.
#pragma once

#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"

#include <optional>
#include <span>

namespace coeus {

/// A key that must have one value or be absent. It is written with that value.
struct HubConstant {
    const char* key;
    Json value;
    const char* why;                ///< "biases are not implemented yet"
    const char* synonym = nullptr;  ///< another name of the value
};
/// The key of the activation function, which must be the SiLU of SwiGLU.
inline HubConstant silu_alone() {
    return {"hidden_act", "silu", "others are not implemented yet", "swish"};
}

/// Reads fields by their usual keys; fields whose key is absent are not changed. Without num_key_value_heads,
/// there are as many key/value heads as heads; without head_dim, it is hidden_size / num_attention_heads.
/// ConfigError: a required key is absent, or a value is outside the field's limits.
void read_hub_fields(const JsonView& json, DecoderConfig& config);
void write_hub_fields(Json& json, const DecoderConfig& config);

/// The sliding window, which is `usual` if there is no key, and the layers that have it: by "layer_types" if
/// there are any, else `layers`, from number "max_window_layers" on if there is this key. `has_window`: false
/// if another key says that there is none.
void read_hub_window(const JsonView& json, DecoderConfig& config, bool has_window, LayerChoice layers,
                     int64_t usual = 4096);
/// Writes "sliding_window", "max_window_layers" and "layer_types".
void write_hub_window(Json& json, const DecoderConfig& config);

/// How experts are balanced in an architecture that has no place for biases: by a loss with the coefficient
/// "router_aux_loss_coef". transformers adds this loss only if "output_router_logits" is true. If it is not,
/// coefficients above 0.1 count as the default of its classes, 0.001: gpt-oss's folders have 0.9, an earlier
/// default. ConfigError if the coefficient is negative.
void read_hub_balance(const JsonView& json, DecoderConfig& config);
/// Leaves out the coefficient of a model that was balanced by biases alone.
void write_hub_balance(Json& json, const DecoderConfig& config);
/// The coefficient of moe.sequence_balance in the terms of transformers, router_aux_loss_coef. Its loss is
/// E sum_e f_e p_e (Fedus et al. 2021, Switch Transformers, eq. 4-6): f_e is the choices of expert e divided
/// by the tokens, p_e the mean of the softmax over all experts. Here it is the mean over sequences and layers
/// with experts; moe.sequence_balance weighs the sum over these layers, with f_e divided by top_k. 0 without
/// experts.
double router_aux_loss_coef(const DecoderConfig& model);
void set_router_aux_loss_coef(DecoderConfig& model, double coefficient);

/// A number rounded to 12 digits: a coefficient that was read, multiplied and divided again is written as it
/// was.
double without_last_digits(double number);

/// The integer with this key, or `otherwise`. ConfigError if it is less than `least`, or more than the usual
/// limit of a field (ConfigField::most): what families compute from it must not overflow or fill the memory.
int64_t at_least(int64_t least, const JsonView& json, const char* key, int64_t otherwise);
/// ConfigError: two places in config.json contradict each other.
[[noreturn]] void reject_both(const JsonView& a, const JsonView& b);
/// The value of two keys for the same number, of which one may be absent. ConfigError if they do not agree.
std::optional<JsonView> number_in_either(const std::optional<JsonView>& a, const std::optional<JsonView>& b);
/// Two keys mean the same number: returns `a` if it is there, else `b`. ConfigError if both are and differ.
const char* either_key(const JsonView& json, const char* a, const char* b);
/// The truth value with this key, or `otherwise`. As in transformers, null is false.
bool truth(const JsonView& json, const char* key, bool otherwise);
/// True if the key is there and null.
bool is_null(const JsonView& json, const char* key);

/// Marks a part of config.json as known, with all its keys: the model does not depend on it.
void ignore_hub_part(const JsonView& json, const char* key);

/// ConfigError if a key has another value.
void require_hub_constants(const JsonView& json, std::span<const HubConstant> constants);
void write_hub_constants(Json& json, std::span<const HubConstant> constants);

}  // namespace coeus
