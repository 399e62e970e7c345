// SPDX-License-Identifier: Apache-2.0
#include "coeus/engine/engine.hpp"

#include "coeus/models/decoder.hpp"
#include "coeus/optim/grad_norm.hpp"
#include "coeus/state/mesh_place.hpp"
#include "coeus/state/nothing_trained.hpp"
#include "memory_plan.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

BatchShape micro_batch_of(const EngineOptions& options) {
    return {.sequences = options.training.sequences / options.pipeline.timetable.microbatches,
            .seq_len = options.training.seq_len,
            .masks_documents = options.training.masks_documents};
}

// True if the parts are the whole model, one after the other.
bool are_whole(const std::vector<ModelPart>& parts, const ModelPart& whole) {
    size_t next = whole.first;
    return std::ranges::all_of(parts,
                               [&](const ModelPart& part) {
                                   return std::exchange(next, part.last) == part.first &&
                                          part.first <= part.last;
                               }) &&
           next == whole.last;
}

// The options of an engine that only evaluates: nothing is trained.
EngineOptions without_training(EngineOptions options) {
    options.training = {};
    options.accumulation = 0;
    options.recompute = {};
    options.types.frozen = nothing_trained();
    options.types.offload = options.types.gradients_in_bf16 = false;
    options.copies_state = options.overlap_pairs = options.limits = options.snapshot = options.graphs = false;
    options.expert_blocks = false;
    return options;
}

// The options with their defaults filled in.
EngineOptions complete(const ModelConfig& config, const EngineOptions& asked) {
    EngineOptions options = asked.trains ? asked : without_training(asked);
    PipelineOptions& pipeline = options.pipeline;
    if (pipeline.parts.empty()) pipeline.parts = {config.whole()};
    require(pipeline.timetable.ranks() == options.mesh.pp &&
                pipeline.timetable.stages() == int(pipeline.parts.size()),
            "a pipeline needs the ranks of the mesh and a part of the model for each stage");
    require(are_whole(pipeline.parts, config.whole()),
            "the parts of a pipeline must be the whole model, one after the other");
    require(options.training.sequences % pipeline.timetable.microbatches == 0,
            "a local batch must divide evenly into micro-batches");
    const bool halves = pipeline.timetable.has_halves(),
               keeps = options.gather.weights == Keep::all && options.gather.gradients == Keep::all;
    options.overlap_pairs = options.overlap_pairs && options.mesh.ep > 1 && pipeline.timetable.has_pairs() &&
                            !options.types.offload && (halves || keeps || options.mesh.size(axis::fsdp) == 1);
    options.gather.in_use = halves && options.overlap_pairs ? 2 : 1;
    options.exchanges.expert_blocks = options.expert_blocks.value_or(options.graphs) && options.mesh.ep > 1;
    if (!options.chunk_bytes)
        options.chunk_bytes =
            options.machine.backend == Backend::cpu ? cpu_chunk_bytes : gpu_chunk_bytes.back();
    constexpr int64_t multiprocessors = 132;  // of an H100; an A100 has 108, a B200 148
    int64_t& tiles_at_a_time = options.exchanges.tiles.at_a_time;
    if (options.machine.backend == Backend::cuda && tiles_at_a_time == 0) tiles_at_a_time = multiprocessors;
    if (config->attends_to_all()) options.exchanges.context.balancing = Balancing::none;
    config->require_countable(micro_batch_of(options));
    config->require_countable(options.validation);
    return options;
}

std::vector<ModelPart> parts_of(const PipelineOptions& pipeline, int rank) {
    std::vector<ModelPart> parts;
    for (const int stage : pipeline.timetable.placement.stages_of(rank))
        parts.push_back(pipeline.parts[size_t(stage)]);
    return parts;
}

// The timetable with its messages. Stages before the first one that trains something get no gradients.
LoweredTimetable lowered(const ModelConfig& config, const EngineOptions& options) {
    const PipelineOptions& pipeline = options.pipeline;
    if (pipeline.parts.size() == 1 || !options.trains) return lower(pipeline.timetable);
    const size_t first_trained =
        config->build(options.types, 1, place_in(options.mesh, 0), {pipeline.parts[0]}, {})->first_trained();
    const auto stage = std::ranges::find_if(pipeline.parts,
                                            [&](const ModelPart& part) { return part.last > first_trained; });
    return lower(pipeline.timetable, {}, int(stage - pipeline.parts.begin()));
}

