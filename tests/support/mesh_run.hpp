// SPDX-License-Identifier: Apache-2.0
// A model trained on a mesh beside the same model on one rank: for tests that every layout gives what one
// rank gives. Every rank of the world trains its part of the mesh's model, and the whole model alone.
#pragma once

#include "coeus/comm/nccl.hpp"
#include "coeus/engine/engine.hpp"
#include "support/model.hpp"
#include "support/moments.hpp"

#include <map>
#include <string>
#include <vector>

namespace coeus::test {

/// What a case varies beside the mesh.
struct MeshCase {
    MeshShape mesh;
    DecoderConfig model;
    StateTypes types = {Dtype::f64, Dtype::f64};
    int64_t sequences = 1;      ///< of a local batch
    int64_t local_batches = 1;  ///< of a data rank and step
    int64_t validated = 0;      ///< sequences of a validation batch; 0: as many as of a micro-batch
    int64_t seq_len = 8;
    bool document_mask = false;
    GatherOptions gather = {};
    ExchangeOptions exchanges = {};
    Stream::Mode streams = Stream::Mode::eager;
    RecomputeOptions recompute = {};
    PipelineOptions pipeline = {};          ///< of the mesh's pp axis; its sends are synchronous
    const Device* device = &host_device();  ///< of the mesh; one rank alone is always on the host
    const NcclLibrary* nccl = nullptr;      ///< carries the mesh's tensors; null: pinned host memory
    bool graphs = false;                    ///< a GPU's steps are given as graphs
    int64_t offload_chunk = 4096;           ///< where types.offload: several chunks of a tiny model
    OptimizerOptions optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    bool guarded = false;  ///< steps have limits, and a snapshot is planned

    std::string name() const;
    int64_t validation_batch() const {
        return validated > 0 ? validated : sequences / pipeline.timetable.microbatches;
    }
};

/// An engine on a mesh (or on mesh_of_one()) with initial weights.
class MeshRun {
public:
    MeshRun(const MeshCase& c, const Mesh& mesh);

    /// Of this data rank's part of a batch of all sequences of the step.
    void compute_gradients(int64_t number, TestBatch& batch, const StepLimits& limits = {});
    /// With the update. False: not finite, or beyond a limit.
    bool step(int64_t number, TestBatch& batch, const StepLimits& limits = {});
    /// Loss of as many of its first sequences as a validation batch has, on every rank.
    double evaluate(TestBatch& batch);
    /// Whole parameters, or their gradients or moments, by name, on every rank. Collective.
    std::map<std::string, std::vector<double>> whole(const StorageTensor& kind) const;

    Engine engine;

private:
    int64_t sequences_, validated_;
};

/// All sequences of a step of a case.
TestBatch batch_of_step(const MeshCase& c, uint64_t seed);
/// Takes steps on the mesh and on one rank, and compares loss, norm, every gradient by name and, after the
/// last, every weight and a validation loss (after the first step too, where steps are given as graphs); and
/// the memory that was planned with what was used. Returns what differs, a line each, or "". The same on
/// every rank. Collective.
std::string differs_from_one_rank(const MeshCase& c, const Communicator& world, int64_t steps = 3,
                                  double loss_tolerance = 1e-11, double gradient_tolerance = 1e-9);
/// Takes steps on the mesh twice, with state and inputs of blocks offloaded and without (kernel by kernel),
/// and compares the bits of all that differs_from_one_rank compares, of the moments too. Collective.
std::string differs_when_offloaded(MeshCase c, const Communicator& world, int64_t steps = 2);
/// Stages that divide the model as evenly as may be, in this schedule.
PipelineOptions pipeline_of(const std::string& schedule, int ranks, int micro_batches, int virtual_stages,
                            const DecoderConfig& model);
/// Every mesh of so many ranks over these axes, the others 1.
std::vector<MeshShape> meshes_of(int ranks, const std::vector<Axis>& axes);

}  // namespace coeus::test
