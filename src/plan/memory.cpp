// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/memory.hpp"

#include "coeus/base/text.hpp"
#include "coeus/kernels/workspace.hpp"
#include "coeus/layers/block_inputs.hpp"
#include "coeus/pipeline/stage.hpp"

#include <algorithm>

namespace coeus {

using Terms = std::vector<std::pair<std::string, int64_t>>;

namespace {

// What one dry pass would have used.
struct Measured {
    int64_t activations, on_host, temporaries, workspace;
    size_t entries, owed;
    double flops;
};

class FlopCounter : public KernelObserver {
public:
    void begin(const char*, double flops, double) override { flops_ += flops; }
    void end() override {}
    double flops() const { return flops_; }

private:
    double flops_ = 0;
};

// `ranks` divide each sequence of `shape`.
Batch planned_batch(const BatchShape& shape, int ranks) {
    const Tensor ids(nullptr, Dtype::i32, {shape.count() / ranks});
    return {.sequences = shape.sequences,
            .seq_len = shape.seq_len / ranks,
            .tokens = ids,
            .labels = ids,
            .positions = ids,
            .document_start = Tensor(nullptr, Dtype::i32, {shape.count()})};
}

// `context` makes a Ctx of what a dry run has.
template <class Context, class Pass>
Measured measure(int threads, const Context& context, const Pass& pass) {
    FlopCounter counter;
    Exec exec;
    exec.threads = threads;
    exec.observer = &counter;
    Frame frame;
    Arena temp;
    StepScalars scalars;
    Ctx c = context(exec, frame, temp, scalars);
    pass(c);
    return {frame.peak_bytes(),   frame.peak_host_bytes(), temp.peak(),    exec.workspace.peak(),
            frame.peak_entries(), frame.peak_owed(),       counter.flops()};
}

void take_larger(MemoryPlan& plan, const Measured& m, int64_t& frame) {
    frame = std::max(frame, m.activations);
    plan.temporaries = std::max(plan.temporaries, m.temporaries);
    plan.workspace = std::max(plan.workspace, m.workspace);
    plan.executor.frame_entries = std::max(plan.executor.frame_entries, m.entries);
    plan.executor.frame_owed = std::max(plan.executor.frame_owed, m.owed);
    plan.executor.frame_on_host = std::max(plan.executor.frame_on_host, m.on_host);
}

// Those that are not 0.
Terms largest_first(Terms all) {
    std::erase_if(all, [](const auto& term) { return term.second == 0; });
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return all;
}

}  // namespace

Terms MemoryPlan::terms() const {
    return largest_first({
        {"weights", state.master},
        {"weights in the compute type", state.compute},
        {"gradients", state.gradients},
        {"optimizer moments", state.moments},
        {"gathered weights", gathered.weights},
        {"unreduced gradients", gathered.gradients},
        {"activations", activations},
        {"flows between stages", executor.slots},
        {"temporaries", temporaries},
        {"kernel workspace", workspace},
        {"token ids", batches},
        {"pieces of a reduction", reduction},
        {"RoPE table", tables},
        {"cache of keys and values", cache},
        {"copies for checkpoints", copies},
        {"in-memory snapshot", snapshot},
        {"buffers of libraries", libraries},
        {"buffers of NCCL (estimate)", nccl},
        {"places of offloading", offloading},
    });
}

Terms MemoryPlan::terms_on_host() const {
    return largest_first({
        {"weights", on_host.state.master},
        {"optimizer moments", on_host.state.moments},
        {"activations", on_host.activations},
        {"copies for checkpoints", on_host.copies},
        {"in-memory snapshot", on_host.snapshot},
        {"token ids and reductions", on_host.exchange},
    });
}

std::string MemoryPlan::text(std::optional<int64_t> limit_bytes) const {
    std::string lines = "memory plan per rank:";
    for (const auto& [what, bytes] : terms())
        lines += fmt::format("\n  {:<28} {:>11}", what, bytes_text(double(bytes)));
    lines += fmt::format("\n  {:<28} {:>11}{}", "total", bytes_text(double(total())),
                         limit_bytes ? " of " + bytes_text(double(*limit_bytes)) : "");
    if (on_host.total() == 0) return lines;
    lines += fmt::format("\n  {:<28} {:>11}", "on the host", bytes_text(double(on_host.total())));
    for (const auto& [what, bytes] : terms_on_host())
        lines += fmt::format("\n    {:<26} {:>11}", what, bytes_text(double(bytes)));
    return lines;
}

namespace {

// An upper bound in floating point, before bytes are added up in 64 bits.
void refuse_absurd(const DecoderConfig& m, const BatchShape& shape) {
    const double widths = 8 * double(m.dim) + 4 * double((m.heads + m.kv_heads) * m.head_dim) +
                          4 * double(m.ffn_hidden) + double(m.heads);
    const double bytes = 8 * double(shape.count()) * double(m.layers) * widths;
    if (bytes > 1e18)
        throw ConfigError(
            "training.local_batch_size x seq_len = {} x {}: the activations would take {:.1e} bytes; "
            "lower one of them",
            shape.sequences, shape.seq_len, bytes);
}

}  // namespace

MemoryPlan plan_training(const Decoder& decoder, const Executor& executor, const BatchShape& training,
                         const BatchShape& validation, int threads, const Mesh& mesh,
                         const ExchangeOptions& exchanges, Backend backend) {
    refuse_absurd(decoder.config(), training);
    refuse_absurd(decoder.config(), validation);
    MemoryPlan plan;
    plan.state = decoder.parameters().bytes(true);
    const auto flow_of = [&](const BatchShape& shape) {
        return Tensor(nullptr, decoder.parameters().types().compute,
                      {shape.count() / mesh.size(cp | tp), decoder.config().dim});
    };
    Exec computation;
    Stream stream(Stream::Mode::eager);
    const Exchanges through(exchanges, mesh, computation, stream);
    const OffloadedInputs on_host;
    const BlockInputs& trained = decoder.parameters().types().offload ? on_host : inputs_in_frame();
    const auto pass = [&](const BatchShape& shape, const BlockInputs& inputs, int64_t& most,
                          const auto& run) {
        const Batch batch = planned_batch(shape, mesh.size(cp));
        const auto context = [&](Exec& exec, Frame& frame, Arena& temp, StepScalars& scalars) -> Ctx {
            return {exec,       dry_kernels_of(backend), frame,        temp,  batch, scalars, *through.kv,
                    through.tp, *through.tokens,         through.loss, inputs};
        };
        const Measured m = measure(threads, context, run);
        take_larger(plan, m, most);
        return m.flops;
    };
    const Flow flow = flow_of(training), validation_flow = flow_of(validation);
    for (size_t i = 0; i < decoder.parts().size(); ++i) {
        const Stage stage(decoder, decoder.parts()[i]);  // nothing is gathered
        const Flow gradient = stage.part().embedding && stage.part().head ? Flow{} : flow;
        double flops = 0;
        if (executor.training().runs_whole[i])
            flops = pass(training, trained, plan.executor.frame, [&](Ctx& c) {
                stage.forward(c, flow);
                stage.backward(c, gradient);
            });
        if (executor.training().runs_halves[i])
            flops = pass(training, trained, plan.executor.frame, [&](Ctx& c) {
                stage.forward(c, flow);
                stage.backward_input(c, gradient);
                stage.backward_weight(c);
            });
        plan.flops += flops;
        if (validation.sequences > 0)
            pass(validation, inputs_in_frame(), plan.executor.validation_frame,
                 [&](Ctx& c) { stage.evaluate(c, validation_flow); });
    }
    plan.flops += pass(training, trained, plan.executor.frame, [&](Ctx& c) {
        for (const Storage& storage : decoder.parameters().storages())
            c.k.sum_of_squares(c.exec, nullptr, storage.gradient);
    });
    plan.activations = executor.frame_bytes(plan.executor);
    plan.on_host.state = decoder.parameters().offloaded_bytes();
    plan.on_host.activations = executor.frame_bytes_on_host(plan.executor);
    if (plan.on_host.activations > 0) plan.offloading = OffloadedInputs::bytes(flow.hidden());
    plan.executor.slots = executor.slot_bytes(flow.hidden().bytes(), validation_flow.hidden().bytes());
    plan.tables =
        decoder.positions() * decoder.config().head_dim * size_of(decoder.parameters().types().accumulate());
    return plan;
}

MemoryPlan plan_training(const Decoder& decoder, const BatchShape& training, const BatchShape& validation,
                         int threads, const Mesh& mesh, const ExchangeOptions& exchanges) {
    Exec exec;
    const Executor executor(one_stage(), 0, {Stage(decoder)}, exec);
    return plan_training(decoder, executor, training, validation, threads, mesh, exchanges);
}

TokenIdBytes token_id_bytes(const BatchShape& training, int64_t local_batches, const BatchShape& validation,
                            int context_ranks, Backend backend) {
    const int64_t step = local_batches * training.count(), one = training.count() + validation.count();
    const int64_t read = 3 * (2 * step + validation.count());
    const int64_t parts = 2 * (step + validation.count()) / context_ranks, positions = one / context_ranks;
    const int64_t id = size_of(Dtype::i32);
    if (backend == Backend::cpu) return {.host = (read + parts + positions) * id};
    return {.host = (read + parts + step + validation.count()) * id,
            .device = (3 * one / context_ranks + one) * id};
}

int64_t library_bytes(Dtype compute, int ranks) {
    // measured with Open MPI 4.1 and 5.0 (0.75 MiB for each peer) and MPICH 4.0 over UCX, which takes more; a
    // rank exchanges data with few of many others
    const int64_t peers = std::min(ranks - 1, 16);
    return workspace::gemm_libraries(compute) + peers * (1 << 20);
}

int64_t nccl_bytes(int communicators) {
    constexpr int64_t channels = 16, simple = int64_t(4) << 20, ll = 8 * 512 * 8 * 16,
                      ll128 = 120 * 640 * 8 * 8;
    return communicators * channels * (simple + ll + ll128);
}

MemoryPlan plan_generation(const Decoder& decoder, const KvCache& cache, int threads, Backend backend) {
    MemoryPlan plan;
    const Stage stage(decoder);
    const Dtype types = decoder.parameters().types().accumulate();
    plan.state = decoder.parameters().bytes(false);
    plan.cache = cache.bytes();
    const BatchShape prompt = {.sequences = 1, .seq_len = cache.context()},
                     step = {.sequences = cache.sequences(), .seq_len = 1};
    const auto pass = [&](const BatchShape& shape, const KvExchange& exchange) {
        const Batch batch = planned_batch(shape, 1);
        const auto context = [&](Exec& exec, Frame& frame, Arena& temp, StepScalars& scalars) -> Ctx {
            return {exec, dry_kernels_of(backend), frame, temp, batch, scalars, exchange};
        };
        const Measured m = measure(threads, context, [&](Ctx& c) {
            const Tensor logits(nullptr, types, {shape.sequences, decoder.config().vocab});
            stage.last_logits(c, logits);
        });
        take_larger(plan, m, plan.activations);
    };
    pass(prompt, PromptExchange(cache, 0));
    pass(step, CachedExchange(cache, Tensor(nullptr, Dtype::i32, {step.sequences})));
    plan.batches = (2 * std::max(prompt.count(), step.count()) + step.count()) * size_of(Dtype::i32);
    plan.tables = decoder.positions() * decoder.config().head_dim * size_of(types);
    return plan;
}

namespace {

std::string largest_of(const Terms& terms) {
    std::string largest;
    for (size_t i = 0; i < std::min<size_t>(3, terms.size()); ++i)
        largest += fmt::format("{}{} {}", i ? ", " : "", terms[i].first, bytes_text(double(terms[i].second)));
    return largest;
}

}  // namespace

void require_fits(const MemoryPlan& plan, int64_t limit_bytes, const std::function<std::string()>& remedy) {
    if (plan.total() <= limit_bytes) return;
    throw ConfigError("the run needs {} per rank, but there are {}; the largest terms: {}. {}",
                      bytes_text(double(plan.total())), bytes_text(double(limit_bytes)),
                      largest_of(plan.terms()), remedy());
}

void require_fits_on_host(const MemoryPlan& plan, int64_t limit_bytes) {
    if (plan.on_host.total() <= limit_bytes) return;
    throw ConfigError(
        "the run needs {} of host memory per rank beside its GPU, but this host allows {}; the largest "
        "terms: {}. More ranks that share the parameters (parallelism.data_parallel_shard_degree) need less "
        "each{}",
        bytes_text(double(plan.on_host.total())), bytes_text(double(limit_bytes)),
        largest_of(plan.terms_on_host()),
        plan.on_host.state.total() > 0 ? "; without training.enable_cpu_offload the GPU holds the state"
                                       : "");
}

}  // namespace coeus
