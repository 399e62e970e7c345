// SPDX-License-Identifier: Apache-2.0
// The models by name. A new family is one file and a line in registry.cpp; a program outside src that links
// the library registers its own (register_family).
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/file/json.hpp"
#include "coeus/layers/block.hpp"
#include "coeus/models/decoder_config.hpp"
#include "coeus/state/param.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// What a parameter is for: initial values depend on it.
enum class WeightRole : uint8_t { embedding, output, norm, attention_in, attention_out, gate, up, down };

class Declare;

/// The functions for Hugging Face folders may be null, all four of them, and `architectures` empty: then the
/// family has no form there.
struct ModelFamily {
    std::string name;                        ///< "llama3"
    std::vector<DecoderConfig> flavors;      ///< torchtitan's, the smallest first
    std::vector<std::string> architectures;  ///< of config.json in Hugging Face folders: "LlamaForCausalLM"

    /// The model of a config.json. ConfigError naming file and key: a missing or wrong value, a feature that
    /// is not built. Name and flavour are set by the caller.
    DecoderConfig (*from_hub)(const JsonView& json) = nullptr;
    /// The keys of config.json that say this model, architecture included. What it cannot say may be missing:
    /// the caller compares with what from_hub reads.
    void (*to_hub)(Json& json, const DecoderConfig& config) = nullptr;
    /// Where a parameter of this shape lies in a Hugging Face folder: all its rows, each once.
    std::vector<HubPlace> (*hub_places)(const std::string& parameter, const Shape& shape,
                                        const DecoderConfig& config) = nullptr;
    /// True for a tensor of such a folder that is not a parameter.
    bool (*hub_ignores)(const std::string& tensor, const DecoderConfig& config) = nullptr;
    /// Initial values of a parameter; `layer`: of its block, 0 for others.
    Init (*init)(WeightRole role, int64_t layer, const DecoderConfig& config) = nullptr;
    /// Declares the parameters of layer declare.layer(), and builds its block; build_block.hpp has what usual
    /// blocks are made of. Norms and activation functions put their output where `output` says. The table
    /// outlives the block. Null: attention and a feed-forward layer, each after a norm.
    std::unique_ptr<Block> (*own_block)(const Declare& declare, const RopeTable& rope,
                                        Output output) = nullptr;
};

const std::vector<ModelFamily>& model_families();
/// Adds a family to those that decks may name, before the program looks for one (run_program.hpp). Its
/// flavours get its name. ConfigError: the name is taken, by a family or for one that is not built yet; or a
/// flavour is not valid.
void register_family(ModelFamily family);
/// ConfigError with the nearest name; a known family that is not built yet is named as such.
const ModelFamily& find_family(std::string_view name);
/// The same, for its form in Hugging Face folders. ConfigError if it has none.
const ModelFamily& find_hub_family(std::string_view name);
/// ConfigError with the nearest flavour.
const DecoderConfig& find_flavor(const ModelFamily& family, std::string_view flavor);

}  // namespace coeus
