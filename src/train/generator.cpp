// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/generator.hpp"

#include "coeus/base/random.hpp"
#include "coeus/state/step_state.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coeus {

int32_t draw_token(std::span<const float> logits, const Sampling& sampling, uint64_t index) {
    const auto most_likely = std::max_element(logits.begin(), logits.end());
    if (sampling.temperature <= 0) return int32_t(most_likely - logits.begin());

    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    // ties by id, so that the order is one
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
    });
    if (sampling.top_k > 0) order.resize(std::min(order.size(), size_t(sampling.top_k)));

    std::vector<double> cumulative;
    double sum = 0;
    for (int32_t id : order)
        cumulative.push_back(
            sum += std::exp((double(logits[size_t(id)]) - double(*most_likely)) / sampling.temperature));
    const auto kept = std::lower_bound(cumulative.begin(), cumulative.end(), sampling.top_p * sum);
    const size_t last = std::min(size_t(kept - cumulative.begin()), cumulative.size() - 1);

    const double at = RandomStream(sampling.seed, "generate").uniform(index) * cumulative[last];
    const auto chosen = std::lower_bound(cumulative.begin(), cumulative.begin() + int64_t(last), at);
    return order[size_t(chosen - cumulative.begin())];
}

Generator::Generator(const DecoderConfig& config, Dtype dtype, int64_t context, int threads)
    : context_(context),
      decoder_(config, {.master = dtype == Dtype::bf16 ? Dtype::f32 : dtype, .compute = dtype}, context),
      stage_(decoder_),
      tokens_(Dtype::i32, {context}, "tokens"),
      positions_(Dtype::i32, {context}, "positions"),
      logits_(decoder_.parameters().types().accumulate(), {1, config.vocab}, "logits") {
    const MemoryPlan plan = plan_generation(decoder_, {.sequences = 1, .seq_len = context}, threads);
    require_fits(plan, memory_limit_bytes());
    decoder_.parameters().allocate(false);
    exec_.threads = threads;
    exec_.workspace = Arena(plan.workspace, "kernel workspace");
    frame_ = Frame(plan.activations, plan.frame_entries);
    temp_ = Arena(plan.temporaries, "temporaries");
    for (int64_t i = 0; i < context; ++i) positions_.view.as<int32_t>()[i] = int32_t(i);
    last_.resize(size_t(config.vocab));
}

std::span<const float> Generator::next_logits(std::span<const int32_t> tokens) {
    require(!tokens.empty(), "generation starts from at least one token");
    const auto window = tokens.last(std::min(tokens.size(), size_t(context_)));
    std::copy(window.begin(), window.end(), tokens_.view.as<int32_t>());
    const int64_t count = int64_t(window.size());
    const Batch batch = {.sequences = 1,
                         .seq_len = count,
                         .tokens = tokens_.view.slice_rows(0, count),
                         .labels = {},
                         .positions = positions_.view.slice_rows(0, count),
                         .document_start = {}};
    Ctx c{exec_, cpu_kernels(), frame_, temp_, batch, step_.scalars()};
    stage_.last_logits(c, logits_);
    for (size_t i = 0; i < last_.size(); ++i) {
        last_[i] = float(element(logits_, int64_t(i)));
        if (!std::isfinite(last_[i]))
            throw NotFiniteError("the model's logits are not finite: its weights are not, or too large");
    }
    return last_;
}

}  // namespace coeus
