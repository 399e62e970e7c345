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
        int32_t id;
    };
    struct Match {
        size_t begin, end;
        int32_t id;
    };

    explicit AddedTokens(std::vector<Token> tokens = {});

    /// The first match at or behind `from`; {size, size, -1} where there is none.
    Match next(std::string_view text, size_t from) const;
    /// True where a token contains white space, so that it may lie across a place that looks like the end of
    /// a word.
    bool contain_space() const { return contain_space_; }

private:
    struct Bucket {          // tokens with the same first byte
        std::string common;  // what all of them begin with
        std::vector<Token> longest_first;
    };
    std::array<uint8_t, 256> bucket_of_{};  // 1 + index, 0: none begins so
    std::vector<Bucket> buckets_;
    bool contain_space_ = false;
};

}  // namespace coeus
