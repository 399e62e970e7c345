// SPDX-License-Identifier: Apache-2.0
#include "support/model.hpp"

#include "coeus/base/random.hpp"

#include <algorithm>
#include <cstring>

namespace coeus::test {

TestBatch::TestBatch(int64_t sequences_, int64_t seq_len_, int64_t vocab, uint64_t seed)
    : sequences(sequences_), seq_len(seq_len_) {
    const RandomStream ids(seed, "tokens of a test batch"), next(seed, "labels of a test batch");
    for (int64_t t = 0; t < sequences * seq_len; ++t) {
        tokens.push_back(int32_t(ids.u64(uint64_t(t)) % uint64_t(vocab)));
        labels.push_back(int32_t(next.u64(uint64_t(t)) % uint64_t(vocab)));
        positions.push_back(int32_t(t % seq_len));
    }
}

TestBatch& TestBatch::split_documents(int64_t length, bool restart_positions) {
    document_start.clear();
    for (int64_t t = 0; t < sequences * seq_len; ++t) {
        const int64_t index = t % seq_len;
        document_start.push_back(int32_t(index / length * length));
        if (restart_positions) positions[size_t(t)] = int32_t(index % length);
    }
    return *this;
}

TestBatch& TestBatch::ignore_every(int64_t n) {
    for (size_t t = 0; t < labels.size(); t += size_t(n)) labels[t] = -100;
    return *this;
}

TestBatch& TestBatch::look_ahead(int64_t depths) {
    further_tokens.clear();
    further_labels.clear();
    for (int64_t depth = 1; depth <= depths; ++depth)
        for (int64_t t = 0; t < sequences * seq_len; ++t) {
            const int64_t ahead = t + depth;
            const bool inside = t % seq_len + depth < seq_len &&
                                (document_start.empty() || document_start[size_t(ahead)] <= t % seq_len);
            further_tokens.push_back(inside ? tokens[size_t(ahead)] : 0);
            further_labels.push_back(inside ? labels[size_t(ahead)] : -100);
        }
    return *this;
}

int64_t TestBatch::valid_labels() const {
    return std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label != -100; });
}

Batch TestBatch::view() {
    const auto tensor = [](std::vector<int32_t>& ids) {
        return ids.empty() ? Tensor{} : Tensor(ids.data(), Dtype::i32, {int64_t(ids.size())});
    };
    const auto further = [&](std::vector<int32_t>& ids) {
        const int64_t count = sequences * seq_len;
        return ids.empty() ? Tensor{} : Tensor(ids.data(), Dtype::i32, {int64_t(ids.size()) / count, count});
    };
    return {.sequences = sequences,
            .seq_len = seq_len,
            .tokens = tensor(tokens),
            .labels = tensor(labels),
            .positions = tensor(positions),
            .document_start = tensor(document_start),
            .further_tokens = further(further_tokens),
            .further_labels = further(further_labels),
            .images = images};
}

SampleRows TestBatch::local_batch(int64_t first, int64_t count) const {
    const SampleRows all = {.sequences = sequences,
                            .seq_len = seq_len,
                            .tokens = tokens,
                            .labels = labels,
                            .document_start = document_start};
    return all.slice(first, count);
}

void poison(Arena& arena, int64_t bytes) {
    const int64_t rest = bytes - arena.mark();
    if (rest <= 0) return;
    const Scope scope(arena);
    std::memset(arena.alloc(Dtype::u8, {rest}).data, 0xff, size_t(rest));
}

void poison(Frame& frame, int64_t bytes) {
    const Frame::Mark mark = frame.mark();
    const int64_t rest = bytes - mark.bytes;
    if (rest <= 0) return;
    std::memset(frame.keep(Dtype::u8, {rest}).data, 0xff, size_t(rest));
    frame.rewind(mark);
}

void forward_backward(const Stage& stage, Ctx& c) {
    stage.forward(c, {});
    stage.backward(c, {});
}

std::vector<double> values(const Tensor& tensor) {
    std::vector<double> out;
    for (int64_t i = 0; i < tensor.count(); ++i) out.push_back(element(tensor, i));
    return out;
}

bool same_bits(const Tensor& a, const Tensor& b) {
    require(a.dtype == b.dtype && a.shape == b.shape && a.dense() && b.dense(),
            "tensors whose bits are compared differ in type or shape");
    return std::memcmp(a.data, b.data, size_t(a.bytes())) == 0;
}

namespace {

LayerMemory measure_with_adamw(Decoder& decoder, const BatchShape& shape, int threads) {
    ParamGroups({}).attach(decoder.parameters());
    return measure_training(decoder, shape, shape, {threads});
}

}  // namespace