Executor executor_for(const EngineOptions& options, const LoweredTimetable& timetable,
                      std::vector<Stage> stages, Exec& exec) {
    const int rank = options.mesh.coordinate(options.rank, axis::pp);
    return options.trains ? Executor(timetable, rank, std::move(stages), exec)
                          : Executor(options.pipeline.timetable.placement, rank, std::move(stages), exec);
}

Processor processor_of(const EngineOptions& options) {
    return {.threads = options.machine.threads,
            .architecture = options.machine.architecture,
            .emulates_8_bits = options.types.precision.emulate,
            .experts_in_8_bits = options.experts_in_8_bits,
            .cudnn_bytes = options.machine.cudnn_bytes,
            .deterministic = options.deterministic,
            .chunk_bytes = options.chunk_bytes.value()};
}

// The choices for this rank's stages, or their plan, by `choose`: as planned by the first of the ranks with
// these stages. All of them must choose alike: recomputation repeats communication, and if parts are not
// even, ranks that plan for themselves could choose differently.
auto recompute_for(const ModelConfig& config, const EngineOptions& options, const LoweredTimetable& timetable,
                   const auto& choose) {
    const int rank = options.mesh.coordinate(options.rank, axis::pp);
    const int first = rank * (options.mesh.ranks() / options.mesh.pp);
    const Mesh mesh = Mesh::planned(options.mesh, first);
    const std::vector<ModelPart> parts = parts_of(options.pipeline, rank);
    Exec exec;
    const auto model_with = [&](const std::vector<Recompute>& choices) {
        return config->build(options.types, 1, place_in(options.mesh, first), parts, choices);
    };
    const std::unique_ptr<Model> any = model_with({});
    const Executor executor = executor_for(options, timetable, stages_of(*any, nullptr), exec);
    return choose(options.recompute, config->all_layers(), [&](const std::vector<Recompute>& choices) {
        const Processor processor = {.threads = options.machine.threads,
                                     .chunk_bytes = options.chunk_bytes.value()};
        return measure_training(
            *model_with(choices), executor,
            {micro_batch_of(options), {}, processor, options.exchanges, options.machine.backend}, mesh);
    });
}

}  // namespace

struct Engine::Run {
    ModelConfig config;
    EngineOptions options;  // complete, but for the rank
    LoweredTimetable timetable;

    Run(const ModelConfig& model, const EngineOptions& asked)
        : config(model), options(complete(model, asked)), timetable(lowered(model, options)) {}
    EngineOptions options_of(int rank) const {
        EngineOptions own = options;
        own.rank = rank;
        return own;
    }
};

std::vector<MemoryPlan> plans_of_stages(const ModelConfig& config, const EngineOptions& options) {
    std::vector<MemoryPlan> plans;
    const Engine::Run run(config, options);
    for (int stage = 0; stage < options.mesh.pp; ++stage)
        plans.push_back(Engine(run, stage * (options.mesh.ranks() / options.mesh.pp)).plan());
    return plans;
}

RecomputePlan Engine::recompute() const {
    return recompute_for(config_, options_, lowered(config_, options_), plan_recompute);
}

Engine::Engine(const ModelConfig& config, const EngineOptions& options)
    : Engine(Run(config, options), options.rank) {}

