// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text (Sennrich et al. 2016; over bytes: Radford et al. 2019): starting
// from single bytes, the pair that was learnt first is merged, leftmost first, until no known pair is left.
#pragma once

#include "word_map.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coeus {

class Bpe {
public:
    struct Merge {
        int32_t left, right, result;
        int32_t rank;  ///< the lowest is merged first
    };

    /// `bytes_of_id`: each id's bytes, nothing for ids that are no part of the model. Of two merges for one
    /// pair the first counts. `whole_pieces`: a piece that is in the vocabulary is that token, whatever the
    /// merges make of it (tokenizer.json: ignore_merges).
    Bpe(const std::vector<std::optional<std::string>>& bytes_of_id, const std::vector<Merge>& merges,
        bool whole_pieces);

    /// One thread's use: scratch memory and a cache of the pieces seen.
    class Encoder {
    public:
        explicit Encoder(const Bpe& bpe) : bpe_(&bpe) {}
        /// Appends the ids of a piece. Bytes that the vocabulary lacks vanish.
        void encode(std::string_view piece, std::vector<int32_t>& ids);

    private:
        void merge(std::string_view piece, std::vector<int32_t>& ids);
        void offer(int32_t left);

        struct Symbol {
            int32_t id, previous, next;  // indices of neighbours, -1 at the ends; id -1: merged away
        };
        struct Candidate {
            int32_t rank, left, left_id, right_id, result;
            bool operator>(const Candidate& other) const {
                return rank != other.rank ? rank > other.rank : left > other.left;
            }
        };
        struct Known {
            uint32_t begin = 0, count = 0;  // in ids_; count 0: new
        };

        const Bpe* bpe_;
        std::vector<Symbol> symbols_;
        std::vector<Candidate> candidates_;  // a heap, smallest first
        WordMap<Known> cache_;
        std::vector<int32_t> ids_;
    };

private:
    struct Ranked {
        uint64_t pair;  // left << 32 | right, or free
        int32_t rank, result;
    };
    static constexpr uint64_t free_slot = ~uint64_t(0);

    const Ranked* find(int32_t left, int32_t right) const;

    std::array<int32_t, 256> id_of_byte_;
    std::vector<Ranked> merges_;  // open addressing, a power of two
    bool whole_pieces_;
    std::unordered_map<std::string, int32_t> id_of_piece_;  // only with whole_pieces
};

}  // namespace coeus
