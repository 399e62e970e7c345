// SPDX-License-Identifier: Apache-2.0
// What families share: usual keys of config.json, usual names of tensors, usual initial values.
#pragma once

#include "coeus/models/registry.hpp"

#include <span>

namespace coeus {

/// A key that has to have one value, or to be absent, and is written with it.
struct HubConstant {
    const char* key;
    Json value;
    const char* why;  ///< "biases are not built yet"
};

/// Fields with their usual keys; what is absent stays as it is. Key/value heads that are absent are as many
/// as heads, the width of a head is hidden_size / num_attention_heads. ConfigError: absent and without a
/// default there, or not within the field's limits.
void read_hub_fields(const JsonView& json, DecoderConfig& config);
void write_hub_fields(Json& json, const DecoderConfig& config);

/// RoPE in the forms of transformers 5 (rope_parameters) and before (rope_theta, rope_scaling); Llama 3.1's
/// scaling.
void read_hub_rope(const JsonView& json, RopeConfig& rope);
void write_hub_rope(Json& json, const RopeConfig& rope);

/// ConfigError if a key has another value.
void require_hub_constants(const JsonView& json, std::span<const HubConstant> constants);
void write_hub_constants(Json& json, std::span<const HubConstant> constants);

/// "layers.3.attention.wq.weight" -> "model.layers.3.self_attn.q_proj.weight". LogicError for a name that is
/// none of a dense decoder.
std::string usual_hub_name(const std::string& parameter);
/// Constants that old files carry, and the head of a model whose head is the embedding's table.
bool usually_ignored_in_hub(const std::string& tensor, const DecoderConfig& config);

/// torchtitan's rule: matrices that write to the residual path, and the up projection, start smaller the
/// deeper their layer is.
Init usual_init(WeightRole role, int64_t layer, const DecoderConfig& config);

}  // namespace coeus