Engine::Engine(const Run& run, int rank)
    : config_(run.config),
      options_(run.options_of(rank)),
      model_(config_->build(options_.types, std::max(options_.training.seq_len, options_.validation.seq_len),
                            place_in(options_.mesh, rank),
                            parts_of(options_.pipeline, options_.mesh.coordinate(rank, axis::pp)),
                            recompute_for(config_, options_, run.timetable, choose_recompute))),
      one_scale_weights_(model_->parameters()),
      gathered_(model_->parameters(), options_.gather),
      executor_(executor_for(options_, run.timetable, stages_of(*model_, &gathered_), exec_)),
      optimizer_(options_.optimizer, options_.seed, options_.param_groups) {
    if (options_.trains) options_.types.frozen.require_sensible(model_->parameters());
    optimizer_.attach(model_->parameters());
    static_cast<Processor&>(exec_) = processor_of(options_);
    if (options_.keeps_operands)
        kept_operands_.emplace(model_->parameters(), exec_, dry_kernels_of(options_.machine.backend),
                               Mesh::planned(options_.mesh, rank)[axis::tp]);
    if (options_.predicts)
        logits_.emplace(decoder_of(*model_).output(), options_.types.accumulate(),
                        options_.validation.sequences, options_.mesh.tp);
    layers_ = measure_training(
        *model_, executor_,
        {micro_batch_of(options_), options_.validation, processor_of(options_), options_.exchanges,
         options_.machine.backend, options_.overlap_pairs, logits_ ? logits_->columns() : 0},
        Mesh::planned(options_.mesh, rank));
    measure_update();
    plan_ = plan_training(
        options_, *model_,
        {.scales = one_scale_weights_.bytes(), .operands = kept_operands_ ? kept_operands_->bytes() : 0},
        gathered_, layers_, logits_ && has_last_stage() ? &*logits_ : nullptr);
}

// The update comes after the last layer, so its scratch memory shares the arena of the layers' temporaries.
void Engine::measure_update() {
    const Mesh mesh = Mesh::planned(options_.mesh, options_.rank);
    Exec exec(processor_of(options_));
    Arena scratch;
    const std::vector<MatrixRanks> ranks = matrix_ranks(mesh);
    const WholeMatrices matrices(ranks, scratch);
    const Kernels& kernels = dry_kernels_of(options_.machine.backend);
    optimizer_.transform(exec, kernels, model_->parameters(), matrices);
    if (kept_operands_)
        kept_operands_->renew(exec, kernels, scratch, mesh[axis::tp], KeptOperands::Changed::all);
    layers_.temporaries = std::max(layers_.temporaries, scratch.peak());
    layers_.workspace = std::max(layers_.workspace, exec.workspace.peak());
}

void Engine::allocate(const Mesh& mesh, const Device& device, const Kernels& kernels) {
    require(device.backend() == options_.machine.backend, "the engine was planned for another backend");
    require(!options_.types.offload || !device.is_host(),
            "state that is on the host already cannot be offloaded");
    mesh_ = &mesh;
    exec_.run_on(device);
    kernels_ = &kernels;
    const Memory& memory = device.memory();
    model_->allocate(options_.trains, device);
    one_scale_weights_.allocate();
    if (kept_operands_) kept_operands_->allocate(exec_, *kernels_, mesh[axis::tp]);
    step_.emplace(device);
    validation_.emplace(device);
    gathered_.allocate(gather_ranks(model_->parameters(), mesh), options_.streams, exec_, *kernels_);
    for (const MatrixRanks& ranks : matrix_ranks(mesh)) matrix_ranks_.push_back(ranks);
    if (const Counters counters = model_->counters(); counters.rows > 0)
        counts_ = OwnedTensor(Dtype::i64, {counters.rows, counters.columns}, counters.name, memory);
    if (options_.scores_tokens)
        scores_ =
            OwnedTensor(options_.types.accumulate(),
                        {3, options_.validation.divided(mesh.size(axis::cp)).count()}, term::scores, memory);
    if (logits_ && has_last_stage()) logits_->allocate(mesh[axis::tp], device);
    exec_.workspace = Arena(layers_.workspace, "kernel workspace", memory);
    executor_.allocate(layers_.executor, mesh[axis::pp], options_.pipeline.sends);
    temporaries_.allocate(layers_, memory);
    if (options_.types.offload)
        offloading_.offload_state(model_->parameters(), options_.offload_chunk, exec_);
    if (layers_.activations_on_host > 0)
        offloading_.offload_inputs(
            model_->flow_into(1, micro_batch_of(options_).divided(mesh.size(axis::cp))), exec_);
    exchanges_.emplace(options_.exchanges, mesh, exec_, options_.streams, layers_.tokens);
    if (options_.overlap_pairs) {
        executor_.take_turns_in_pairs();
        exchanges_->set_meanwhile([this] { executor_.other_of_pair(); });
    }
    const auto part_of = [&](const LocalBatches& batches) {
        return model_->batches().part(batches, part_of_sequences(batches.shape.seq_len), device);
    };
    batches_.allocate({options_.training, options_.accumulation, options_.pipeline.timetable.microbatches},
                      options_.validation, part_of);
    connect(mesh);
}

