// SPDX-License-Identifier: Apache-2.0
// ModelFamily: models that differ in numbers only, with their form in Hugging Face folders, their initial
// values and perhaps blocks of their own. Families are listed in registry.hpp.
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/layers/block.hpp"
#include "coeus/models/decoder_config.hpp"
#include "coeus/models/hub_names.hpp"
#include "coeus/state/param.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The role of a parameter in the model, on which its initial values depend.
enum class WeightRole : uint8_t {
    embedding,
    output,
    norm,  ///< also of heads
    attention_in,
    attention_out,
    attention_bias,
    sink,
    router,
    router_bias,
    expert_bias,  ///< of both matrices of an expert
    balance,      ///< the biases that balance the loads of experts
    gate,         ///< and the next two: also of experts
    up,
    down,
    joint  ///< multi-token prediction: of the embedding and the hidden state together
};

class Declare;
class HubKeys;

/// The functions for Hugging Face folders may be null, all three of them, and `architectures` empty: then the
/// family has no form there.
struct ModelFamily {
    std::string name;                        ///< "llama3"
    std::vector<DecoderConfig> flavors;      ///< those of torchtitan, the smallest first
    std::vector<std::string> architectures;  ///< in config.json of Hugging Face folders: "LlamaForCausalLM"
    /// "model_type" of each architecture in config.json: "llama". Empty: the types are not known, so that
    /// config.json must name the architecture.
    std::vector<std::string> model_types = {};
    /// Architectures of models with further parts, such as one for images, whose text model is the first of
    /// these unless its own config says otherwise: "Llama4ForConditionalGeneration".
    std::vector<std::string> wrappers = {};

    /// The table of config.json (hub_keys.hpp): reads it into `config`, or writes the keys of `config`, which
    /// is then a copy that may be changed. The caller sets name and flavour, and compares what was written
    /// with what can be read of it: a field that config.json cannot express may be left out.
    void (*hub_keys)(HubKeys& keys, DecoderConfig& config) = nullptr;
    /// Returns the tensors of a Hugging Face folder that contain the rows of a parameter with this shape,
    /// each row once; none if the folder has no place for it, which means zero.
    std::vector<HubPlace> (*hub_places)(const std::string& parameter, const Shape& shape,
                                        const DecoderConfig& config) = nullptr;
    /// Returns true for a tensor of such a folder that is not a parameter.
    bool (*hub_ignores)(const std::string& tensor, const DecoderConfig& config) = nullptr;
    /// Returns, for such a tensor, the one whose elements it must have; none if it has no meaning.
    std::optional<HubCopy> (*hub_copy_of)(const std::string& tensor,
                                          const DecoderConfig& config) = usually_copied_in_hub;
    /// Returns the initial values of a parameter. `layer` is the number of its layer, or 0 if it is in none;
    /// for multi-token prediction, that of the last layer of the stack.
    Init (*init)(WeightRole role, int64_t layer, const DecoderConfig& config) = nullptr;
    /// Declares the parameters of layer declare.layer(), and builds its block. build_block.hpp builds the
    /// parts of usual blocks. Norms and activation functions put their output where `output` says. `tables`
    /// outlive the block. Null: a block has attention and a feed-forward layer, each after a norm.
    std::unique_ptr<Block> (*own_block)(const Declare& declare, const PositionTables& tables,
                                        Output output) = nullptr;
};

/// The sizes of a flavour; `hidden` is the width of dense layers, 0 if there are none.
struct FlavorSizes {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads, head_dim, hidden, vocab;
};
/// What the flavours of a family share, with the name and the sizes of one. Attention is grouped.
DecoderConfig with_sizes(DecoderConfig model, const FlavorSizes& sizes);

/// torchtitan's rule: matrices that write to the residual stream, and the up projection, have smaller initial
/// values in later layers.
Init usual_init(WeightRole role, int64_t layer, const DecoderConfig& config);

}  // namespace coeus
