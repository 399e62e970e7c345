// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/layer_memory.hpp"

#include "coeus/layers/block_inputs.hpp"
#include "coeus/pipeline/stage.hpp"

#include <algorithm>

namespace coeus {

namespace {

// The peaks of one dry pass.
struct Measured {
    int64_t activations, on_host, temporaries, workspace;
    size_t entries, owed;
    double flops;
    std::vector<AttentionCall> attention;
};

class FlopCounter : public KernelObserver {
public:
    void begin(const char*, double flops, double) override { flops_ += flops; }
    void end() override {}
    double flops() const { return flops_; }

private:
    double flops_ = 0;
};

// A batch for planning; `ranks` ranks divide each sequence of `shape`.
Batch planned_batch(const BatchShape& shape, int ranks, int64_t depths = 0) {
    const int64_t count = shape.count() / ranks;
    const Tensor ids(nullptr, Dtype::i32, {count}), further(nullptr, Dtype::i32, {depths, count});
    return {.sequences = shape.sequences,
            .seq_len = shape.seq_len / ranks,
            .tokens = ids,
            .labels = ids,
            .positions = ids,
            .document_start = shape.masks_documents ? Tensor(nullptr, Dtype::i32, {shape.count()}) : Tensor(),
            .further_tokens = further,
            .further_labels = further};
}

// Runs `pass` with a Ctx that `context` makes for the dry run, and returns the peaks.
template <class Context, class Pass>
Measured measure(const Processor& processor, const Context& context, const Pass& pass) {
    FlopCounter counter;
    Exec exec(processor);
    const Observation counting = exec.observers.add(counter);
    Frame frame;
    Arena temp;
    StepScalars scalars;
    Ctx c = context(exec, frame, temp, scalars);
    pass(c);
    return {frame.peak_bytes(),   frame.peak_host_bytes(), temp.peak(),     exec.workspace.peak(),
            frame.peak_entries(), frame.peak_owed(),       counter.flops(), planned_attention(exec)};
}

void take_larger(LayerMemory& layers, const Measured& m, int64_t& frame) {
    frame = std::max(frame, m.activations);
    layers.temporaries = std::max(layers.temporaries, m.temporaries);
    layers.workspace = std::max(layers.workspace, m.workspace);
    layers.executor.frame_entries = std::max(layers.executor.frame_entries, m.entries);
    layers.executor.frame_owed = std::max(layers.executor.frame_owed, m.owed);
    layers.executor.frame_on_host = std::max(layers.executor.frame_on_host, m.on_host);
    for (const AttentionCall& call : m.attention) add_if_new(layers.attention, call);
}

}  // namespace

void require_countable(const DecoderConfig& m, const BatchShape& shape) {
    const AttentionConfig& a = m.attention;
    const double widths = 8 * double(m.dim) + 4 * double((a.heads + a.kv_heads) * a.head_dim) +
                          4 * double(m.feed_forward.hidden) + double(a.heads);
    const double bytes = 8 * double(shape.count()) * double(m.all_layers()) * widths;
    if (bytes > 1e18)
        throw ConfigError(
            "training.local_batch_size x seq_len = {} x {}: the activations would take {:.1e} bytes; "
            "lower one of them",
            shape.sequences, shape.seq_len, bytes);
}

LayerMemory measure_training(const Model& model, const Executor& executor, const BatchShape& training,
                             const BatchShape& validation, const Processor& processor, const Mesh& mesh,
                             const ExchangeOptions& exchanges, Backend backend, bool overlap_pairs) {
    LayerMemory layers;
    const auto flow_into = [&](size_t segment, const BatchShape& shape) {
        return model.flow_into(segment, shape.count() / mesh.size(axis::cp | axis::tp));
    };
    Exec computation;
    Exchanges through(exchanges, mesh, computation, Stream::Mode::eager);
    if (overlap_pairs) through.set_meanwhile([] {});
    const OffloadedInputs on_host;
    const BlockInputs& trained = model.parameters().types().offload ? on_host : inputs_in_frame();
    const ExpertExchange* experts = &through.experts[0];
    const auto pass = [&](const BatchShape& shape, const BlockInputs& inputs, int64_t& most,
                          const auto& run) {
        const Batch batch = planned_batch(shape, mesh.size(axis::cp), model.depths());
        const auto context = [&](Exec& exec, Frame& frame, Arena& temp, StepScalars& scalars) -> Ctx {
            return {.exec = exec,
                    .k = dry_kernels_of(backend),
                    .frame = frame,
                    .temp = temp,
                    .batch = batch,
                    .scalars = scalars,
                    .kv = *through.kv,
                    .tp = through.tp,
                    .cp = through.cp,
                    .tokens = *through.tokens,
                    .loss = through.loss,
                    .experts = *experts,
                    .inputs = inputs};
        };
        Measured m = measure(processor, context, run);
        take_larger(layers, m, most);
        return m;
    };
    for (size_t i = 0; i < model.parts().size(); ++i) {
        const ModelPart& part = model.parts()[i];
        const Stage stage(model, part);  // no unit is gathered
        const Flow in = flow_into(part.first, training);
        const Flow gradient = stage.is_whole() ? Flow{} : flow_into(1, training);
        const auto train = [&] {
            double flops = 0;
            if (executor.training().runs_whole[i])
                flops = pass(training, trained, layers.executor.frame, [&](Ctx& c) {
                            stage.forward(c, in);
                            stage.backward(c, gradient);
                        }).flops;
            if (executor.training().runs_halves[i])
                flops = pass(training, trained, layers.executor.frame, [&](Ctx& c) {
                            stage.forward(c, in);
                            stage.backward_input(c, gradient);
                            stage.backward_weight(c);
                        }).flops;
            if (overlap_pairs && executor.training().runs_paired[i])
                layers.paired_temporaries = std::max(
                    layers.paired_temporaries, pass(training, trained, layers.executor.frame, [&](Ctx& c) {
                                                   stage.forward(c, in);
                                               }).temporaries);
            return flops;
        };
        layers.flops += train();
        if (exchanges.expert_blocks) {  // a step may be repeated with rounds
            experts = &through.expert_blocks[0];
            train();
            experts = &through.experts[0];
        }
        if (validation.sequences > 0)
            pass(validation, inputs_in_frame(), layers.executor.validation_frame,
                 [&](Ctx& c) { stage.evaluate(c, flow_into(part.first, validation)); });
    }
    layers.flops += pass(training, trained, layers.executor.frame, [&](Ctx& c) {
                        for (const Storage& storage : model.parameters().storages())
                            c.k.sum_of_squares(c.exec, nullptr, storage.gradient);
                    }).flops;
    layers.activations = executor.frame_bytes(layers.executor);
    layers.activations_on_host = executor.frame_bytes_on_host(layers.executor);
    const Flow flow = flow_into(1, training);
    if (layers.activations_on_host > 0) layers.input_places = OffloadedInputs::bytes(flow);
    layers.executor.slots = executor.slot_bytes(flow, flow_into(1, validation));
    layers.executor.flow_tensors = flow.count();
    return layers;
}

LayerMemory measure_training(const Model& model, const BatchShape& training, const BatchShape& validation,
                             const Processor& processor, const Mesh& mesh, const ExchangeOptions& exchanges) {
    Exec exec;
    const Executor executor(lower(one_stage()), 0, {Stage(model)}, exec);
    return measure_training(model, executor, training, validation, processor, mesh, exchanges);
}

LayerMemory measure_generation(const Decoder& decoder, const KvCache& cache, const Processor& processor,
                               Backend backend) {
    LayerMemory layers;
    const Stage stage(decoder);
    const Dtype type = decoder.parameters().types().accumulate();
    const auto pass = [&](const BatchShape& shape, const KvExchange& exchange) {
        const Batch batch = planned_batch(shape, 1);
        const auto context = [&](Exec& exec, Frame& frame, Arena& temp, StepScalars& scalars) -> Ctx {
            return {.exec = exec,
                    .k = dry_kernels_of(backend),
                    .frame = frame,
                    .temp = temp,
                    .batch = batch,
                    .scalars = scalars,
                    .kv = exchange};
        };
        const Measured m = measure(processor, context, [&](Ctx& c) {
            const Tensor logits(nullptr, type, {shape.sequences, decoder.config().vocab});
            stage.last_logits(c, logits);
        });
        take_larger(layers, m, layers.executor.frame);
    };
    pass({.sequences = 1, .seq_len = cache.context()}, PromptExchange(cache, 0));
    pass({.sequences = cache.sequences(), .seq_len = 1},
         CachedExchange(cache, Tensor(nullptr, Dtype::i32, {cache.sequences()})));
    layers.activations = layers.executor.frame;
    return layers;
}

}  // namespace coeus