// This rank's tokens of each sequence.
SequencePart Engine::part_of_sequences(int64_t seq_len) const {
    return part_of_sequence(seq_len, mesh_->size(axis::cp), mesh_->rank(axis::cp),
                            options_.exchanges.context.balancing);
}

// Connects the ranks that share a parameter, and prepares all sums.
void Engine::connect(const Mesh& mesh) {
    const Placement& placement = options_.pipeline.timetable.placement;
    if (model_->ends_train_one_parameter() &&
        placement.rank_of(0) != placement.rank_of(placement.stages() - 1))
        sharing_ranks_ =
            mesh[axis::pp].split(model_->shared_storage() ? 0 : 1, "ranks with the embedding table");
    if (sharing_ranks_) mesh.connect(*sharing_ranks_);
    for (const Communicator* sum : summing(mesh, options_)) sum->prepare_sums();
    if (model_->shared_storage()) sharing_ranks_->prepare_sums();
}

// Those of each sharding.
std::vector<MatrixRanks> Engine::matrix_ranks(const Mesh& mesh) const {
    std::vector<MatrixRanks> ranks;
    for (size_t sharding = 0; sharding < model_->parameters().places().size(); ++sharding)
        if (sharding != dense_sharding && sharding == model_->parameters().expert_sharding_in_use())
            ranks.push_back({mesh[axis::efsdp], mesh[axis::etp]});
        else
            ranks.push_back({mesh[axis::fsdp], mesh[axis::tp]});
    return ranks;
}

LayerMemory Engine::used() const {
    LayerMemory used = layers_;
    ExecutorMemory& executor = used.executor;
    executor.frame = executor.validation_frame = executor.frame_on_host = 0;
    executor.frame_entries = 0;
    // if validation needs more than training, its peak is that of the frames that it uses
    const auto validated = layers_.executor.validation_frame > layers_.executor.frame
                               ? size_t(executor_.validation().frames)
                               : 0;
    for (size_t i = 0; i < executor_.frames().size(); ++i) {
        const Frame& frame = executor_.frames()[i];
        int64_t& most = i < validated ? executor.validation_frame : executor.frame;
        most = std::max(most, frame.peak_bytes());
        executor.frame_entries = std::max(executor.frame_entries, frame.peak_entries());
        executor.frame_on_host = std::max(executor.frame_on_host, frame.peak_host_bytes());
    }
    used.activations = executor_.frame_bytes(executor);
    used.activations_on_host = executor_.frame_bytes_on_host(executor);
    temporaries_.report(used);
    if (exchanges_->overlapped_tokens) used.tokens = exchanges_->overlapped_tokens->used();
    used.workspace = exec_.workspace.peak();
    return used;
}

// First stages what the host adds to a step; then submits the work, which is the same in each step.
bool Engine::compute_gradients(int64_t step, double learning_rate, int64_t counted,
                               FunctionRef<LocalBatch(int64_t)> local_batch, const StepLimits& limits,
                               FunctionRef<bool()> goes_on) {
    require(options_.trains, "this engine only evaluates");
    exec_.queue->finish();  // waits for a step without update()
    StepScalars scalars = optimizer_.begin_step(uint64_t(step), learning_rate, counted);
    scalars.loss_limit = limits.loss;
    scalars.norm_limit = limits.norm;
    step_->stage(scalars);
    for (int64_t i = 0; i < options_.accumulation; ++i) batches_.stage(i, local_batch(i));
    exchanges_->forget_extra_rounds();
    return gives_graphs() ? submit_graphs() : submit_gradients(goes_on);
}

