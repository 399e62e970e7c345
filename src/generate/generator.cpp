// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/generator.hpp"

#include "coeus/base/random.hpp"
#include "coeus/state/step_state.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coeus {

namespace {

/// The ids that may be sampled. If these are all ids, they are in ascending order. Otherwise, the most likely
/// is first, and equally likely ids are in ascending order. A heap is used, so that a large vocabulary is not
/// sorted to get a few ids.
std::vector<int32_t> candidates(std::span<const float> logits, const Sampling& sampling, float highest) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto count = sampling.top_k > 0 ? std::min(ids.size(), size_t(sampling.top_k)) : ids.size();
    if (count == ids.size() && sampling.top_p >= 1) return ids;

    const auto less_likely = [&](int32_t a, int32_t b) {
        return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] < logits[size_t(b)] : a > b;
    };
    const auto weight = [&](int32_t id) {
        return std::exp((double(logits[size_t(id)]) - double(highest)) / sampling.temperature);
    };
    std::make_heap(ids.begin(), ids.end(), less_likely);
    auto heap_end = ids.end();
    const auto next = [&] {
        std::pop_heap(ids.begin(), heap_end, less_likely);
        return *--heap_end;
    };
    std::vector<int32_t> chosen;
    double total = 0, sum = 0;
    if (count < ids.size()) {
        while (chosen.size() < count) chosen.push_back(next());
        for (int32_t id : chosen) total += weight(id);
        size_t kept = 0;
        while (kept < count && (kept == 0 || sum < sampling.top_p * total)) sum += weight(chosen[kept++]);
        chosen.resize(kept);
        return chosen;
    }
    for (int32_t id : ids) total += weight(id);
    while (heap_end != ids.begin() && (chosen.empty() || sum < sampling.top_p * total)) {
        chosen.push_back(next());
        sum += weight(chosen.back());
    }
    return chosen;
}

// Returns these logits (on the host) after a check that they are finite.
Tensor finite(const Tensor& logits) {
    for (int64_t i = 0; i < logits.count(); ++i)
        if (!std::isfinite(element(logits, i)))
            throw NotFiniteError(
                "the model's logits are not finite: some of its weights are not finite or too large");
    return logits;
}

// Only training predicts further tokens.
DecoderConfig without_mtp(DecoderConfig config) {
    config.mtp.layers = 0;
    return config;
}

}  // namespace

int32_t draw_token(std::span<const float> logits, const Sampling& sampling, uint64_t index, uint64_t text) {
    const auto most_likely = std::max_element(logits.begin(), logits.end());
    if (sampling.temperature <= 0) return int32_t(most_likely - logits.begin());

    const std::vector<int32_t> ids = candidates(logits, sampling, *most_likely);
    std::vector<double> cumulative;
    double sum = 0;
    for (int32_t id : ids)
        cumulative.push_back(
            sum += std::exp((double(logits[size_t(id)]) - double(*most_likely)) / sampling.temperature));
    const double at = RandomStream(sampling.seed, "generate").uniform((text << 32) + index) * sum;
    const auto chosen = std::lower_bound(cumulative.begin(), cumulative.end() - 1, at);
    return ids[size_t(chosen - cumulative.begin())];
}

Generator::Generator(const DecoderConfig& config, Dtype dtype, int64_t context, int64_t sequences,
                     int threads, const Device& device)
    : cache_(config.layers, sequences, context, config.head_sizes().key_width(),
             config.head_sizes().value_width(), dtype),
      decoder_(without_mtp(config), {.master = dtype == Dtype::bf16 ? Dtype::f32 : dtype, .compute = dtype},
               context),
      stage_(decoder_),
      layers_(measure_generation(decoder_, config.vocab, cache_, {threads, device.architecture()},
                                 device.backend())),
      plan_(plan_generation(decoder_, cache_, layers_)),
      kernels_(&kernels_of(device.backend())),
      exec_(device),
      step_(device),
      lengths_(size_t(sequences), 0) {
    require(sequences >= 1 && sequences <= most_sequences(device),
            "the number of texts must be from 1 to most_sequences()");
    require_fits(plan_, device.memory_bytes(), [] { return "Reduce --context or --batch"; });
    const Memory& memory = device.memory();
    decoder_.allocate(false, device);
    cache_.allocate(memory);
    exec_.threads = threads;
    exec_.workspace = Arena(layers_.workspace, "kernel workspace", memory);
    frame_ = Frame(layers_.activations, layers_.executor.frame_entries, 0, memory);
    temp_ = Arena(layers_.temporaries, "temporaries", memory);
    const int64_t most = std::max(context, sequences);
    tokens_ = StagedIds(device, most, "tokens");
    positions_ = StagedIds(device, most, "positions");
    slots_ = StagedIds(device, sequences, "slots");
    const Dtype type = decoder_.parameters().types().accumulate();
    const Shape shape = {sequences, config.vocab};
    logits_ = OwnedTensor(type, shape, "logits", memory);
    if (!device.is_host()) staged_logits_ = OwnedTensor(type, shape, "logits", device.staging());
    logits_on_host_ = device.is_host() ? logits_.view : staged_logits_.view;
}

Tensor Generator::read(int64_t slot, std::span<const int32_t> tokens) {
    const auto count = int64_t(tokens.size());
    require(count >= 1 && count <= context(), "a text must have from 1 to context() tokens");
    std::copy(tokens.begin(), tokens.end(), tokens_.host());
    std::iota(positions_.host(), positions_.host() + count, 0);
    lengths_[size_t(slot)] = count;
    return run({.sequences = 1,
                .seq_len = count,
                .tokens = tokens_.brought(exec_, count),
                .labels = {},
                .positions = positions_.brought(exec_, count),
                .document_start = {}},
               PromptExchange(cache_, slot));
}

Tensor Generator::append(std::span<const Next> tokens) {
    const auto count = int64_t(tokens.size());
    require(count >= 1 && count <= sequences(), "there must be from 1 to sequences() tokens");
    for (int64_t i = 0; i < count; ++i) {
        const Next& next = tokens[size_t(i)];
        int64_t& length = lengths_[size_t(next.slot)];
        require(length >= 1 && length < context(), "the slot must have a text and must not be full");
        tokens_.host()[i] = next.token;
        positions_.host()[i] = int32_t(length++);
        slots_.host()[i] = int32_t(next.slot);
    }
    return run({.sequences = count,
                .seq_len = 1,
                .tokens = tokens_.brought(exec_, count),
                .labels = {},
                .positions = positions_.brought(exec_, count),
                .document_start = {}},
               CachedExchange(cache_, slots_.brought(exec_, count)));
}

Tensor Generator::run(const Batch& batch, const KvExchange& exchange) {
    const Tensor logits = logits_.view.slice_rows(0, batch.sequences);
    Ctx c = generating_context({exec_, *kernels_, frame_, temp_, step_.scalars()}, batch, exchange);
    stage_.last_logits(c, logits);
    const Tensor on_host = logits_on_host_.slice_rows(0, batch.sequences);
    exec_.queue->copy(on_host.data, logits.data, logits.bytes());
    exec_.queue->finish();
    return finite(on_host);
}

}  // namespace coeus
