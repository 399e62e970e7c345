// SPDX-License-Identifier: Apache-2.0
#include "support/mesh_run.hpp"

#include "coeus/comm/nccl_world.hpp"
#include "coeus/state/held_block.hpp"
#include "coeus/state/replica.hpp"
#include "support/cases.hpp"
#include "support/copy_converting.hpp"
#include "support/library_products.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace coeus::test {

std::string MeshCase::name() const {
    constexpr const char* names[] = {"all_gather", "ring", "heads"};
    constexpr const char* recomputed[] = {"", ", operations recomputed", ", blocks recomputed",
                                          ", recomputed by budget"};
    const Timetable& table = pipeline.timetable;
    std::string text =
        fmt::format("{}, {} x {} sequences of {}", mesh.text(), local_batches, sequences, seq_len);
    if (document_mask) text += ", documents";
    if (model.tied) text += ", tied";
    text += fmt::format(", {} heads of {} keys, vocabulary {}{}", model.head_sizes().heads,
                        model.head_sizes().kv_heads, model.vocab, recomputed[int(recompute.mode)]);
    if (model.is_latent()) {
        text += fmt::format(", latents of {} and {}", model.latent().kv_rank, model.latent().q_rank);
    } else {
        const GroupedAttentionConfig& a = model.grouped();
        if (a.qk_norm != QkNorm::none) text += ", norms of heads";
        if (a.rope_fraction < 1) text += ", RoPE of a part";
        if (a.bias != AttentionBias::none) text += a.sinks ? ", biases, sinks, windows" : ", biases";
        if (a.chunk > 0) text += ", chunks";
    }
    if (model.moe.experts > 0)
        text += fmt::format(", {} experts{}", model.moe.experts, model.moe.biases ? " with biases" : "");
    if (!model.windowed.word.empty()) text += ", irregular choices of layers";
    if (mesh.ep > 1) text += fmt::format(", capacity {}", exchanges.expert_capacity);
    if (mesh.size(axis::fsdp) > 1)
        text += fmt::format("{}{}", gather.weights == Keep::all ? ", weights kept" : "",
                            gather.gradients == Keep::all ? ", gradients kept" : "");
    if (streams != Stream::Mode::eager)
        text += streams == Stream::Mode::threaded ? ", threaded streams" : ", deferred streams";
    if (mesh.tp > 1 && !exchanges.split_loss) text += ", whole loss";
    if (mesh.cp > 1)
        text += fmt::format(", {}{}", names[int(exchanges.context.exchange)],
                            exchanges.context.balancing == Balancing::none ? "" : " head-tail");
    if (!device->is_host()) text += nccl ? ", GPUs by NCCL" : ", GPU";
    if (graphs) text += ", graphs";
    if (types.offload) text += ", offloaded";
    if (types.gradients_in_bf16) text += ", gradients in bfloat16";
    if (guarded) text += ", guarded";
    if (const std::string frozen = types.frozen.text(); !frozen.empty()) text += ", frozen: " + frozen;
    if (types.precision.any())
        text += fmt::format(", recipes {} and {} of experts{}", int(types.precision.linear),
                            int(types.precision.experts),
                            types.precision.gather_in_8_bits ? ", weights gathered in 8 bits" : "");
    if (keeps_operands) text += ", operands kept";
    if (optimizer.name != "AdamW") text += ", " + optimizer.name;
    if (mesh.tp > 1 && exchanges.overlap_tokens) text += ", overlapped";
    if (table.has_halves()) text += overlap_pairs ? ", halves in turn" : ", halves one after the other";
    if (table.stages() > 1)
        text += fmt::format(", {} of {} stages, {} micro-batches", table.name, table.stages(),
                            table.microbatches);
    return text;
}

MeshRun::MeshRun(const MeshCase& c, const Mesh& mesh)
    : engine(c.model, {.types = c.types,
                       .training = {.sequences = c.sequences, .seq_len = c.seq_len},
                       .accumulation = c.local_batches,
                       .validation = {.sequences = c.validation_batch(), .seq_len = c.seq_len},
                       .optimizer = c.optimizer,
                       .mesh = mesh.shape(),
                       .rank = mesh.world().rank(),
                       .machine = {.backend = c.device->backend(), .architecture = c.device->architecture()},
                       .gather = c.gather,
                       .exchanges = c.exchanges,
                       .streams = c.streams,
                       .recompute = c.recompute,
                       .overlap_pairs = c.overlap_pairs,
                       .limits = c.guarded,
                       .snapshot = c.guarded,
                       .pipeline = c.pipeline,
                       .keeps_operands = c.keeps_operands,
                       .graphs = c.graphs,
                       .offload_chunk = c.offload_chunk}),
      sequences_(c.sequences),
      validated_(c.validation_batch()) {
    engine.allocate(mesh, *c.device);
    engine.model().parameters().initialise(engine.exec(), engine.kernels(), 5);
    engine.renew_weights();
}

