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

// Runs `pass` with kernels that do nothing, and returns the peaks.
template <class Pass>
Measured measure(const Processor& processor, Backend backend, const BlockInputs& inputs, const Pass& pass) {
    FlopCounter counter;
    Exec exec(processor);
    const Observation counting = exec.observers.add(counter);
    Frame frame;
    Arena temp;
    StepScalars scalars;
    pass(Workplace{exec, dry_kernels_of(backend), frame, temp, scalars, inputs});
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

// Runs the passes of training and validation, one stage after the other, and collects what they need.
class DryRun {
public:
    DryRun(const Model& model, const Executor& executor, const TrainingPasses& passes, const Mesh& mesh)
        : model_(model),
          executor_(executor),
          passes_(passes),
          mesh_(mesh),
          exchanges_(passes.exchanges, mesh, computation_, Stream::Mode::eager) {
        if (passes.overlap_pairs) exchanges_.set_meanwhile([] {});
    }

    LayerMemory run() {
        if (passes_.training.sequences > 0) train();
        if (passes_.validation.sequences > 0)
            for (const ModelPart& part : model_.parts()) validate(part);
        if (exchanges_.overlapped_tokens) layers_.tokens = exchanges_.overlapped_tokens->used();
        add_executor();
        return layers_;
    }

private:
    Flow flow_into(size_t segment, const BatchShape& shape) const {
        return model_.flow_into(segment, shape.divided(mesh_.size(axis::cp)));
    }

    template <class Layers>
    Measured pass(const BatchShape& shape, const BlockInputs& inputs, Exchanges::Pass which, int64_t& most,
                  const Layers& run_layers) {
        const Batch batch = model_.batches().planned(shape, mesh_.size(axis::cp));
        Measured m = measure(passes_.processor, passes_.backend, inputs, [&](const Workplace& at) {
            Ctx c = exchanges_.context(at, batch, which);
            run_layers(c);
        });
        take_larger(layers_, m, most);
        return m;
    }
    template <class Layers>
    Measured training_pass(const Layers& run_layers, Exchanges::Pass which = Exchanges::Pass::training) {
        const bool offloads = model_.parameters().types().offload;
        return pass(passes_.training, offloads ? on_host_ : inputs_in_frame(), which, layers_.executor.frame,
                    run_layers);
    }

    void train() {
        for (size_t i = 0; i < model_.parts().size(); ++i) {
            exchanges_.use_blocks(false);
            layers_.flops += train(i);
            if (passes_.exchanges.expert_blocks) {  // a step may be repeated with rounds
                exchanges_.use_blocks(true);
                train(i);
            }
        }
        layers_.flops += training_pass([&](Ctx& c) {
                             for (const Storage& storage : model_.parameters().storages())
                                 if (!storage.is_frozen())
                                     c.k.sum_of_squares(c.exec, nullptr, storage.gradient);
                         }).flops;
    }

    // Returns the FLOPs of a micro-batch in this rank's stage number i.
    double train(size_t i) {
        const ModelPart& part = model_.parts()[i];
        const Stage stage(model_, part);  // no unit is gathered
        const Flow in = flow_into(part.first, passes_.training);
        const Flow gradient = stage.exchanges_gradients() ? flow_into(1, passes_.training) : Flow{};
        double flops = 0;
        if (executor_.training().runs_whole[i])
            flops = training_pass([&](Ctx& c) {
                        stage.forward(c, in);
                        stage.backward(c, gradient);
                    }).flops;
        if (executor_.training().runs_halves[i])
            flops = training_pass([&](Ctx& c) {
                        stage.forward(c, in);
                        stage.backward_input(c, gradient);
                        stage.backward_weight(c);
                    }).flops;
        if (passes_.overlap_pairs && executor_.training().runs_paired[i]) {
            const Measured second = training_pass(
                [&](Ctx& c) {
                    stage.forward(c, in);
                    if (executor_.training().runs_paired_backwards[i]) stage.backward(c, gradient);
                },
                Exchanges::Pass::paired);
            layers_.paired_temporaries = std::max(layers_.paired_temporaries, second.temporaries);
        }
        return flops;
    }

    void validate(const ModelPart& part) {
        const Stage stage(model_, part);
        pass(passes_.validation, inputs_in_frame(), Exchanges::Pass::validation,
             layers_.executor.validation_frame,
             [&](Ctx& c) { stage.evaluate(c, flow_into(part.first, passes_.validation)); });
        if (passes_.predicted_columns == 0) return;
        const int64_t sequences = passes_.validation.sequences;
        const std::vector<int64_t> tokens(static_cast<size_t>(sequences));
        const Tensor logits(nullptr, model_.parameters().types().accumulate(),
                            {sequences, passes_.predicted_columns});
        pass(passes_.validation, inputs_in_frame(), Exchanges::Pass::validation,
             layers_.executor.validation_frame,
             [&](Ctx& c) { stage.logits_of(c, flow_into(part.first, passes_.validation), tokens, logits); });
    }

    void add_executor() {
        layers_.activations = executor_.frame_bytes(layers_.executor);
        layers_.activations_on_host = executor_.frame_bytes_on_host(layers_.executor);
        const Flow flow = flow_into(1, passes_.training);
        if (layers_.activations_on_host > 0) layers_.input_places = OffloadedInputs::bytes(flow);
        layers_.executor.slots = executor_.slot_bytes(flow, flow_into(1, passes_.validation));
        layers_.executor.flow_tensors = flow.count();
    }

    const Model& model_;
    const Executor& executor_;
    const TrainingPasses& passes_;
    const Mesh& mesh_;
    Exec computation_;
    Exchanges exchanges_;
    const OffloadedInputs on_host_;
    LayerMemory layers_;
};

}  // namespace

