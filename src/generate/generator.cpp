// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/generator.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/models/model_config.hpp"
#include "coeus/models/stage_split.hpp"
#include "coeus/state/mesh_place.hpp"
#include "coeus/state/nothing_trained.hpp"

#include <algorithm>
#include <numeric>

namespace coeus {

namespace {

// Only training predicts further tokens.
DecoderConfig without_mtp(DecoderConfig config) {
    config.mtp.layers = 0;
    return config;
}

// The part of a pipeline rank, which has one stage.
DecoderPart part_of(const DecoderConfig& config, const Mesh& mesh) {
    const int stages = mesh.size(axis::pp);
    if (stages == 1) return DecoderPart::whole(config);
    const SplitWeights weights;
    if (const int64_t most = config.layers + weights.embedding + weights.head; stages > most)
        throw ConfigError(
            "parallelism.pipeline_parallel_degree = {}: the model has {}, so the largest valid value is {}",
            stages, counted(config.layers, "layer"), most);
    return split_evenly(config, stages, weights)[size_t(mesh.rank(axis::pp))];
}

StateTypes types_of(Dtype dtype) {
    return {.master = dtype, .compute = dtype, .frozen = nothing_trained()};
}

KvCache cache_of(const DecoderConfig& config, const DecoderPart& part, int64_t sequences, int64_t context,
                 Dtype dtype, const Mesh& mesh) {
    const HeadSizes sizes = config.head_sizes();
    const int64_t tp = mesh.size(axis::tp), cp = mesh.size(axis::cp), heads = sizes.kv_heads / tp;
    require(heads % cp == 0, "context-parallel ranks cannot divide the heads of keys and values");
    return KvCache(part.layers(), sequences, context, sizes.key_width() / (tp * cp),
                   sizes.value_width() / (tp * cp), dtype, part.first_layer);
}

// What makes the plan of a rank smaller.
std::string memory_remedy(const DecoderConfig& config, Dtype dtype, const MeshShape& mesh) {
    const bool divides = ModelConfig(config)->refusal({.tensor = 2 * mesh.tp, .expert = mesh.ep}).empty();
    return fmt::format("Reduce --context or --batch{} or use more ranks (parallelism.{}_degree)",
                       dtype == Dtype::bf16 ? "," : ", set --dtype=bfloat16,",
                       divides ? "tensor_parallel" : "data_parallel_shard");
}

}  // namespace

Generator::Generator(const DecoderConfig& config, Dtype dtype, int64_t context, int64_t sequences,
                     const GeneratorPlace& place)
    : mesh_(place.mesh),
      exec_(place.device),
      part_(part_of(without_mtp(config), mesh_)),
      cache_(cache_of(config, part_, sequences, context, dtype, mesh_)),
      texts_at_once_(std::min(sequences, kernels_of(place.device.backend()).thin_rows)),
      decoder_(without_mtp(config), types_of(dtype), context, place_in(mesh_.shape(), mesh_.world().rank()),
               {part_}, {}),
      gathered_(decoder_.parameters(), {}),
      logits_(decoder_.output(), decoder_.parameters().types().accumulate(), texts_at_once_,
              mesh_.size(axis::tp)),
      executor_(executor()),
      kernels_(&kernels_of(place.device.backend())),
      step_(place.device),
      lengths_(size_t(sequences), 0) {
    require(sequences >= 1, "there must be room for a text");
    exec_.threads = place.threads;
    layers_ = measure_generation(decoder_, executor_, logits_.columns(), cache_, texts_at_once_,
                                 {place.threads, place.device.architecture()}, place.device.backend(),
                                 Mesh::planned(mesh_.shape(), mesh_.world().rank()));
    plan_ = plan(place);
    const int64_t memory = place.memory_bytes > 0 ? place.memory_bytes : place.device.memory_bytes();
    together(mesh_.world(), [&] {
        require_fits(plan_, memory, [&] { return memory_remedy(config, dtype, mesh_.shape()); });
    });
    allocate(place);
}

Executor Generator::executor() {
    std::vector<int> ranks(size_t(mesh_.size(axis::pp)));
    std::iota(ranks.begin(), ranks.end(), 0);
    return Executor(Placement(ranks), mesh_.rank(axis::pp), stages_of(decoder_, &gathered_), exec_);
}

MemoryPlan Generator::plan(const GeneratorPlace& place) const {
    const bool gpu = !place.device.is_host();
    const MemoryPlace host = gpu ? MemoryPlace::host : MemoryPlace::device;
    const int ranks = mesh_.shape().ranks();
    MemoryPlan plan = plan_generation(decoder_, cache_, texts_at_once_, layers_, mesh_.shape());
    plan.add(term::gathered_weights, gathered_.bytes().weights);
    if (has_logits()) {
        plan.add(term::logits, logits_.bytes());
        plan.add(term::logits, logits_.bytes_on_host(gpu), host);
    }
    plan.add(term::reduction, Communicator::reduction_bytes(int(tp())), host);
    if (ranks > 1 && !gpu)
        plan.add(term::libraries, library_bytes(decoder_.parameters().types().compute, ranks));
    plan.add(term::nccl, place.nccl_bytes);
    return plan;
}

void Generator::allocate(const GeneratorPlace& place) {
    const Device& device = place.device;
    const Memory& memory = device.memory();
    const bool is_alone = mesh_.shape().ranks() == 1;
    // NCCL needs the calls of several communicators in the same order on every rank
    const Stream::Mode streams =
        is_alone || place.nccl_bytes > 0 ? Stream::Mode::eager : Stream::Mode::threaded;
    decoder_.allocate(false, device);
    cache_.allocate(memory);
    gathered_.allocate(gather_ranks(decoder_.parameters(), mesh_), streams, exec_, *kernels_);
    if (has_logits()) logits_.allocate(mesh_[axis::tp], device);
    exec_.workspace = Arena(layers_.workspace, "kernel workspace", memory);
    executor_.allocate(layers_.executor, mesh_[axis::pp], Sends::standard);
    temp_ = Arena(layers_.temporaries, "temporaries", memory);
    const int64_t most = most_rows(cache_, texts_at_once(), mesh_.shape());
    tokens_ = StagedIds(device, most, "tokens");
    positions_ = StagedIds(device, most, "positions");
    slots_ = StagedIds(device, texts_at_once(), "slots");
    exchanges_.emplace(ExchangeOptions{}, mesh_, exec_, streams);
    mesh_[axis::tp].prepare_sums();
}

LayerMemory Generator::used() const {
    LayerMemory used = layers_;
    const Frame& frame = executor_.frames().front();
    used.activations = frame.peak_bytes();
    used.executor.frame_entries = frame.peak_entries();
    used.temporaries = temp_.peak();
    used.workspace = exec_.workspace.peak();
    return used;
}

void Generator::weights_changed() {
    decoder_.parameters().refresh_compute(exec_, *kernels_);
    gathered_.forget_weights();
}

Tensor Generator::read(int64_t slot, std::span<const int32_t> tokens, int64_t longest) {
    const auto count = int64_t(tokens.size());
    if (longest == 0) longest = count;
    require(longest >= 1 && count <= longest && longest <= context(),
            "a text must have from 1 to context() tokens");
    const int64_t rows = round_up(longest, tp() * cp()) / cp(), first = mesh_.rank(axis::cp) * rows;
    for (int64_t i = 0; i < rows; ++i) {
        tokens_.host()[i] = first + i < count ? tokens[size_t(first + i)] : 0;
        positions_.host()[i] = int32_t(std::min(first + i, context() - 1));
    }
    if (count > 0) lengths_[size_t(slot)] = count;
    const int64_t last = std::max<int64_t>(count, 1) - 1, place = last % rows;
    const PromptExchange of_heads(cache_, slot, count);
    const Tensor logits = run({.sequences = 1, .seq_len = rows},
                              HeadsExchange(mesh_[axis::cp], Balancing::none, of_heads), {&place, 1});
    return last / rows == mesh_.rank(axis::cp) ? logits : Tensor{};
}

Tensor Generator::append(std::span<const Next> tokens, int64_t longest) {
    const auto count = int64_t(tokens.size());
    if (longest == 0) longest = count;
    require(longest >= 1 && count <= longest && longest <= texts_at_once(),
            "there must be from 1 to texts_at_once() tokens");
    const int64_t rows = round_up(longest, tp());
    std::vector<int64_t> places = {0};
    for (int64_t i = 0; i < count; ++i) {
        const Next& next = tokens[size_t(i)];
        int64_t& length = lengths_[size_t(next.slot)];
        require(length >= 1 && length < context(), "the slot must have a text and must not be full");
        tokens_.host()[i] = next.token;
        positions_.host()[i] = int32_t(length++);
        slots_.host()[i] = int32_t(next.slot);
        if (i > 0) places.push_back(i);
    }
    std::fill(tokens_.host() + count, tokens_.host() + rows, 0);
    std::fill(positions_.host() + count, positions_.host() + rows, 0);
    const CachedExchange of_heads(cache_, slots_.brought(exec_, count));
    const Tensor logits =
        run({.sequences = rows, .seq_len = 1}, OwnHeadsExchange(mesh_[axis::cp], of_heads), places);
    return mesh_.rank(axis::cp) == 0 ? logits : Tensor{};
}

// `tokens`: the places of those whose next token is wanted, at least one.
Tensor Generator::run(const BatchShape& shape, const KvExchange& exchange, std::span<const int64_t> tokens) {
    const Batch batch = {.sequences = shape.sequences,
                         .seq_len = shape.seq_len,
                         .tokens = tokens_.brought(exec_, shape.count()),
                         .labels = {},
                         .positions = positions_.brought(exec_, shape.count()),
                         .document_start = {}};
    const auto count = int64_t(tokens.size());
    const auto context_of = [&](int, Frame& frame, bool) {
        return exchanges_->generating_context({exec_, *kernels_, frame, temp_, step_.scalars()}, batch,
                                              exchange);
    };
    executor_.predict(decoder_.flow_into(1, shape), context_of, tokens,
                      has_logits() ? logits_.own(count) : Tensor{});
    if (has_logits()) return logits_.gather(exec_, count);
    exec_.queue->finish();
    return {};
}

}  // namespace coeus
