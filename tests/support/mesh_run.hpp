// SPDX-License-Identifier: Apache-2.0
// Trains a model on a mesh and the same model on one rank, for tests that every layout gives the results of
// one rank. Every rank of the world trains its part of the mesh's model, and rank 0 also the whole model.
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
    bool overlap_pairs = true;  ///< see EngineOptions
    bool guarded = false;       ///< steps have limits, and the plan includes a snapshot

    std::string name() const;
    int64_t validation_batch() const {
        return validated > 0 ? validated : sequences / pipeline.timetable.microbatches;
    }
};

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
    /// Whole parameters, or their gradients or moments, by name, on every rank. Collective.
    std::map<std::string, std::vector<double>> whole(const StorageTensor& kind) const;

    Engine engine;

private:
    int64_t sequences_, validated_;
};

/// Adam's epsilon for cases in float32. With a usual one, an update has the size of the learning rate even if
/// a gradient is nothing but rounding, so that the weights of two correct runs differ by it.
inline constexpr double float32_eps = 1e-5;

/// By how much a mesh may differ from one rank: losses and norms relatively, arrays by ||a - b|| / ||b||.
struct Tolerances {
    double loss = 1e-11;
    double later = 1e-11;  ///< of what follows from gradients: their norm, and the validation loss
    double arrays = 1e-9;
    double some_arrays = 0;  ///< of a share of the arrays in each comparison, if it is larger
    double share = 0.25;
};
inline constexpr Tolerances in_float32 = {1e-5, 1e-5, 2e-4};
/// With a recipe, in float32. Sums in another order move a few numbers to the next 8-bit number, which is up
/// to 1/8 larger, so that a few arrays differ. A wrong scale or an operand that is not quantized changes
/// most of them.
inline constexpr Tolerances in_8_bits_and_float32 = {1e-4, 1e-4, 3e-3, 5e-2};

/// All sequences of one step of a case.
TestBatch batch_of_step(const MeshCase& c, uint64_t seed);
/// Takes steps on the mesh and on one rank. Compares loss, norm and every gradient by name; after the last
/// step (with graphs also after the first) every weight and a validation loss; and the used memory with the
/// planned memory. Returns the differences, one per line, or "". The result is the same on every rank.
/// Collective.
std::string differs_from_one_rank(const MeshCase& c, const Communicator& world, int64_t steps = 3,
                                  const Tolerances& tolerances = {});
/// Takes steps on the mesh twice: with state and inputs of blocks offloaded, and without offloading (kernel
/// by kernel). Compares the bits of everything that differs_from_one_rank compares, and of the moments.
/// Collective.
std::string differs_when_offloaded(MeshCase c, const Communicator& world, int64_t steps = 2);
/// Stages that divide the model as evenly as possible, in this schedule.
PipelineOptions pipeline_of(const std::string& schedule, int ranks, int micro_batches, int virtual_stages,
                            const DecoderConfig& model);
/// Every mesh of `ranks` ranks over these axes; the other degrees are 1.
std::vector<MeshShape> meshes_of(int ranks, const std::vector<Axis>& axes);

}  // namespace coeus::test
