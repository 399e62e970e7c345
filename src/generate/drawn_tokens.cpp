// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/drawn_tokens.hpp"

#include "coeus/base/random.hpp"

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

bool is_finite(const Tensor& logits) {
    for (int64_t i = 0; i < logits.count(); ++i)
        if (!std::isfinite(element(logits, i))) return false;
    return true;
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

void DrawnTokens::draw(size_t text, const Tensor& logits, uint64_t index, uint64_t number) {
    for (size_t i = 0; i < row_.size(); ++i) row_[i] = float(element(logits, int64_t(i)));
    drawn_[text] = is_finite(logits) ? draw_token(row_, sampling_, index, number) : not_finite;
}

std::vector<int32_t> DrawnTokens::agreed(const Communicator& world) {
    world.all_reduce(Tensor(drawn_.data(), Dtype::i32, {int64_t(drawn_.size())}), Reduce::max);
    return drawn_;
}

}  // namespace coeus
