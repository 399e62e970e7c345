// SPDX-License-Identifier: Apache-2.0
// Between the tensors of a Hugging Face folder and the parameters of a model: the usual names and places.
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/models/decoder_config.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coeus {

/// A parameter of a layer, and its tensor in a Hugging Face folder, both without the number of the layer.
struct HubName {
    const char *ours, *theirs;
};
/// "layers.3.<ours>" -> "model.layers.3.<theirs>"; "" if the list does not have the parameter.
std::string hub_name_in(std::span<const HubName> names, const std::string& parameter);

/// The places of a parameter that is one tensor of the folder, element for element, or, for experts, one
/// tensor for each.
std::vector<HubPlace> usual_hub_places(const std::string& parameter, const Shape& shape,
                                       const DecoderConfig& config);
/// The same for a family with names of its own for some parameters.
std::vector<HubPlace> hub_places_by(std::span<const HubName> own, const std::string& parameter,
                                    const Shape& shape, const DecoderConfig& config);
/// The place of a matrix [rows, cols] in a tensor [all_rows, cols], or the places of matrices [E, rows, cols]
/// in a tensor [E, all_rows, cols]: our rows are its rows from `first` on.
std::vector<HubPlace> stacked_hub_places(const std::string& name, const Shape& shape, int64_t all_rows,
                                         int64_t first);

/// Parameters of a layer that are one tensor of the folder, one below the other.
struct HubStack {
    struct Part {
        const char* ours;
        int64_t rows;
    };
    const char* theirs;
    std::vector<Part> parts;
};
/// Queries, keys and values; gate and up projection of a dense layer.
HubStack qkv_hub_stack(const DecoderConfig& config, const char* theirs = "self_attn.qkv_proj.weight");
HubStack gate_up_hub_stack(const DecoderConfig& config, const char* theirs = "mlp.gate_up_proj.weight");
/// The place of a parameter in one of these; none if it is in none of them.
std::vector<HubPlace> places_in(std::span<const HubStack> stacks, const std::string& parameter,
                                const Shape& shape);
/// The places of matrices [E, rows, cols] that one tensor [E, cols, columns] has, each of them transposed:
/// our rows are its columns from `first` on.
std::vector<HubPlace> transposed_hub_places(const std::string& name, const Shape& shape, int64_t columns,
                                            int64_t first);
/// "layers.3.attention.wq.weight" -> "model.layers.3.self_attn.q_proj.weight". LogicError for a name that the
/// list of usual names does not have.
std::string usual_hub_name(const std::string& parameter);
/// True for constants in old files, and for the head of a model with tied embeddings.
bool usually_ignored_in_hub(const std::string& tensor, const DecoderConfig& config);
/// What usual families leave out as a copy: the head of a model with tied embeddings. None: not a copy.
std::optional<HubCopy> usually_copied_in_hub(const std::string& tensor, const DecoderConfig& config);

/// The same three functions for families that took over from DeepSeek V3 its latent attention, its biases
/// that balance experts, or its layers of multi-token prediction, which are after the last layer. Those have
/// copies of the table and of the output projection; the ones that the model does not have are ignored.
std::vector<HubPlace> deepseek_hub_places(const std::string& parameter, const Shape& shape,
                                          const DecoderConfig& config);
bool deepseek_hub_ignores(const std::string& tensor, const DecoderConfig& config);
std::optional<HubCopy> deepseek_hub_copy_of(const std::string& tensor, const DecoderConfig& config);

}  // namespace coeus
