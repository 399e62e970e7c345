// SPDX-License-Identifier: Apache-2.0
// Model: a line of segments, each with a block or an objective, and the parameters of all. A pipeline rank
// knows all segments, but has blocks and objectives only for its own parts.
#pragma once

#include "coeus/layers/block.hpp"
#include "coeus/layers/objective.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

/// One block or one objective of a model, with its description. An objective passes its input on to the next
/// segment. The first objective is what a model is validated by and what it predicts; segments after it are
/// only trained. All objectives are in the last stage, and the last segment is one.
struct Segment {
    enum class Kind : uint8_t {
        block,
        layer,     ///< a block that counts when a model is split, and can be recomputed
        objective  ///< see above
    };
    std::string name;  ///< torchtitan's name: "tok_embeddings", "layers.0"
    Kind kind = Kind::layer;
    size_t unit = 0;               ///< unit of Parameters; meaningless if another rank has the segment
    std::unique_ptr<Block> block;  ///< null: another rank has it, or it is an objective
    std::unique_ptr<Objective> objective;  ///< likewise
};

/// The part of one pipeline stage: segments [first, last).
struct ModelPart {
    size_t first = 0, last = 0;
    bool operator==(const ModelPart&) const = default;
};

/// The constructor of a model declares its parameters and creates its blocks. allocate() takes the memory
/// later, so that planning needs none.
class Model {
public:
    virtual ~Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    Parameters& parameters() { return parameters_; }
    const Parameters& parameters() const { return parameters_; }
    /// All segments of the whole model.
    const std::vector<Segment>& segments() const { return segments_; }
    /// Number of the first objective.
    size_t first_objective() const;
    /// Number of the segment with which a backward ends: those before it train nothing and have no loss of
    /// their own. At most first_objective().
    size_t first_trained() const { return first_trained_; }
    /// The parts of this rank, in the order of its stages.
    const std::vector<ModelPart>& parts() const { return parts_; }
    /// Numbers, among the layers, of those that this rank has.
    std::vector<size_t> layers_here() const;
    /// A parameter that another pipeline rank has too, so that their gradients must be summed; else null.
    const Storage* shared_storage() const { return shared_storage_; }
    /// True if the first and the last stage train the same parameter, which is their shared_storage() if they
    /// are on two ranks. Equal on all ranks.
    bool ends_share_parameter() const { return ends_share_parameter_; }
    /// How many places further ahead than the next token its blocks and objectives read
    /// (Batch::tokens_ahead).
    int64_t depths() const { return depths_; }
    /// Allocates the parameters and the tables that blocks read on a device. Before that, both have only
    /// shapes.
    /// `with_optimizer`: see Parameters.
    void allocate(bool with_optimizer, const Device& device = host_device());
    /// A part of allocate(): the tables.
    virtual void allocate_tables(const Device& device) = 0;

    /// Shapes of the tensors that enter a segment, without data. Those between stages are alike. `rows`:
    /// tokens of a micro-batch on this rank.
    virtual Flow flow_into(size_t segment, int64_t rows) const = 0;

protected:
    Model(const StateTypes& types, const ModelPlace& place) : parameters_(types, place) {}

    Parameters parameters_;
    std::vector<Segment> segments_;
    std::vector<ModelPart> parts_;
    const Storage* shared_storage_ = nullptr;
    bool ends_share_parameter_ = false;
    size_t first_trained_ = 0;
    int64_t depths_ = 0;
};

}  // namespace coeus
