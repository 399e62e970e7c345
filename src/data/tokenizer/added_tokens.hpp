// SPDX-License-Identifier: Apache-2.0
// Added tokens, such as <|end_of_text|>, are found in the text before it is split into pieces. If several
// match, the leftmost wins; among those at the same position, the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

class AddedTokens {
public:
    struct Token {
        std::string content;
        int32_t id = -1;
        bool lstrip = false, rstrip = false;  ///< a match includes white space before it, after it
        bool single_word = false;             ///< does not match inside a word
        bool plain() const { return !lstrip && !rstrip && !single_word; }
    };
    struct Match {
        size_t begin, end;
        int32_t id = -1;
    };
    /// Progress of a search: where to search next, and the end of the last match. White space after a token
    /// can be part of its match, but is still searched for other tokens.
    struct Cursor {
        size_t search = 0, taken = 0;
    };

    explicit AddedTokens(std::vector<Token> tokens = {});

    /// The next match, or {size, size, -1} if there is none. Moves the cursor past it.
    Match next(std::string_view text, Cursor& cursor) const;

    /// Calls plain(text) and token(id) for the parts of the text, in order.
    template <class Plain, class Found>
    void split(std::string_view text, Plain&& plain, Found&& token) const {
        for (Cursor cursor; cursor.taken < text.size();) {
            const size_t from = cursor.taken;
            const Match match = next(text, cursor);
            if (match.begin > from) plain(text.substr(from, match.begin - from));
            if (match.id < 0) return;
            token(match.id);
        }
    }

    bool empty() const { return buckets_.empty(); }
    /// True if matches depend only on their own bytes and contain no white space. Then no match extends
    /// across the end of a word.
    bool simple() const { return simple_; }

private:
    struct Bucket {          // tokens with the same first byte
        std::string common;  // the longest prefix that they share
        std::vector<Token> longest_first;
    };
    std::array<uint8_t, 256> bucket_of_{};  // by first byte: 1 + index; 0: there are no such tokens
    std::vector<Bucket> buckets_;
    int only_first_byte_ = -1;  // the first byte of all tokens, if it is the same
    bool simple_ = true;
};

}  // namespace coeus