TestModel::TestModel(const DecoderConfig& config, const StateTypes& types, const BatchShape& shape,
                     int threads, uint64_t seed, const std::vector<Recompute>& recompute)
    : decoder(config, types, shape.seq_len, {}, recompute),
      one_scale_weights(decoder.parameters()),
      stage(decoder),
      layers(measure_with_adamw(decoder, shape, threads)),
      frame(layers.activations, layers.executor.frame_entries),
      temp(layers.temporaries, "temporaries") {
    exec.threads = threads;
    exec.workspace = Arena(layers.workspace, "workspace");
    decoder.allocate(true);
    one_scale_weights.allocate();
    decoder.parameters().initialise(seed, threads);
    renew_weights();
}

void TestModel::renew_weights() {
    decoder.parameters().refresh_compute(exec, cpu_kernels());
    one_scale_weights.renew(exec, cpu_kernels(), alone());
}

const Storage& TestModel::storage_of(const std::string& parameter) const {
    for (const Storage& storage : decoder.parameters().storages())
        for (const Param& param : storage.params())
            if (param.name == parameter) return storage;
    throw LogicError("the model has no parameter " + parameter);
}

Tensor TestModel::tensor(const std::string& parameter, const StorageTensor& kind) const {
    const Storage& storage = storage_of(parameter);
    for (const Param& param : storage.params())
        if (param.name == parameter) return storage.rows_of(param, kind(storage));
    throw LogicError("the model has no parameter " + parameter);
}

std::vector<HeldBlock> TestModel::blocks(const std::string& parameter, const StorageTensor& kind) const {
    const Storage& storage = storage_of(parameter);
    for (const Param& param : storage.params())
        if (param.name == parameter) return blocks_of(storage, param, kind(storage));
    throw LogicError("the model has no parameter " + parameter);
}

OwnedTensor TestModel::copy(const std::string& parameter, const StorageTensor& kind) const {
    for (const Param& param : storage_of(parameter).params()) {
        if (param.name != parameter) continue;
        OwnedTensor whole(kind(storage_of(parameter)).dtype, param.shape);
        for (const HeldBlock& block : blocks(parameter, kind))
            for (int64_t i = 0; i < block.local.count(); ++i) {
                const int64_t cols = block.local.cols(), row = block.first_row + i / cols;
                set_element(whole, row * param.shape.cols() + block.first_col + i % cols,
                            element(block.local, i));
            }
        return whole;
    }
    throw LogicError("the model has no parameter " + parameter);
}

void TestModel::zero_gradients() {
    cpu_kernels().zero(exec, decoder.parameters().gradients());
}

template <class Pass>
void TestModel::run(TestBatch& batch, const Pass& pass) {
    poison(frame, layers.activations);
    poison(temp, layers.temporaries);
    poison(exec.workspace, layers.workspace);
    if (decoder.depths() > 0) batch.look_ahead(decoder.depths());
    const Batch view = batch.view();
    Ctx c{exec, kernels, frame, temp, view, scalars};
    pass(c);
    frame.rewind({0, 0});
}

void TestModel::forward_backward(TestBatch& batch) {
    run(batch, [&](Ctx& c) { test::forward_backward(stage, c); });
}

void TestModel::evaluate(TestBatch& batch) {
    run(batch, [&](Ctx& c) { stage.evaluate(c, {}); });
}

OwnedTensor TestModel::logits(TestBatch& batch) {
    OwnedTensor out(decoder.parameters().types().accumulate(),
                    {batch.sequences * batch.seq_len, decoder.config().vocab});
    run(batch, [&](Ctx& c) { stage.logits(c, out); });
    return out;
}

OwnedTensor TestModel::last_logits(TestBatch& batch) {
    OwnedTensor out(decoder.parameters().types().accumulate(), {batch.sequences, decoder.config().vocab});
    run(batch, [&](Ctx& c) { stage.last_logits(c, out); });
    return out;
}

void set_attention(DecoderConfig& model, int kind) {
    GroupedAttentionConfig& a = model.grouped();
    switch (kind) {
        case 1:
            a.qk_norm = QkNorm::before_rope;
            a.bias = AttentionBias::qkv;
            model.rope.layout = RopeLayout::half_split;
            return;
        case 2:
            a.bias = AttentionBias::all;
            a.sinks = true;
            a.window = 3;
            model.windowed = {.period = 2};
            return;
        case 3:
        case 4:
            model.attention = LatentAttentionConfig{.heads = a.heads,
                                                    .head_dim = 10,
                                                    .value_dim = a.value_dim,
                                                    .kv_rank = 7,
                                                    .q_rank = kind == 3 ? 5 : 0,
                                                    .rope_dim = 4};
            model.rope.scaling =
                YarnScaling{.factor = 4, .original_positions = 8, .mscale = 1, .mscale_all_dim = 1};
            return;
        case 5:
            a.qk_norm = QkNorm::after_rope;
            a.bias = AttentionBias::out;
            a.chunk = 3;
            a.temperature = {.scale = 0.5, .floor = 2};
            model.without_rope = {.period = 2, .first = 1};
            return;
        case 6:
            a.qk_norm = QkNorm::all_heads;
            model.rope.layout = RopeLayout::half_split;
            return set_norms(model, 1);
        case 7: a.qk_norm = QkNorm::before_rope; return set_norms(model, 2);
        default: return;
    }
}

