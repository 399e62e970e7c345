// SPDX-License-Identifier: Apache-2.0
// ModelConfig: the configuration of a model of any kind. Engine, plan and predictions know a model by it
// alone.
#pragma once

#include "coeus/models/model.hpp"
#include "coeus/models/stage_split.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

/// How many ranks divide the parts of a model for which each kind of model has its own rules.
struct DividingRanks {
    int64_t tensor = 1;             ///< parallelism.tensor_parallel_degree
    int64_t context = 1;            ///< parallelism.context_parallel_degree
    int64_t expert = 1;             ///< parallelism.expert_parallel_degree
    bool context_by_heads = false;  ///< context-parallel ranks divide heads while they attend
};

/// The experts of each layer that has some, and how many of them a token takes. 0: no layer has experts.
struct ExpertNumbers {
    int64_t all = 0, chosen = 0;
};

/// What is known of a model before it is built. Each kind of model has one implementation. Segments are those
/// of Model::segments(), layers those that can be recomputed.
class ModelDescription {
public:
    ModelDescription() = default;
    virtual ~ModelDescription() = default;
    ModelDescription(const ModelDescription&) = delete;
    ModelDescription& operator=(const ModelDescription&) = delete;

    /// Family and flavor: "llama3 8B".
    virtual std::string name() const = 0;
    /// "dim 4096, 32 layers, 32 heads, 8 kv heads, ffn 14336, vocabulary 128256"
    virtual std::string shapes() const = 0;
    /// Lines for the log of a run that trains on local batches of this shape, on what the model does with
    /// them.
    virtual std::vector<std::string> notes(const BatchShape& /*training*/) const { return {}; }
    virtual size_t segments() const = 0;
    virtual int64_t all_layers() const = 0;
    /// Those of all_layers() that split() divides among stages. The others are in the last stage.
    virtual int64_t layers_to_split() const = 0;
    /// How many of layers_to_split() a part has.
    virtual int64_t layers_to_split(const ModelPart& part) const = 0;
    /// What the layers are called that split() does not divide: "the layers of multi-token prediction".
    virtual std::string layers_at_end() const { return "the layers that only the last stage can have"; }
    /// A number for each segment; equal segments have the same.
    virtual std::vector<int64_t> kinds_of_segments() const = 0;
    /// Everything that a part has: "tok_embeddings, layers 0 to 3"
    virtual std::string text(const ModelPart& part) const = 0;

    /// The stages of a pipeline that divides the layers evenly, and those that have the segments of these
    /// names. ConfigError as split_evenly() and split_by_names().
    virtual std::vector<ModelPart> split(int stages, const SplitWeights& weights) const = 0;
    virtual std::vector<ModelPart> split(const std::vector<std::vector<std::string>>& names) const = 0;

    /// What a checkpoint says of the model: JSON. A run knows by it whether it may continue.
    virtual std::string description() const = 0;
    /// Why weights of the model with this description() do not fit this one, such as "norm.weight is [256] in
    /// this run, [512] there"; "" if all that both have are alike. ConfigError naming `source`: it is not a
    /// description of this kind of model.
    virtual std::string other_shape(const std::string& description, const std::string& source) const = 0;

    /// True if a token attends to all tokens of its sequence, and not only to those before it. Then ranks
    /// that divide sequences have equal work without balancing.
    virtual bool attends_to_all() const { return false; }
    /// If parts of a sequence have matrices of their own: the tokens of each part. Empty: all tokens have the
    /// same.
    virtual std::vector<int64_t> streams() const { return {}; }
    /// Elements of all parameters, and of those that one token or sample uses.
    virtual int64_t parameters() const = 0;
    virtual int64_t active_parameters() const = 0;
    /// FLOPs of forward and backward of a token, in a sequence of this length.
    virtual double flops_per_token(int64_t seq_len) const = 0;
    virtual ExpertNumbers experts() const { return {}; }
    /// ConfigError if the activations of a micro-batch of this shape have more bytes than 64 bits can count;
    /// the check estimates them in floating point, and leaves room for what it does not know.
    virtual void require_countable(const BatchShape& shape) const = 0;
    /// Why these ranks cannot divide the model: a message with option, value, rule and valid values. "" if
    /// they can. Unless a kind of model has rules of its own, its ranks divide only layers, parameters and
    /// data.
    virtual std::string refusal(const DividingRanks& ranks) const;

    /// Declares the parameters and makes the blocks of these parts, which are this rank's. `positions`: the
    /// most positions of a sequence. `recompute`: what each layer of the whole model recomputes; empty:
    /// nothing.
    virtual std::unique_ptr<Model> build(const StateTypes& types, int64_t positions, const ModelPlace& place,
                                         const std::vector<ModelPart>& parts,
                                         const std::vector<Recompute>& recompute) const = 0;
    /// The configuration, if this is a decoder; null: another kind. For what is about text alone.
    virtual const DecoderConfig* decoder() const { return nullptr; }
};

/// A value. A kind's own configuration converts to it.
class ModelConfig {
public:
    ModelConfig(const DecoderConfig& decoder);  // NOLINT(google-explicit-constructor)
    explicit ModelConfig(std::shared_ptr<const ModelDescription> model) : model_(std::move(model)) {}

    const ModelDescription* operator->() const { return model_.get(); }
    ModelPart whole() const { return {0, model_->segments()}; }

private:
    std::shared_ptr<const ModelDescription> model_;
};

/// The configuration of a language model. ConfigError for a model of another kind; `purpose`: what needs a
/// language model, "training on text".
const DecoderConfig& require_decoder(const ModelConfig& model, const char* purpose);

}  // namespace coeus
