// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text (Sennrich et al. 2016; with bytes: Radford et al. 2019). It starts
// from single symbols, which are bytes or characters, and repeatedly merges the pair that was learnt first,
// leftmost first, until no known pair is left.
#pragma once

#include "word_map.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

class Bpe {
public:
    struct Merge {
        int32_t left, right, result;
        int32_t rank;  ///< the lowest is merged first
    };

    struct Options {
        /// A piece that is in the vocabulary becomes that token, even if merges give another result
        /// (tokenizer.json: ignore_merges).
        bool whole_pieces = false;
        /// Symbols are characters, not bytes.
        bool characters = false;
        /// The tokens of the 256 bytes, which replace a character that is not in the vocabulary; -1: there is
        /// none. Empty: nothing replaces it (tokenizer.json: byte_fallback).
        std::vector<int32_t> byte_tokens = {};
        /// Replaces all other symbols that are not in the vocabulary (unk_token). Without it, they are
        /// dropped.
        std::optional<int32_t> unknown = {};
        /// Consecutive ones are one token (fuse_unk).
        bool fuse_unknown = false;
    };

    /// `text_of_id`: the bytes of each id; nothing for ids that are not part of the model. If a pair has two
    /// merges, the last one applies.
    Bpe(const std::vector<std::optional<std::string>>& text_of_id, const std::vector<Merge>& merges,
        Options options);

    /// True if every symbol becomes at least one token.
    bool drops_nothing() const;

    /// Encodes for one thread, with its own scratch memory and cache of pieces.
    class Encoder {
    public:
        explicit Encoder(const Bpe& bpe) : bpe_(&bpe) {}
        /// Appends the ids of the piece text[begin, end), which must be valid UTF-8 if symbols are
        /// characters.
        void encode(std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids) {
            if (end - begin > longest_cached) return merge(text.substr(begin, end - begin), ids);
            const Known& known = cache_.at(text, begin, end);
            if (known.count == is_new) return encode_new(text, begin, end, ids);
            const int32_t* const first = known.count <= 3 ? known.ids : ids_.data() + known.ids[0];
            for (int32_t i = 0; i < known.count; ++i) ids.push_back(first[i]);
        }

    private:
        // Long pieces hardly ever occur again.
        static constexpr size_t longest_cached = 64;
        static constexpr int32_t is_new = -1;

        void encode_new(std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids);
        void merge(std::string_view piece, std::vector<int32_t>& ids);
        void start(std::string_view piece);
        bool start_from_bytes_of(std::string_view character);
        void merge_few(std::vector<int32_t>& ids);
        void merge_many(std::vector<int32_t>& ids);
        void offer(int32_t left);

        struct Symbol {
            int32_t id, previous,
                next;  // indices of neighbours, -1 at the ends; id -1: merged into another one
        };
        struct Candidate {
            int32_t rank, left, left_id, right_id, result;
            bool operator>(const Candidate& other) const {
                return rank != other.rank ? rank > other.rank : left > other.left;
            }
        };
        struct Known {
            int32_t count = is_new;
            int32_t ids[3];  // if there are more ids, ids[0] is the index of the first one in ids_
        };

        const Bpe* bpe_;
        std::vector<int32_t> parts_, ranks_, results_;  // see merge_few
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
    int32_t id_of_symbol(std::string_view symbol) const;

    Options options_;
    std::array<int32_t, 256> id_of_byte_;  // of symbols that are one byte; -1: not in the vocabulary
    WordMap<int32_t> id_of_character_;     // of longer ones
    std::vector<Ranked> merges_;           // open addressing, a power of two
    int shift_;                            // from the hash of a pair to an index
    WordMap<int32_t> id_of_piece_;         // only with whole_pieces
};

}  // namespace coeus
