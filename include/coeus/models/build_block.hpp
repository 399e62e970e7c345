// SPDX-License-Identifier: Apache-2.0
// Builds the parameters and the block of a layer from its configuration.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/layers/block.hpp"
#include "coeus/layers/position_tables.hpp"
#include "coeus/models/declare.hpp"
#include "coeus/models/layer_config.hpp"

#include <memory>
#include <vector>

namespace coeus {

/// Builds a sublayer with the norms that the model's norm_placement gives it: `name` before it, "post_"
/// `name` after it. `build` returns the sublayer. It gets the input of the sublayer's first linear layer,
/// which is the output of the norm before it, kept or computed again, or else the residual path. `output`:
/// that of the norm before it. `next`: that of the norm before the next sublayer of the block. If the next
/// one has no such norm, its linear layers read what the norm after this one writes.
ResidualBlock::Part build_part(const Declare& declare, const std::string& name, Output output,
                               FunctionRef<std::unique_ptr<Sublayer>(LinearInput)> build,
                               Output next = Output::kept);
/// Builds attention of any kind, with torchtitan's names of parameters. `tables` must outlive it. For the
/// other sublayers see build_feed_forward and build_moe.
std::unique_ptr<Sublayer> build_attention(const Declare& declare, const AttentionConfig& config,
                                          const PositionTables& tables, LinearInput input);

/// Where a norm or an activation function puts its output in a block that recomputes this.
Output norm_output(Recompute recompute);
/// Builds the block of layer declare.layer(), as its family does (ModelFamily::own_block). `tables` must
/// outlive it.
std::unique_ptr<Block> build_layer(const Declare& declare, const PositionTables& tables, Recompute recompute);
/// The same for a layer of the model, not of multi-token prediction, in a model with these parameters.
/// `biases`: see Declare.
std::unique_ptr<Block> build_block(Parameters& parameters, const DecoderConfig& model, int64_t number,
                                   const PositionTables& tables, Recompute recompute,
                                   std::vector<BalanceBias>* biases);

}  // namespace coeus