LayerMemory measure_training(const Model& model, const Executor& executor, const TrainingPasses& passes,
                             const Mesh& mesh) {
    return DryRun(model, executor, passes, mesh).run();
}

LayerMemory measure_training(const Model& model, const BatchShape& training, const BatchShape& validation,
                             const Processor& processor, const Mesh& mesh, const ExchangeOptions& exchanges) {
    Exec exec;
    const Executor executor(lower(one_stage()), 0, {Stage(model)}, exec);
    return measure_training(model, executor, {training, validation, processor, exchanges}, mesh);
}

LayerMemory measure_generation(const Model& model, const Executor& executor, int64_t columns,
                               const KvCache& cache, int64_t texts_at_once, const Processor& processor,
                               Backend backend, const Mesh& mesh) {
    LayerMemory layers;
    ExecutorMemory& of_executor = layers.executor;
    Exec computation;
    const Exchanges exchanges({}, mesh, computation, Stream::Mode::eager);
    const ModelPart& part = model.parts().front();
    const Stage stage(model, part);
    const Dtype type = model.parameters().types().accumulate();
    const int64_t tp = mesh.size(axis::tp), cp = mesh.size(axis::cp);
    const auto pass = [&](const BatchShape& shape, const KvExchange& exchange, int64_t texts) {
        const Batch batch = model.batches().planned(shape, 1);
        const std::vector<int64_t> tokens(static_cast<size_t>(texts));
        const Measured m = measure(processor, backend, inputs_in_frame(), [&](const Workplace& at) {
            Ctx c = exchanges.generating_context(at, batch, exchange);
            stage.logits_of(c, model.flow_into(part.first, shape), tokens,
                            Tensor(nullptr, type, {texts, columns}));
        });
        take_larger(layers, m, of_executor.validation_frame);
        const Flow flow = model.flow_into(1, shape);
        of_executor.slots = std::max(of_executor.slots, executor.slot_bytes({}, flow));
        of_executor.flow_tensors = flow.count();
    };
    const PromptExchange prompt(cache, 0, cache.context());
    pass({.sequences = 1, .seq_len = round_up(cache.context(), tp * cp) / cp},
         HeadsExchange(mesh[axis::cp], Balancing::none, prompt), 1);
    const CachedExchange cached(cache, Tensor(nullptr, Dtype::i32, {texts_at_once}));
    pass({.sequences = round_up(texts_at_once, tp), .seq_len = 1}, OwnHeadsExchange(mesh[axis::cp], cached),
         texts_at_once);
    layers.activations = executor.frame_bytes(of_executor);
    return layers;
}

LayerMemory measure_generation(const Model& model, int64_t vocab, const KvCache& cache,
                               const Processor& processor) {
    Exec exec;
    const Executor executor(one_stage().placement, 0, {Stage(model)}, exec);
    return measure_generation(model, executor, vocab, cache, cache.sequences(), processor, Backend::cpu,
                              mesh_of_one());
}

}  // namespace coeus
