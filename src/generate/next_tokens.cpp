// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/next_tokens.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

// In the place of a token, below all tokens: its logits are not finite, or another rank draws it.
constexpr int32_t not_finite = -1, drawn_elsewhere = -2;

bool is_finite(const Tensor& logits) {
    for (int64_t i = 0; i < logits.count(); ++i)
        if (!std::isfinite(element(logits, i))) return false;
    return true;
}

size_t most_texts(const std::vector<std::vector<size_t>>& of_ranks) {
    size_t most = 0;
    for (const std::vector<size_t>& texts : of_ranks) most = std::max(most, texts.size());
    return most;
}

}  // namespace

NextTokens::NextTokens(Generator& generator, const Sampling& sampling, int64_t vocab)
    : generator_(generator),
      sampling_(sampling),
      data_ranks_(generator.mesh().size(text_axes)),
      data_rank_(generator.mesh().rank(text_axes)),
      row_(size_t(vocab)) {}

// The numbers of the texts of each data rank, in their order.
template <class Text>
std::vector<std::vector<size_t>> NextTokens::by_data_rank(std::span<const Text> texts) const {
    std::vector<std::vector<size_t>> of_ranks(static_cast<size_t>(data_ranks_));
    for (size_t i = 0; i < texts.size(); ++i)
        of_ranks[size_t(data_rank_of(texts[i].place.slot))].push_back(i);
    return of_ranks;
}

// Each data rank reads one text at a time.
std::vector<int32_t> NextTokens::read(std::span<const Reading> texts) {
    std::vector<int32_t> drawn(texts.size(), drawn_elsewhere);
    const std::vector<std::vector<size_t>> of_ranks = by_data_rank(texts);
    const std::vector<size_t>& own = of_ranks[size_t(data_rank_)];
    for (size_t round = 0; round < most_texts(of_ranks); ++round) {
        size_t longest = 0;
        for (const std::vector<size_t>& of_rank : of_ranks)
            if (round < of_rank.size()) longest = std::max(longest, texts[of_rank[round]].tokens.size());
        if (round < own.size()) {
            const Reading& text = texts[own[round]];
            const Tensor logits = generator_.read(slot_here(text.place.slot), text.tokens, int64_t(longest));
            draw(drawn[own[round]], logits, 0, text.place);
        } else {
            generator_.read(0, {}, int64_t(longest));
        }
    }
    return agreed(std::move(drawn));
}

std::vector<int32_t> NextTokens::append(std::span<const Appended> texts) {
    std::vector<int32_t> drawn(texts.size(), drawn_elsewhere);
    const std::vector<std::vector<size_t>> of_ranks = by_data_rank(texts);
    const std::vector<size_t>& own = of_ranks[size_t(data_rank_)];
    std::vector<Generator::Next> next;
    for (const size_t i : own) next.push_back({slot_here(texts[i].place.slot), texts[i].token});
    const Tensor logits = generator_.append(next, int64_t(most_texts(of_ranks)));
    for (size_t row = 0; row < own.size(); ++row)
        draw(drawn[own[row]], logits, int64_t(row), texts[own[row]].place);
    return agreed(std::move(drawn));
}

// The first of the tensor-parallel ranks that have the logits draws.
void NextTokens::draw(int32_t& token, Tensor logits, int64_t row, const Place& place) {
    if (!logits || generator_.mesh().rank(axis::tp) != 0) return;
    logits = logits.slice_rows(row, 1);
    for (size_t i = 0; i < row_.size(); ++i) row_[i] = float(element(logits, int64_t(i)));
    token = is_finite(logits) ? draw_token(row_, sampling_, place.index, place.text) : not_finite;
}

std::vector<int32_t> NextTokens::agreed(std::vector<int32_t> drawn) const {
    generator_.mesh().world().all_reduce(Tensor(drawn.data(), Dtype::i32, {int64_t(drawn.size())}),
                                         Reduce::max);
    if (std::ranges::find(drawn, not_finite) != drawn.end())
        throw NotFiniteError(
            "the model's logits are not finite: some of its weights are not finite or too large");
    return drawn;
}

}  // namespace coeus