// With options_.graphs, `goes_on` is not called in an observed step either, although that is not a graph: all
// ranks must call it alike, and what observes may be on one rank only.
bool Engine::submit_gradients(FunctionRef<bool()> goes_on) {
    begin_gradients();
    bool whole = true;
    for (int64_t i = 0; i < options_.accumulation && whole; ++i) {
        if (i > 0 && !options_.graphs && !goes_on()) {
            whole = false;
        } else {
            batches_.bring(exec_, i);
            forward_backward(i == options_.accumulation - 1);
        }
    }
    sum_over_ranks();
    return whole;
}

// One graph for each local batch; those between the first and the last share one. The ids of a local batch
// are brought before its graph, to where the local batch before had its own. Every replay must begin with the
// same gathered units as the recording; so the first graph begins with none.
bool Engine::submit_graphs() {
    gathered_.forget_weights();
    for (int64_t i = 0; i < options_.accumulation; ++i) {
        const bool first = i == 0, last = i == options_.accumulation - 1;
        batches_.bring(exec_, i);
        graphs_.give_gradients(exec_, first, last, [&] {
            if (first) begin_gradients();
            forward_backward(last);
            if (last) sum_over_ranks();
            gathered_.finish_streams();
        });
    }
    return true;
}

void Engine::begin_gradients() {
    step_->bring(exec_);
    model_->parameters().begin_gradients(exec_, *kernels_);
    if (counts_.view) kernels_->zero(exec_, counts_);
}

StepOutcome Engine::update() {
    if (gives_graphs())
        graphs_.give_update(exec_, [this] { submit_update(); });
    else
        submit_update();
    gathered_.forget_weights();
    StepOutcome outcome;
    outcome.computed_twice = step_->read(exec_).overflow > 0;
    if (outcome.computed_twice) repeat_with_rounds();
    repetitions_.add(outcome.computed_twice);
    if (uses_expert_blocks() && repetitions_.are_frequent()) {
        outcome.gave_up_blocks = true;
        options_.exchanges.expert_blocks = options_.graphs = false;
        exchanges_->use_blocks(false);
    }
    outcome.taken = step_->last_read().refusals == 0;
    return outcome;
}

void Engine::submit_update() {
    measure_norm(exec_, *kernels_, model_->parameters(), step_->scalars(), options_.max_norm,
                 (*mesh_)[owner_axes]);
    if (options_.limits) agree_on_refusal();
    const WholeMatrices matrices(matrix_ranks_, temporaries_.of(false));
    one_scale_weights_.begin_update(exec_, *kernels_);
    optimizer_.update(exec_, *kernels_, model_->parameters(), step_->scalars(), &matrices,
                      offloading_.state());
    one_scale_weights_.finish_update(exec_, *kernels_, (*mesh_)[owner_axes]);
    renew_kept_operands(KeptOperands::Changed::trained);
    model_->after_update(exec_, *kernels_, counts_, step_->scalars());
}

// Nothing was updated, and the local batches are still staged.
void Engine::repeat_with_rounds() {
    exchanges_->use_blocks(false);
    step_->stage_again();
    submit_gradients([] { return true; });
    submit_update();
    gathered_.forget_weights();
    exchanges_->use_blocks(true);
    step_->read(exec_);
}

// Groups of ranks that have summed the same loss and norm in different orders may find a limit between their
// results.
void Engine::agree_on_refusal() {
    const Tensor refusals(&step_->scalars().refusals, Dtype::f64, {1});
    for (const unsigned axes : {owner_axes, unsigned(axis::dp_replicate)})
        (*mesh_)[axes].all_reduce(exec_, refusals);
}

void Engine::renew_weights() {
    model_->parameters().refresh_compute(exec_, *kernels_);
    one_scale_weights_.renew(exec_, *kernels_, (*mesh_)[owner_axes]);
    renew_kept_operands(KeptOperands::Changed::all);
    gathered_.forget_weights();
}

void Engine::renew_kept_operands(KeptOperands::Changed changed) {
    if (kept_operands_)
        kept_operands_->renew(exec_, *kernels_, temporaries_.of(false), (*mesh_)[axis::tp], changed);
}

