// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.hpp"

#include "characters.hpp"

#include <algorithm>
#include <cstring>

namespace coeus {

AddedTokens::AddedTokens(std::vector<Token> tokens) {
    std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
        return a.content.size() != b.content.size() ? a.content.size() > b.content.size()
                                                    : a.content < b.content;
    });
    for (Token& token : tokens) {
        simple_ = simple_ && token.plain() && token.content.find_first_of(" \t\r\n") == std::string::npos;
        uint8_t& index = bucket_of_[uint8_t(token.content[0])];
        if (index == 0) {
            buckets_.push_back({token.content, {}});
            index = uint8_t(buckets_.size());
        }
        Bucket& bucket = buckets_[size_t(index) - 1];
        const auto [common, other] = std::mismatch(bucket.common.begin(), bucket.common.end(),
                                                   token.content.begin(), token.content.end());
        bucket.common.erase(common, bucket.common.end());
        bucket.longest_first.push_back(std::move(token));
    }
    if (buckets_.size() == 1) only_first_byte_ = uint8_t(buckets_[0].common[0]);
}

AddedTokens::Match AddedTokens::next(std::string_view text, Cursor& cursor) const {
    for (size_t at = cursor.search; at < text.size() && !buckets_.empty(); ++at) {
        if (only_first_byte_ >= 0) {
            const void* found = std::memchr(text.data() + at, only_first_byte_, text.size() - at);
            if (!found) break;
            at = size_t(static_cast<const char*>(found) - text.data());
        }
        const uint8_t index = bucket_of_[uint8_t(text[at])];
        if (index == 0) continue;
        const Bucket& bucket = buckets_[size_t(index) - 1];
        const std::string_view here = text.substr(at);
        if (!here.starts_with(bucket.common)) continue;
        const auto token = std::find_if(bucket.longest_first.begin(), bucket.longest_first.end(),
                                        [&](const Token& t) { return here.starts_with(t.content); });
        if (token == bucket.longest_first.end()) continue;
        const size_t end = at + token->content.size();
        cursor.search = end;
        if (token->single_word && (ends_in_word(text.substr(0, at)) || starts_in_word(text.substr(end)))) {
            at = end - 1;  // skipped as a whole, as Hugging Face does
            continue;
        }
        const size_t begin = token->lstrip ? std::max(space_at_end(text.substr(0, at)), cursor.taken) : at;
        cursor.taken = token->rstrip ? end + space_at_start(text.substr(end)) : end;
        return {begin, cursor.taken, token->id};
    }
    cursor.search = cursor.taken = text.size();
    return {text.size(), text.size(), -1};
}

}  // namespace coeus
