// SPDX-License-Identifier: Apache-2.0
// Model: a line of segments, each a block, with an objective after the last; and the parameters they share. A
// pipeline rank has parts of it: it knows all segments, and has the blocks of its own.
#pragma once

#include "coeus/layers/block.hpp"
#include "coeus/layers/objective.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

/// One block of a model, and what else is known of it.
struct Segment {
    std::string name;              ///< torchtitan's: "tok_embeddings", "layers.0"
    bool is_layer = true;          ///< counted when a model is split, and chosen for recomputation
    size_t unit = 0;               ///< of Parameters; meaningless without a block
    std::unique_ptr<Block> block;  ///< null: another rank has it
};

/// What one pipeline stage has: segments [first, last), and perhaps the objective.
struct ModelPart {
    size_t first = 0, last = 0;
    bool objective = false;
    bool operator==(const ModelPart&) const = default;
};

/// The constructor of a model declares its parameters and makes its blocks; allocate() gets the memory later,
/// so that planning needs none.
class Model {
public:
    virtual ~Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    Parameters& parameters() { return parameters_; }
    const Parameters& parameters() const { return parameters_; }
    /// Those of the whole model.
    const std::vector<Segment>& segments() const { return segments_; }
    /// Null: another rank has it.
    const Objective* objective() const { return objective_.get(); }
    /// Unit of Parameters; a tied table is the first segment's as well.
    size_t objective_unit() const { return objective_unit_; }
    /// This rank's, in the order of its stages.
    const std::vector<ModelPart>& parts() const { return parts_; }
    /// Numbers, among all layers, of those that this rank has.
    std::vector<size_t> layers_here() const;
    /// A parameter that is also on another pipeline rank, with which its gradients are to be summed; else
    /// null.
    const Storage* shared_storage() const { return shared_storage_; }
    /// Takes the memory of the parameters, on a device, and moves there what else the blocks read. With an
    /// optimizer or without: see Parameters.
    void allocate(bool with_optimizer, const Device& device = host_device());

    /// Shapes of what enters a segment (after the last: the objective), without data. `rows`: tokens of a
    /// micro-batch that this rank has.
    virtual Flow flow_into(size_t segment, int64_t rows) const = 0;

protected:
    Model(const StateTypes& types, const ShardPlace& place) : parameters_(types, place) {}
    /// What is not a parameter: tables.
    virtual void move_to(const Device& device) = 0;

    Parameters parameters_;
    std::vector<Segment> segments_;
    std::unique_ptr<Objective> objective_;
    size_t objective_unit_ = 0;
    std::vector<ModelPart> parts_;
    const Storage* shared_storage_ = nullptr;
};

}  // namespace coeus
