// SPDX-License-Identifier: Apache-2.0
#include "coeus/generate/next_tokens.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>

namespace coeus {

namespace {

size_t most_texts(const std::vector<std::vector<size_t>>& of_ranks) {
    size_t most = 0;
    for (const std::vector<size_t>& texts : of_ranks) most = std::max(most, texts.size());
    return most;
}

}  // namespace

NextTokens::NextTokens(Generator& generator, const Sampling& sampling, int64_t vocab)
    : generator_(generator),
      data_ranks_(generator.mesh().size(axis::dp)),
      data_rank_(generator.mesh().rank(axis::dp)),
      drawn_(sampling, vocab) {}

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
    drawn_.begin(texts.size());
    const std::vector<std::vector<size_t>> of_ranks = by_data_rank(texts);
    const std::vector<size_t>& own = of_ranks[size_t(data_rank_)];
    for (size_t round = 0; round < most_texts(of_ranks); ++round) {
        size_t longest = 0;
        for (const std::vector<size_t>& of_rank : of_ranks)
            if (round < of_rank.size()) longest = std::max(longest, texts[of_rank[round]].tokens.size());
        if (round < own.size()) {
            const Reading& text = texts[own[round]];
            const Tensor logits = generator_.read(slot_here(text.place.slot), text.tokens, int64_t(longest));
            draw(own[round], logits, 0, text.place);
        } else {
            generator_.read(0, {}, int64_t(longest));
        }
    }
    return agreed();
}

// As many texts at once as the generator can continue.
std::vector<int32_t> NextTokens::append(std::span<const Appended> texts) {
    drawn_.begin(texts.size());
    const std::vector<std::vector<size_t>> of_ranks = by_data_rank(texts);
    const std::vector<size_t>& own = of_ranks[size_t(data_rank_)];
    std::vector<Generator::Next> next;
    for (const size_t i : own) next.push_back({slot_here(texts[i].place.slot), texts[i].token});
    const size_t most = most_texts(of_ranks), at_once = size_t(generator_.texts_at_once());
    for (size_t first = 0; first < most; first += at_once) {
        const size_t begin = std::min(first, own.size()), end = std::min(first + at_once, own.size());
        const Tensor logits = generator_.append(std::span(next).subspan(begin, end - begin),
                                                int64_t(std::min(at_once, most - first)));
        for (size_t i = begin; i < end; ++i) draw(own[i], logits, int64_t(i - begin), texts[own[i]].place);
    }
    return agreed();
}

// The first of the tensor-parallel ranks that have the logits draws.
void NextTokens::draw(size_t text, Tensor logits, int64_t row, const Place& place) {
    if (logits && generator_.mesh().rank(axis::tp) == 0)
        drawn_.draw(text, logits.slice_rows(row, 1), place.index, place.text);
}

std::vector<int32_t> NextTokens::agreed() {
    std::vector<int32_t> drawn = drawn_.agreed(generator_.mesh().world());
    if (std::ranges::find(drawn, DrawnTokens::not_finite) != drawn.end())
        throw NotFiniteError(
            "the model's logits are not finite: some of its weights are not finite or too large");
    return drawn;
}

}  // namespace coeus
