// SPDX-License-Identifier: Apache-2.0
#include "memory_plan.hpp"

#include "coeus/state/state_snapshot.hpp"

namespace coeus {

namespace {

// Buffers for the pieces of gradients from peers, for all communicators that sum.
int64_t reduction_bytes(const EngineOptions& options, const Mesh& mesh, bool shared) {
    int64_t bytes = shared ? Communicator::reduction_bytes(2) : 0;
    for (const Communicator* ranks : summing(mesh, options))
        bytes += Communicator::reduction_bytes(ranks->size());
    return bytes;
}

}  // namespace

std::vector<const Communicator*> summing(const Mesh& mesh, const EngineOptions& options) {
    std::vector<const Communicator*> all = {&mesh[axis::tp]};
    if (options.trains) {
        all.push_back(&mesh.gradient_reduction());
        all.push_back(&mesh[axis::dp_replicate]);
    }
    const bool gathers_keys =
        options.trains && options.exchanges.context.exchange == ContextExchange::all_gather;
    if (gathers_keys || options.scores_tokens) all.push_back(&mesh[axis::cp]);
    if (options.scores_tokens) all.push_back(&mesh[axis::pp]);
    return all;
}

MemoryPlan plan_training(const EngineOptions& options, const Model& model, const WeightsIn8Bits& weights,
                         const Gathered& gathered, const LayerMemory& layers, const GatheredLogits* logits) {
    const Mesh mesh = Mesh::planned(options.mesh, options.rank);
    const Parameters& parameters = model.parameters();
    const bool gpu = options.machine.backend == Backend::cuda, shared = model.shared_storage() != nullptr;
    const MemoryPlace host = gpu ? MemoryPlace::host : MemoryPlace::device;
    const Parameters::Bytes state = parameters.bytes(options.trains),
                            offloaded = parameters.offloaded_bytes();
    const BatchKind& batches = model.batches();
    const BatchBytes of_batches =
        batches.bytes({options.training, options.accumulation, options.pipeline.timetable.microbatches},
                      options.validation, mesh.size(axis::cp), options.machine.backend);
    const int64_t reduction = reduction_bytes(options, mesh, shared);

    MemoryPlan plan;
    plan.add(state);
    plan.add(offloaded, MemoryPlace::host);
    plan.add(term::weight_scales, weights.scales);
    plan.add(term::kept_operands, weights.operands);
    plan.add(term::gathered_weights, gathered.bytes().weights);
    plan.add(term::unreduced_gradients, gathered.bytes().gradients);
    plan.add(term::summed_gradients, gathered.bytes().sums);
    plan.add(term::activations, layers.activations);
    plan.add(term::activations, layers.activations_on_host, MemoryPlace::host);
    plan.add(term::flows, layers.executor.slots);
    plan.add(term::temporaries, layers.temporaries + layers.paired_temporaries);
    plan.add(term::tokens, OverlappedTokens::bytes(layers.tokens, options.mesh.tp, options.machine.backend));
    plan.add(term::workspace, layers.workspace);
    plan.add(batches.name(), gpu ? of_batches.device : of_batches.host);
    if (!gpu) plan.add(term::reduction, reduction);
    plan.add(term::position_tables, model.table_bytes());
    const Counters counters = model.counters();
    plan.add(counters.name, padded_bytes(counters.count() * size_of(Dtype::i64)));
    if (options.scores_tokens) {
        const BatchShape own = options.validation.divided(mesh.size(axis::cp));
        plan.add(term::scores, padded_bytes(3 * own.count() * size_of(options.types.accumulate())));
    }
    if (logits) {
        plan.add(term::logits, logits->bytes());
        plan.add(term::logits, logits->bytes_on_host(gpu), host);
    }
    if (options.copies_state)
        plan.add(term::copies,
                 (state.master + state.moments + offloaded.total()) / mesh.size(axis::dp_replicate), host);
    if (options.snapshot) plan.add(term::snapshot, StateSnapshot::bytes(parameters), host);
    plan.add(term::libraries,
             gpu ? cuda_library_bytes : library_bytes(options.types.compute, options.mesh.ranks()));
    const int communicators = carrying_communicators(options.mesh) + (shared ? 1 : 0);
    if (gpu && options.machine.nccl && communicators > 0) {
        plan.add(term::nccl, nccl_bytes(communicators, options.machine.nvls));
        plan.add(term::spare, spare_bytes);
    }
    plan.add(term::offloading, layers.input_places);
    if (options.types.offload)
        plan.add(term::offloading, Offloaded::bytes(parameters, options.offload_chunk));
    if (gpu) plan.add(fmt::format("{} and reductions", batches.name()), of_batches.host + reduction, host);
    return plan;
}

}  // namespace coeus
