// SPDX-License-Identifier: Apache-2.0
// Declare: how the parts of a model declare their parameters; and what they share when they do.
#pragma once

#include "coeus/layers/linear_weight.hpp"
#include "coeus/layers/norm.hpp"
#include "coeus/models/family.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

/// Declares the parameters of one layer, or of modules outside of layers, with the initial values of the
/// model family.
class Declare {
public:
    /// `prefix`: beginning of the parameters' names: "layers.3.", or "".
    /// `layer`: its number, from model.layers on for multi-token prediction. `biases`: where the biases that
    /// balance the loads of experts are recorded; null: nowhere.
    Declare(Parameters& parameters, const DecoderConfig& model, std::string prefix = "", int64_t layer = 0,
            std::vector<BalanceBias>* biases = nullptr)
        : parameters_(parameters),
          model_(model),
          prefix_(std::move(prefix)),
          layer_(layer),
          biases_(biases) {}

    const DecoderConfig& model() const { return model_; }
    Parameters& parameters() const { return parameters_; }
    int64_t layer() const { return layer_; }
    void record(const BalanceBias& bias) const {
        if (biases_) biases_->push_back(bias);
    }
    /// Declares a weight: "attention.wq" -> "layers.3.attention.wq.weight". This and the next two throw
    /// ConfigError if it has more elements than a model may have.
    Param weight(const std::string& name, const Shape& shape, WeightRole role, Split split) const;
    /// The same for the weight of a linear layer, with the recipe that the run's options give it.
    Param linear(const std::string& name, const Shape& shape, WeightRole role, Split split) const;
    /// The same for a whole name: "attention.wq.bias" -> "layers.3.attention.wq.bias".
    Param named(const std::string& name, const Shape& shape, WeightRole role, Split split) const;
    /// Adds weights that one linear layer multiplies by its input, stacked in storages of equal recipes that
    /// are trained or frozen together.
    LinearWeight add_stack(std::vector<Param> params) const;
    /// Makes a norm of the model's type, of the hidden state. `output` says where its output goes.
    std::unique_ptr<Norm> norm(const std::string& name, Output output) const;
    /// Makes an RMSNorm of a sublayer's result. `output`: see ResidualNorm.
    std::unique_ptr<ResidualNorm> residual_norm(const std::string& name, Output output) const;
    /// Constants of all RMSNorms of the model.
    NormForm norm_form() const { return {model_.norm_eps, model_.norm_offset ? 1.0 : 0.0}; }

private:
    const Storage& norm_weight(const std::string& name) const;
    Parameters& parameters_;
    const DecoderConfig& model_;
    std::string prefix_;
    int64_t layer_;
    std::vector<BalanceBias>* biases_;
};

/// The output of an operation that these weights multiply. If all of them need it in 8 bits, they keep it
/// instead of the operation.
Output output_for(const Declare& declare, const std::vector<Param>& weights, Output output);

/// How many adjacent columns of a layer's inner width stay on one tensor-parallel rank (Param::together): 16
/// bytes in bfloat16, so that products find rows where their fastest kernels read them. Not if an equal part
/// is so narrow that this would make a part much wider.
int64_t columns_together(int64_t width, int tp);

}  // namespace coeus
