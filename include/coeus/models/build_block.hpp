// SPDX-License-Identifier: Apache-2.0
// Builds the parameters and the block of a layer from its configuration.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/layers/block.hpp"
#include "coeus/layers/linear_weight.hpp"
#include "coeus/layers/position_tables.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

/// Declares the parameters of one layer, or of modules outside of layers, with the initial values of the
/// model family.
class Declare {
public:
    /// `prefix`: beginning of the parameters' names: "layers.3.", or "".
    /// `layer`: its number, from model.layers on for multi-token prediction.
    Declare(Parameters& parameters, const DecoderConfig& model, std::string prefix = "", int64_t layer = 0)
        : parameters_(parameters), model_(model), prefix_(std::move(prefix)), layer_(layer) {}

    const DecoderConfig& model() const { return model_; }
    Parameters& parameters() const { return parameters_; }
    int64_t layer() const { return layer_; }
    /// Declares a weight: "attention.wq" -> "layers.3.attention.wq.weight".
    Param weight(const std::string& name, const Shape& shape, WeightRole role, Split split) const;
    /// The same for the weight of a linear layer, with the recipe that the run's options give it.
    Param linear(const std::string& name, const Shape& shape, WeightRole role, Split split) const;
    /// Adds weights that one linear layer multiplies by its input, stacked in storages of equal recipes that
    /// are trained or frozen together.
    LinearWeight add_stack(std::vector<Param> params) const;
    /// The same for a whole name: "attention.wq.bias" -> "layers.3.attention.wq.bias".
    Param named(const std::string& name, const Shape& shape, WeightRole role, Split split) const;
    /// Makes a norm of the model's type. `output` says where its output goes.
    std::unique_ptr<Norm> norm(const std::string& name, Output output) const;

private:
    Parameters& parameters_;
    const DecoderConfig& model_;
    std::string prefix_;
    int64_t layer_;
};

/// Builds a norm and the sublayer after it. `build` returns the sublayer. It gets the input of the sublayer's
/// first linear layer, which is the norm's output, kept or computed again.
PreNormBlock::Part build_part(const Declare& declare, const char* norm_name, Output output,
                              FunctionRef<std::unique_ptr<Sublayer>(LinearInput)> build);
/// These build the usual sublayers, with torchtitan's names of parameters. `tables` must outlive the
/// attention. `activated` says where the output of the activation function goes.
std::unique_ptr<Sublayer> build_attention(const Declare& declare, const AttentionConfig& config,
                                          const PositionTables& tables, LinearInput input);
std::unique_ptr<Sublayer> build_feed_forward(const Declare& declare, const FeedForwardConfig& config,
                                             LinearInput input, Output activated,
                                             const std::string& name = "feed_forward");
/// Builds a mixture of experts; `activated` is for the shared ones.
std::unique_ptr<Sublayer> build_moe(const Declare& declare, const MoeConfig& config, LinearInput input,
                                    Output activated);

/// Builds the block of layer `number`, as its family does (ModelFamily::own_block). `tables` must outlive it.
std::unique_ptr<Block> build_block(Parameters& parameters, const DecoderConfig& model, int64_t number,
                                   const PositionTables& tables, Recompute recompute);
/// Builds the layer of a depth of multi-token prediction, from 0 on.
std::unique_ptr<Block> build_mtp_layer(Parameters& parameters, const DecoderConfig& model, int64_t depth,
                                       const PositionTables& tables, Recompute recompute);

}  // namespace coeus