void set_norms(DecoderConfig& model, int kind) {
    if (kind == 0) return;
    constexpr NormPlacement places[] = {NormPlacement::after, NormPlacement::around, NormPlacement::before};
    model.norm_placement = places[kind - 1];
    model.norm_offset = kind == 2;
    if (kind == 3) model.norm_type = NormType::layer_norm;
}

void set_layer_choices(DecoderConfig& model, const std::string& word) {
    model.windowed = {.word = word};
    if (model.without_rope != LayerChoice{.period = 0}) model.without_rope = {.period = 0, .word = word};
    model.moe_layers = {.word = word};
}

DecoderConfig config_of_16s(int attention, int experts) {
    DecoderConfig config = tiny_config();
    config.dim = 32;
    config.grouped().heads = 4;
    config.grouped().kv_heads = 2;
    config.grouped().head_dim = 8;
    config.feed_forward.hidden = 48;
    set_attention(config, attention);
    if (config.is_latent()) {
        LatentAttentionConfig& a = config.latent();
        a.head_dim = 24;
        a.rope_dim = a.kv_rank = a.value_dim = 16;
        if (a.q_rank > 0) a.q_rank = 32;
    }
    set_experts(config, experts);
    if (experts > 0) config.moe.hidden = 48;
    if (config.moe.shared_hidden > 0) config.moe.shared_hidden = 48;
    return config;
}

bool has_rounded_inputs(const DecoderConfig& config) {
    const bool experts_alone = config.has_experts() && config.moe_layers == LayerChoice{} &&
                               (config.moe.shared_hidden == 0 || config.moe.shared_gate);
    const bool is_after = config.norm_placement == NormPlacement::after;
    return !experts_alone || !(is_after || config.parallel_block);
}

void set_rope_part(DecoderConfig& model) {
    if (auto* a = std::get_if<GroupedAttentionConfig>(&model.attention))
        a->rope_fraction = double(a->head_dim / 4 * 2) / double(a->head_dim);
}

void set_two_ropes(DecoderConfig& model) {
    auto* a = std::get_if<GroupedAttentionConfig>(&model.attention);
    if (!a) return;
    if (a->window == 0) {
        a->window = 4;
        model.windowed = {.period = 2};
    }
    model.window_rope = {.theta = 50, .scaling = LinearScaling{.factor = 2}};
    a->temperature = {.scale = 0.5, .floor = 2, .offset = 0};
    a->temperature_everywhere = true;
}

void set_experts(DecoderConfig& model, int kind) {
    if (kind == 0) return;
    model.moe = {.experts = 4, .top_k = 2, .hidden = 7, .normalise = true};
    if (kind == 1) return;
    if (kind == 4) {
        model.moe = {.experts = 5,
                     .top_k = 1,
                     .hidden = 8,
                     .shared_hidden = 8,
                     .score = ScoreFunction::sigmoid,
                     .gate = {.scales_input = true},
                     .balance_rate = 1e-2};
        model.moe_layers = {.period = 2, .first = 1};
        return;
    }
    if (kind == 3) {
        model.moe.router_bias = model.moe.biases = true;
        model.moe.gate = {.limit = 0.05,
                          .alpha = 1.702,
                          .shift = 1,
                          .interleaved = true};  // so that some values are clamped
        model.moe.balance_rate = 1e-2;
        return;
    }
    if (kind == 5) {
        model.moe = {.experts = 4,
                     .top_k = 2,
                     .hidden = 8,
                     .shared_hidden = 8,
                     .shared_gate = true,
                     .gate = {.activation = Activation::gelu_tanh}};
        return;
    }
    model.moe = {.experts = 6,
                 .top_k = 3,
                 .hidden = 8,
                 .shared_hidden = 16,
                 .score = ScoreFunction::sigmoid,
                 .normalise = true,
                 .scale = 1.5,
                 .groups = 3,
                 .kept_groups = 2,
                 .balance_rate = 1e-2,
                 .sequence_balance = 0.05};
    model.moe_layers = {.period = 1, .first = 1};
}

void set_scales(DecoderConfig& model) {
    model.embedding_scale = 3;
    if (model.norm_placement != NormPlacement::after) model.residual_scale = 0.4;
    model.logits_scale = 0.6;
    if (auto* a = std::get_if<GroupedAttentionConfig>(&model.attention)) a->scale = 0.3;
}

void set_parallel(DecoderConfig& model) {
    model.parallel_block = model.norm_placement == NormPlacement::before;
}

DecoderConfig tiny_config(int64_t layers, bool tied) {
    return {.family = "llama3",
            .flavor = "tiny",
            .dim = 24,
            .layers = layers,
            .vocab = 37,
            .attention = GroupedAttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 6},
            .feed_forward = {.hidden = 20},
            .rope = {.theta = 500000},
            .tied = tied};
}

}  // namespace coeus::test