void MeshRun::compute_gradients(int64_t number, TestBatch& batch, const StepLimits& limits) {
    const Mesh& mesh = engine.mesh();
    const int64_t first = mesh.rank(axis::dp) * (batch.sequences / mesh.size(axis::dp));
    engine.compute_gradients(
        number, 1e-2, batch.valid_labels(),
        [&](int64_t i) { return batch.local_batch(first + i * sequences_, sequences_); }, limits);
}

bool MeshRun::step(int64_t number, TestBatch& batch, const StepLimits& limits) {
    compute_gradients(number, batch, limits);
    return engine.update().taken;
}

void MeshRun::poison_gradients() {
    const Parameters& parameters = engine.model().parameters();
    for (const Storage& storage : parameters.storages())
        for (const Tensor& gradient : {storage.gradient, storage.g}) {
            if (!gradient.data || gradient.count() == 0) continue;
            const OwnedTensor nan(gradient.dtype, gradient.shape);
            poison(nan);
            parameters.device().copy(gradient.data, nan.view.data, nan.view.bytes());
        }
}

double MeshRun::evaluate(TestBatch& batch) {
    const double loss = engine.evaluate(batch.local_batch(0, validated_));
    return engine.mesh()[axis::pp].all_reduce(engine.mesh()[axis::cp].all_reduce(loss));
}

std::map<std::string, std::vector<double>> whole_parameters(const Engine& engine, const StorageTensor& kind) {
    const Mesh& mesh = engine.mesh();
    std::map<std::string, std::vector<double>> all;
    for (const Storage* listed : engine.model().parameters().model()) {
        const Storage& storage = *listed;
        const Tensor tensor = kind(storage);
        for (const Param& param : storage.params()) {
            std::vector<double>& values = all[param.name];
            values.resize(size_t(param.shape.count()));
            if (!tensor.data) continue;
            if (replica_of(param, storage.place()).number > 0) continue;
            for (const HeldBlock& block : blocks_of(storage, param, tensor)) {
                const OwnedTensor here(block.local.dtype, block.local.shape);
                engine.model().parameters().device().copy(here.view.data, block.local.data,
                                                          here.view.bytes());
                const std::vector<double> elements = values_of(here);
                const int64_t rows = block.local.rows(), cols = block.local.cols(),
                              all_cols = param.shape.cols();
                for (int64_t i = 0; i < rows; ++i)
                    std::copy_n(elements.begin() + i * cols, cols,
                                values.begin() + (block.first_row + i) * all_cols + block.first_col);
            }
        }
    }
    for (auto& [name, values] : all)
        mesh.world().all_reduce(Tensor(values.data(), Dtype::f64, {int64_t(values.size())}));
    return all;
}

TestBatch batch_of_step(const MeshCase& c, uint64_t seed) {
    TestBatch batch(c.sequences * c.local_batches * c.mesh.size(axis::dp), c.seq_len, c.model.vocab, seed);
    batch.ignore_every(5);
    if (c.document_mask) batch.split_documents(c.document_length, false);
    return batch;
}

std::string use_differs_from_plan(const MeshCase& c, const Engine& engine) {
    const LayerMemory planned = engine.layer_memory(), used = engine.used();
    std::string lines;
    const auto compare = [&](const char* what, int64_t is, int64_t should) {
        if (is != should) lines += fmt::format("{} bytes of {} were used, {} planned\n", is, what, should);
    };
    // The plan has room for a later round of experts' rows. With a capacity below 1 each layer has one; with
    // a large one the plan has none; with others it depends on the loads.
    const double capacity = c.exchanges.expert_capacity;
    const bool has_rounds = c.mesh.ep > 1 && c.model.moe.experts > 0,
               may_have_none = has_rounds && capacity >= 1 && capacity < c.mesh.ep,
               // the plan has room for rounds too, which a step needs only if it is computed again
        has_blocks = has_rounds && c.graphs && engine.steps_computed_twice() == 0;
    const auto compare_most = [&](const char* what, int64_t is, int64_t should, bool may_be_less) {
        compare(what, is, may_be_less ? std::min(is, should) : should);
    };
    compare_most("activations", used.activations, planned.activations, has_blocks);
    compare("offloaded activations", used.activations_on_host, planned.activations_on_host);
    for (const auto& [what, is, should] :
         {std::tuple("temporaries", used.temporaries, planned.temporaries),
          std::tuple("temporaries of pairs", used.paired_temporaries, planned.paired_temporaries)})
        compare_most(what, is, should, may_have_none || has_blocks);
    // products of 8-bit floats with a common scale: the plan has room for their sums
    const bool by_library = c.types.compute != Dtype::f64 && c.types.precision.linear == Recipe::tensorwise &&
                            library_multiplies(Dtype::bf16);
    compare_most("workspace", used.workspace, planned.workspace, has_blocks || by_library);
    return lines;
}

