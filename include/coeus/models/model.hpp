// SPDX-License-Identifier: Apache-2.0
// Model: a line of segments, each with a block or an objective, and the parameters of all. A pipeline rank
// knows all segments, but has blocks and objectives only for its own parts.
#pragma once

#include "coeus/layers/block.hpp"
#include "coeus/layers/objective.hpp"
#include "coeus/models/batch_kind.hpp"
#include "coeus/models/precision_plan.hpp"
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
    size_t unit = 0;  ///< unit of Parameters; meaningless if another rank has the segment
    /// The parameters that are declared for it, on this rank or another; a parameter that several segments
    /// use is the first one's.
    std::vector<const Storage*> storages = {};
    std::unique_ptr<Block> block;          ///< null: another rank has it, or it is an objective
    std::unique_ptr<Objective> objective;  ///< likewise
};

/// The part of one pipeline stage: segments [first, last).
struct ModelPart {
    size_t first = 0, last = 0;
    bool operator==(const ModelPart&) const = default;
};

/// A part of the loss that a step reports by itself, as "topic_name" or "name".
struct PartOfLoss {
    /// Where its terms are before the engine sums them over the ranks.
    enum class Terms : uint8_t {
        in_loss,       ///< in the loss too; tensor-parallel ranks have all of them
        of_own_tokens  ///< not in the loss yet; tensor-parallel ranks have those of their own tokens
    };
    size_t number = 0;  ///< in StepScalars::losses
    std::string topic;  ///< "moe"; may be empty
    std::string name;   ///< ends in "_loss"
    Terms terms = Terms::in_loss;
};

/// What the layers of a model count in a step, in Ctx::counts: how often each layer that chooses (a row) has
/// taken each of its choices (a column).
struct Counters {
    enum class Choices : uint8_t {
        experts,  ///< which the ranks of the mesh's ep axis divide evenly
        other
    };
    std::string name;  ///< of their memory in a plan
    int64_t rows = 0, columns = 0;
    Choices choices = Choices::other;
    std::vector<int64_t> layers = {};  ///< the numbers of the rows' layers, if they are experts
    int64_t count() const { return rows * columns; }
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
    /// A parameter of the first and the last stage that another pipeline rank has too, so that their
    /// gradients must be summed; else null.
    const Storage* shared_storage() const { return shared_storage_; }
    /// What its blocks and objectives read.
    virtual const BatchKind& batches() const = 0;
    /// The parts of the loss that this model has, in the order in which they are reported; all ranks have
    /// the same.
    const std::vector<PartOfLoss>& losses() const { return losses_; }
    /// The counters of all layers, on this rank or not; rows 0: there are none.
    virtual Counters counters() const { return {}; }
    /// The matrices of the whole model that tokens are multiplied by, and its tables of tokens: those among
    /// which a run's Precision chooses what is computed in 8 bits.
    virtual std::vector<LayerMatrix> matrices() const;
    /// Work after the update of a step, as work of the Exec. `counts` are the counters of the step, summed
    /// over all ranks. Writes nothing if scalars.refusals is not 0.
    virtual void after_update(Exec& /*exec*/, const Kernels& /*kernels*/, Tensor /*counts*/,
                              const StepScalars& /*scalars*/) const {}
    /// True if the first and the last stage train the same parameter, which is their shared_storage() if they
    /// are on two ranks. Equal on all ranks.
    bool ends_train_one_parameter() const { return ends_train_one_parameter_; }
    /// Allocates the parameters and the tables that blocks read on a device. Before that, both have only
    /// shapes.
    /// `with_optimizer`: see Parameters.
    void allocate(bool with_optimizer, const Device& device = host_device());
    /// A part of allocate(): the tables, and their bytes.
    virtual void allocate_tables(const Device& /*device*/) {}
    virtual int64_t table_bytes() const { return 0; }

    /// Shapes of the tensors that enter a segment, without data. Those between stages are alike. `local`: a
    /// micro-batch with this rank's part of each sequence, whose tokens tensor-parallel ranks divide.
    virtual Flow flow_into(size_t segment, const BatchShape& local) const = 0;

protected:
    Model(const StateTypes& types, const ModelPlace& place) : parameters_(types, place) {}
    /// Declares losses(): with different numbers below StepScalars::most_losses, and names that end in
    /// "_loss".
    void set_losses(std::vector<PartOfLoss> losses);
    /// Sets first_trained() by the storages of the segments. Not for a model whose blocks have a loss of
    /// their own, which needs a backward even if they are frozen. LogicError if a parameter is in no segment.
    void find_first_trained();

    Parameters parameters_;
    std::vector<Segment> segments_;
    std::vector<ModelPart> parts_;
    std::vector<PartOfLoss> losses_;
    const Storage* shared_storage_ = nullptr;
    bool ends_train_one_parameter_ = false;
    size_t first_trained_ = 0;
};

}  // namespace coeus
