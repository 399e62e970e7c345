// SPDX-License-Identifier: Apache-2.0
#include "memory_plan.hpp"

#include "coeus/state/state_snapshot.hpp"

namespace coeus {

namespace {

// Buffers for the pieces of gradients from peers, for all communicators that sum.
int64_t reduction_bytes(const EngineOptions& options, const Mesh& mesh, bool shared_table) {
    int64_t bytes = shared_table ? Communicator::reduction_bytes(2) : 0;
    for (const Communicator* ranks : summing(mesh, options.exchanges))
        bytes += Communicator::reduction_bytes(ranks->size());
    return bytes;
}

}  // namespace

std::vector<const Communicator*> summing(const Mesh& mesh, const ExchangeOptions& exchanges) {
    std::vector<const Communicator*> all = {&mesh.gradient_reduction(), &mesh[axis::dp_replicate],
                                            &mesh[axis::tp]};
    if (exchanges.context.exchange == ContextExchange::all_gather) all.push_back(&mesh[axis::cp]);
    return all;
}

MemoryPlan plan_training(const EngineOptions& options, const Decoder& decoder,
                         const QuantizedWeights& quantized, const Gathered& gathered,
                         const LayerMemory& layers) {
    const Mesh mesh = Mesh::planned(options.mesh, options.rank);
    const Parameters& parameters = decoder.parameters();
    const bool gpu = options.backend == Backend::cuda, shared_table = decoder.shared_storage() != nullptr;
    const MemoryPlace host = gpu ? MemoryPlace::host : MemoryPlace::device;
    const Parameters::Bytes state = parameters.bytes(true), offloaded = parameters.offloaded_bytes();
    const TokenIdBytes ids =
        token_id_bytes(options.training, options.accumulation, options.validation, mesh.size(axis::cp),
                       options.backend, decoder.config().mtp_layers);
    const int64_t reduction = reduction_bytes(options, mesh, shared_table);

    MemoryPlan plan;
    plan.add(state);
    plan.add(offloaded, MemoryPlace::host);
    plan.add(term::weight_scales, quantized.bytes());
    plan.add(term::gathered_weights, gathered.bytes().weights);
    plan.add(term::unreduced_gradients, gathered.bytes().gradients);
    plan.add(term::summed_gradients, gathered.bytes().sums);
    plan.add(term::activations, layers.activations);
    plan.add(term::activations, layers.activations_on_host, MemoryPlace::host);
    plan.add(term::flows, layers.executor.slots);
    plan.add(term::temporaries, layers.temporaries + layers.paired_temporaries);
    plan.add(term::workspace, layers.workspace);
    plan.add(term::token_ids, gpu ? ids.device : ids.host);
    if (!gpu) plan.add(term::reduction, reduction);
    plan.add(term::position_tables, decoder.tables().bytes());
    const DecoderConfig& model = decoder.config();
    plan.add(term::loads, padded_bytes(model.moe_rows() * model.moe.experts * size_of(Dtype::i64)));
    if (options.copies_state)
        plan.add(term::copies,
                 (state.master + state.moments + offloaded.total()) / mesh.size(axis::dp_replicate), host);
    if (options.snapshot) plan.add(term::snapshot, StateSnapshot::bytes(parameters), host);
    plan.add(term::libraries,
             gpu ? cuda_library_bytes : library_bytes(options.types.compute, options.mesh.ranks()));
    const int communicators = carrying_communicators(options.mesh) + (shared_table ? 1 : 0);
    if (gpu && options.nccl && communicators > 0) {
        plan.add(term::nccl, nccl_bytes(communicators, options.nvls));
        plan.add(term::spare, spare_bytes);
    }
    plan.add(term::offloading, layers.input_places);
    if (options.types.offload)
        plan.add(term::offloading, Offloaded::bytes(parameters, options.offload_chunk));
    if (gpu) plan.add(term::ids_and_reductions, ids.host + reduction, host);
    return plan;
}

}  // namespace coeus