// `last`: the local batch is the step's last.
void Engine::forward_backward(bool last) {
    executor_.forward_backward(
        model_->flow_into(1, batches_.micro_batch(0).shape()), last, [&](int m, Frame& frame, bool paired) {
            Ctx c = exchanges_->context(
                {exec_, *kernels_, frame, temporaries_.of(paired), step_->scalars(), offloading_.inputs()},
                batches_.micro_batch(m), paired ? Exchanges::Pass::paired : Exchanges::Pass::training);
            c.counts = counts_;
            return c;
        });
}

void Engine::sum_over_ranks() {
    gathered_.finish_gradients();
    const ObservedExchange noted(exec_, Exchange::reduce_gradients);
    (*mesh_)[axis::tp].all_reduce(exec_, model_->parameters().partial_gradients());
    if (const Storage* shared = model_->shared_storage()) sharing_ranks_->all_reduce(exec_, shared->gradient);
    StepScalars& scalars = step_->scalars();
    add_losses_of_own_tokens();
    exec_.queue->copy(&scalars.own_loss, &scalars.loss, sizeof scalars.loss);
    (*mesh_)[loss_axes].all_reduce(exec_, Tensor(&scalars.loss, Dtype::f64, {1}));
    for (const PartOfLoss& part : model_->losses())
        (*mesh_)[loss_axes].all_reduce(exec_, Tensor(&scalars.losses[part.number], Dtype::f64, {1}));
    // Integers: the sum does not depend on the order. Pipeline ranks have counted other layers.
    const auto sum_over_all = [&](Tensor counts) {
        for (const unsigned axes : {loss_axes, unsigned(axis::tp)}) (*mesh_)[axes].all_reduce(exec_, counts);
    };
    if (options_.exchanges.expert_blocks) sum_over_all(Tensor(&scalars.overflow, Dtype::i64, {1}));
    if (counts_.view) sum_over_all(counts_);
}

void Engine::add_losses_of_own_tokens() {
    StepScalars& scalars = step_->scalars();
    for (const PartOfLoss& part : model_->losses()) {
        if (part.terms != PartOfLoss::Terms::of_own_tokens) continue;
        const Tensor sum(&scalars.losses[part.number], Dtype::f64, {1});
        (*mesh_)[axis::tp].all_reduce(exec_, sum);
        kernels_->sum(exec_, &scalars.loss, sum);
    }
}

std::vector<int64_t> Engine::counts() const {
    std::vector<int64_t> all(size_t(counts_.view ? counts_.view.count() : 0));
    if (!all.empty()) exec_.device->copy(all.data(), counts_.view.data, counts_.view.bytes());
    return all;
}

void Engine::observe_arenas(ArenaObserver* arenas) {
    exec_.workspace.observe(arenas);
    temporaries_.observe(arenas);
    if (exchanges_->overlapped_tokens) exchanges_->overlapped_tokens->observe(arenas);
    executor_.observe(arenas);
}

void Engine::observe_pipeline(ActionObserver* actions, CommunicationObserver* communication) {
    executor_.observe_actions(actions);
    if (sharing_ranks_) sharing_ranks_->observe(communication);
}

std::vector<std::pair<std::string, const Arena*>> Engine::arenas() const {
    std::vector<std::pair<std::string, const Arena*>> all;
    const std::vector<Frame>& frames = executor_.frames();
    for (size_t i = 0; i < frames.size(); ++i)
        all.emplace_back(
            frames.size() == 1 ? term::activations : fmt::format("{}, frame {}", term::activations, i),
            &frames[i].memory());
    for (const auto& arena : temporaries_.arenas()) all.push_back(arena);
    if (exchanges_->overlapped_tokens)
        for (const auto& arena : exchanges_->overlapped_tokens->arenas()) all.push_back(arena);
    all.emplace_back(term::workspace, &exec_.workspace);
    return all;
}

const Storage* Engine::storage_of(const Tensor& tensor) const {
    const Parameters& parameters = model_->parameters();
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

}  // namespace coeus
