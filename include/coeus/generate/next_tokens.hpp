// SPDX-License-Identifier: Apache-2.0
// NextTokens: the next tokens of texts, whichever data rank has their slots. All ranks pass the same texts,
// and get the same tokens: a rank that has the logits of a text draws its token, and tells all others. So all
// ranks make the same calls, whatever the texts become.
#pragma once

#include "coeus/generate/drawn_tokens.hpp"
#include "coeus/generate/generator.hpp"

#include <span>
#include <vector>

namespace coeus {

class NextTokens {
public:
    /// Only ids below `vocab` are drawn: the model's vocabulary may be padded for speed.
    NextTokens(Generator& generator, const Sampling& sampling, int64_t vocab);

    /// Slots of all data ranks. Adjacent ones are on different ranks.
    int64_t slots() const { return data_ranks_ * generator_.sequences(); }
    int64_t context() const { return generator_.context(); }

    /// The slot of a text, and which of its tokens is drawn (see draw_token()).
    struct Place {
        int64_t slot;
        uint64_t text, index;
    };
    struct Reading {
        Place place;
        std::span<const int32_t> tokens;
    };
    /// Generator::read() for each text; the slots are distinct. Returns the tokens that follow.
    /// NotFiniteError on all ranks if a logit of a text is not finite. Collective, like append().
    std::vector<int32_t> read(std::span<const Reading> texts);
    struct Appended {
        Place place;
        int32_t token;
    };
    /// Generator::append() for all texts together.
    std::vector<int32_t> append(std::span<const Appended> texts);

private:
    int64_t data_rank_of(int64_t slot) const { return slot % data_ranks_; }
    int64_t slot_here(int64_t slot) const { return slot / data_ranks_; }
    template <class Text>
    std::vector<std::vector<size_t>> by_data_rank(std::span<const Text> texts) const;
    void draw(size_t text, Tensor logits, int64_t row, const Place& place);
    std::vector<int32_t> agreed();

    Generator& generator_;
    int64_t data_ranks_, data_rank_;
    DrawnTokens drawn_;
};

}  // namespace coeus
