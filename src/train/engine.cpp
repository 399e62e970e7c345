// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/engine.hpp"

#include "coeus/layers/loss_exchange.hpp"

#include <algorithm>

namespace coeus {

namespace {

ShardPlace place_in(const MeshShape& mesh, int rank) {
    return {.tp = mesh.tp,
            .tp_rank = mesh.coordinate(rank, tp),
            .fsdp = mesh.size(fsdp),
            .fsdp_rank = mesh.rank_in(rank, fsdp)};
}

const LossExchange& loss_exchange(const EngineOptions& options) {
    return options.split_loss ? split_loss() : whole_loss();
}

RecomputePlan recompute_for(const DecoderConfig& config, const EngineOptions& options) {
    const Mesh mesh = Mesh::planned(options.mesh, options.rank);
    return plan_recompute(options.recompute, config.layers, [&](const std::vector<Recompute>& choices) {
        const Decoder decoder(config, options.types, 1, place_in(options.mesh, options.rank), choices);
        return plan_training(decoder, options.training, {}, options.threads, mesh, loss_exchange(options),
                             options.context);
    });
}

}  // namespace

Engine::Engine(const DecoderConfig& config, const EngineOptions& options)
    : options_(options),
      recompute_(recompute_for(config, options)),
      decoder_(config, options.types, std::max(options.training.seq_len, options.validation.seq_len),
               place_in(options.mesh, options.rank), recompute_.blocks),
      gathered_(decoder_.parameters(), options.gather),
      stage_(decoder_, &gathered_),
      adam_(options.adam) {
    exec_.threads = options.threads;
    const Mesh mesh = Mesh::planned(options.mesh, options.rank);
    plan_ = plan_training(decoder_, options.training, options.validation, options.threads, mesh,
                          loss_exchange(options), options.context);
    plan_.gathered = gathered_.bytes();
    plan_.batches =
        token_id_bytes(options.training, options.micro_batches, options.validation, mesh.size(cp));
    plan_.reduction = mesh.reduction_bytes();
    plan_.libraries = library_bytes(options.types.compute, options.mesh.ranks());
}

void Engine::allocate(const Mesh& mesh) {
    mesh_ = &mesh;
    decoder_.parameters().allocate(true);
    gathered_.allocate({mesh[fsdp], mesh.gradient_reduction(), mesh[dp_replicate]}, exec_, kernels_);
    exec_.workspace = Arena(plan_.workspace, "kernel workspace");
    frame_ = Frame(plan_.activations, plan_.frame_entries);
    temp_ = Arena(plan_.temporaries, "temporaries");
    kv_ = make_kv_exchange(options_.context, mesh[cp]);
    const auto part_of = [&](const BatchShape& shape) {
        return BatchPart(
            shape, part_of_sequence(shape.seq_len, mesh.size(cp), mesh.rank(cp), options_.context.balancing));
    };
    training_part_ = part_of(options_.training);
    if (options_.validation.sequences > 0) validation_part_ = part_of(options_.validation);
}

MemoryPlan Engine::used() const {
    MemoryPlan used = plan_;
    used.activations = frame_.peak_bytes();
    used.frame_entries = frame_.peak_entries();
    used.temporaries = temp_.peak();
    used.workspace = exec_.workspace.peak();
    return used;
}

Ctx Engine::context(const Batch& batch, StepScalars& scalars) {
    return {exec_, kernels_, frame_, temp_, batch, scalars, *kv_, (*mesh_)[tp], loss_exchange(options_)};
}

void Engine::begin_step(int64_t step, double learning_rate, int64_t valid_tokens) {
    adam_.begin_step(step_.scalars(), uint64_t(step), learning_rate, valid_tokens);
    kernels_.zero(exec_, decoder_.parameters().gradients());
    micro_batches_left_ = options_.micro_batches;
}

void Engine::forward_backward(const MicroBatch& micro_batch) {
    const Batch batch = training_part_.of(micro_batch);
    Ctx c = context(batch, step_.scalars());
    require(micro_batches_left_ > 0, "a step has more micro-batches than were announced");
    if (--micro_batches_left_ == 0) gathered_.begin_last_micro_batch();
    stage_.forward_backward(c);
}

void Engine::sum_gradients() {
    gathered_.finish_gradients();
    if (exec_.observer) exec_.observer->begin("reduce_gradients", 0, 0);
    (*mesh_)[tp].all_reduce(decoder_.parameters().partial_gradients());
    if (exec_.observer) exec_.observer->end();
}

bool Engine::update() {
    sum_gradients();
    step_.scalars().loss = (*mesh_)[loss_axes].all_reduce(step_.scalars().loss);
    adam_.measure_norm(exec_, kernels_, decoder_.parameters(), step_.scalars(), options_.max_norm,
                       (*mesh_)[owner_axes]);
    adam_.update(exec_, kernels_, decoder_.parameters(), step_.scalars());
    gathered_.forget_weights();
    return step_.scalars().finite != 0;
}

void Engine::observe(KernelObserver* kernels, ArenaObserver* arenas) {
    exec_.observer = kernels;
    exec_.workspace.observe(arenas);
    temp_.observe(arenas);
    frame_.observe(arenas);
}

std::vector<std::pair<std::string, const Arena*>> Engine::arenas() const {
    return {
        {"activations", &frame_.memory()}, {"temporaries", &temp_}, {"kernel workspace", &exec_.workspace}};
}

const Storage* Engine::storage_of(const Tensor& tensor) const {
    const Parameters& parameters = decoder_.parameters();
    const auto holds = [&](const Tensor& whole) {
        const auto *first = static_cast<const std::byte*>(whole.data),
                   *at = static_cast<const std::byte*>(tensor.data);
        return first && at >= first && at + tensor.bytes() <= first + whole.bytes();
    };
    for (size_t u = 0; u < parameters.units().size(); ++u) {
        const bool there = gathered_.is_in_use(u);
        const Unit& unit = parameters.units()[u];
        for (size_t i = unit.first; i < unit.first + unit.count; ++i) {
            const Storage& storage = parameters.storages()[i];
            if (there && (holds(storage.w) || holds(storage.g))) return &storage;
            if (holds(storage.master) || holds(storage.gradient)) return &storage;
        }
    }
    return nullptr;
}

double Engine::evaluate(const MicroBatch& micro_batch) {
    const Batch batch = validation_part_.of(micro_batch);
    validation_.scalars() = StepScalars{};
    Ctx c = context(batch, validation_.scalars());
    stage_.evaluate(c);
    return validation_.scalars().loss;
}

}  // namespace coeus