namespace {

// If another rank reports a difference, this rank reports one as well.
std::string agreed(const MeshCase& c, std::string lines, const Communicator& world) {
    if (world.all_reduce(int64_t(!lines.empty()), Reduce::max) != 0 && lines.empty())
        lines = "another rank differs\n";
    return lines.empty() ? "" : c.name() + ":\n" + lines;
}

}  // namespace

std::string differs_when_offloaded(MeshCase c, const Communicator& world, int64_t steps) {
    Mesh mesh(world.split(0, "world"), c.mesh);
    std::optional<MeshRun> with_queues, with_more;
    std::optional<NcclWorld> nccl;  // destroyed before these
    if (c.nccl) mesh.connect(nccl.emplace(*c.nccl, mesh.world(), *c.device));
    const bool graphs = std::exchange(c.graphs, false);
    MeshRun& here = with_queues.emplace(c, mesh);
    c.types.offload = true;
    c.graphs = graphs;
    MeshRun& there = with_more.emplace(c, mesh);
    std::string lines;
    const auto compare = [&](const char* what, const auto& is, const auto& should, int64_t step) {
        if (is != should) lines += fmt::format("step {}: {} differs\n", step, what);
    };
    const auto compare_scalars = [&](int64_t step) {
        const StepScalars is = there.engine.scalars(), should = here.engine.scalars();
        compare("loss", is.loss, should.loss, step);
        compare("parts of the loss", is.losses, should.losses, step);
        compare("norm", is.grad_norm, should.grad_norm, step);
    };
    for (int64_t step = 1; step <= steps; ++step) {
        TestBatch batch = batch_of_step(c, uint64_t(step));
        if (!here.step(step, batch) || !there.step(step, batch)) lines += "a step was not finite\n";
        compare_scalars(step);
        compare("a gradient", there.whole(&Storage::gradient), here.whole(&Storage::gradient), step);
    }
    compare("a weight", there.whole(&Storage::master), here.whole(&Storage::master), steps);
    for (const char* name : {"exp_avg", "exp_avg_sq", "momentum_buffer"})
        compare(name, there.whole(moment(name)), here.whole(moment(name)), steps);
    TestBatch validated = batch_of_step(c, 1);
    compare("validation loss", there.evaluate(validated), here.evaluate(validated), steps);
    lines += use_differs_from_plan(c, there.engine);
    there.engine.forget_graphs();
    return agreed(c, lines, world);
}

PipelineOptions pipeline_of(const std::string& schedule, int ranks, int micro_batches, int virtual_stages,
                            const DecoderConfig& model) {
    PipelineOptions pipeline;
    pipeline.timetable = find_schedule(schedule)->timetable(
        {.ranks = ranks, .microbatches = micro_batches, .virtual_stages = virtual_stages});
    const int stages = pipeline.timetable.stages();
    // if there are more stages than layers, these weights leave some stages without a layer
    const bool few = model.layers + 2 < 2 * stages;
    pipeline.parts = ModelConfig(model)->split(stages, {.embedding = few ? 1 : 0, .head = few ? 1 : 0});
    pipeline.sends = Sends::synchronous;
    return pipeline;
}

void set_mtp(MeshCase& c, int64_t depths) {
    c.model.mtp.layers = depths;
    if (!c.pipeline.parts.empty()) c.pipeline.parts.back().last = ModelConfig(c.model).whole().last;
}

std::vector<MeshShape> meshes_of(int ranks, const std::vector<Axis>& axes) {
    std::vector<MeshShape> all = {{}};
    for (const Axis axis : axes) {
        std::vector<MeshShape> more;
        for (const MeshShape& shape : all) {
            for (int degree = 1; degree <= ranks; ++degree) {
                MeshShape next = shape;
                int& field = axis == axis::pp             ? next.pp
                             : axis == axis::dp_replicate ? next.dp_replicate
                             : axis == axis::dp_shard     ? next.dp_shard
                             : axis == axis::cp           ? next.cp
                                                          : next.tp;
                field = degree;
                if (ranks % next.ranks() == 0) more.push_back(next);
            }
        }
        all = more;
    }
    std::erase_if(all, [&](const MeshShape& shape) { return shape.ranks() != ranks; });
    return all;
}

}  // namespace coeus::test
