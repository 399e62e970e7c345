// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text before anything else cuts it: <|end_of_text|> and the like. Where several
// match, the leftmost wins, and of those the longest.
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
        bool lstrip = false, rstrip = false;  ///< takes the white space before, behind it too
        bool single_word = false;             ///< not inside a word
        bool plain() const { return !lstrip && !rstrip && !single_word; }
    };
    struct Match {
        size_t begin, end;
        int32_t id = -1;
    };
    /// Where a search has come to. White space behind a token may be taken and searched nevertheless.
    struct Cursor {
        size_t search = 0, taken = 0;
    };

    explicit AddedTokens(std::vector<Token> tokens = {});

    /// The next match; {size, size, -1} where there is none. Moves the cursor behind it.
    Match next(std::string_view text, Cursor& cursor) const;

    /// Calls plain(text) and token(id) for what the text consists of, in order.
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
    /// True where matches depend on their own bytes alone and have no white space, so that none lies across a
    /// place that looks like the end of a word.
    bool simple() const { return simple_; }

private:
    struct Bucket {          // tokens with the same first byte
        std::string common;  // what all of them begin with
        std::vector<Token> longest_first;
    };
    std::array<uint8_t, 256> bucket_of_{};  // 1 + index, 0: none begins so
    std::vector<Bucket> buckets_;
    int only_first_byte_ = -1;  // where all tokens have the same
    bool simple_ = true;
};

}  // namespace coeus
