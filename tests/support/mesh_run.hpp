// SPDX-License-Identifier: Apache-2.0
// Trains a model on a mesh. Every rank of the world trains its part of the model. (support/one_rank.hpp
// compares it with the model on one rank.)
#pragma once

#include "coeus/comm/nccl.hpp"
#include "coeus/engine/engine.hpp"
#include "support/model.hpp"
#include "support/moments.hpp"

#include <map>
#include <string>
#include <vector>

namespace coeus::test {

/// The properties of a case besides the mesh.
struct MeshCase {
    MeshShape mesh;
    DecoderConfig model;
    StateTypes types = {Dtype::f64, Dtype::f64};
    int64_t sequences = 1;      ///< of a local batch
    int64_t local_batches = 1;  ///< of a data rank and step
    int64_t validated = 0;      ///< sequences of a validation batch; 0: as many as in a micro-batch
    int64_t seq_len = 8;
    bool document_mask = false;
    int64_t document_length = 3;
    GatherOptions gather = {};
    ExchangeOptions exchanges = {};
    Stream::Mode streams = Stream::Mode::eager;
    RecomputeOptions recompute = {};
    PipelineOptions pipeline = {};          ///< for the mesh's pp axis; its sends are synchronous
    const Device* device = &host_device();  ///< of the mesh; the model on one rank always uses the host
    const NcclLibrary* nccl = nullptr;      ///< carries the mesh's tensors; null: pinned host memory
    bool graphs = false;                    ///< run a GPU's steps as graphs
    int64_t offload_chunk = 4096;           ///< with types.offload: several chunks even for a tiny model
    OptimizerOptions optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    bool overlap_pairs = true;    ///< see EngineOptions
    bool keeps_operands = false;  ///< see EngineOptions
    bool guarded = false;         ///< steps have limits, and the plan includes a snapshot

    std::string name() const;
    int64_t validation_batch() const {
        return validated > 0 ? validated : sequences / pipeline.timetable.microbatches;
    }
};

/// Whole parameters of an engine, or their gradients or moments, by name, on every rank. Collective.
std::map<std::string, std::vector<double>> whole_parameters(const Engine& engine, const StorageTensor& kind);

/// An engine on a mesh (or on mesh_of_one()) with initial weights.
class MeshRun {
public:
    MeshRun(const MeshCase& c, const Mesh& mesh);

    /// Computes the gradients of this data rank's part of `batch`, which has all sequences of the step.
    void compute_gradients(int64_t number, TestBatch& batch, const StepLimits& limits = {});
    /// Computes gradients and updates the weights. Returns false if they are not finite or beyond a limit.
    bool step(int64_t number, TestBatch& batch, const StepLimits& limits = {});
    /// Sets all gradients to NaN: a step must not read what the step before left.
    void poison_gradients();
    /// The loss of the batch's first sequences, as many as in a validation batch, on every rank.
    double evaluate(TestBatch& batch);
    /// whole_parameters() of the engine.
    std::map<std::string, std::vector<double>> whole(const StorageTensor& kind) const {
        return whole_parameters(engine, kind);
    }

    Engine engine;

private:
    int64_t sequences_, validated_;
};

/// Adam's epsilon for cases in float32. With a usual one, an update has the size of the learning rate even if
/// a gradient is nothing but rounding, so that the weights of two correct runs differ by it.
inline constexpr double float32_eps = 1e-5;

/// All sequences of one step of a case.
TestBatch batch_of_step(const MeshCase& c, uint64_t seed);
/// The differences between the used and the planned memory, one per line, or "".
std::string use_differs_from_plan(const MeshCase& c, const Engine& engine);
/// Takes steps on the mesh twice: with state and inputs of blocks offloaded, and without offloading (kernel
/// by kernel). Compares the bits of everything that OneRankComparison compares, and of the moments.
/// Collective.
std::string differs_when_offloaded(MeshCase c, const Communicator& world, int64_t steps = 2);
/// Stages that divide the model as evenly as possible, in this schedule.
PipelineOptions pipeline_of(const std::string& schedule, int ranks, int micro_batches, int virtual_stages,
                            const DecoderConfig& model);
/// Sets the depths of multi-token prediction, which are in the last stage.
void set_mtp(MeshCase& c, int64_t depths);
/// Every mesh of `ranks` ranks over these axes; the other degrees are 1.
std::vector<MeshShape> meshes_of(int ranks, const std::vector<Axis>& axes);

}  // namespace coeus::test
