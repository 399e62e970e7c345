// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.hpp"

#include <algorithm>

namespace coeus {

AddedTokens::AddedTokens(std::vector<Token> tokens) {
    std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
        return a.content.size() != b.content.size() ? a.content.size() > b.content.size()
                                                    : a.content < b.content;
    });
    for (Token& token : tokens) {
        contain_space_ = contain_space_ || token.content.find_first_of(" \t\r\n") != std::string::npos;
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
}

AddedTokens::Match AddedTokens::next(std::string_view text, size_t from) const {
    for (size_t at = from; at < text.size() && !buckets_.empty(); ++at) {
        const uint8_t index = bucket_of_[uint8_t(text[at])];
        if (index == 0) continue;
        const Bucket& bucket = buckets_[size_t(index) - 1];
        const std::string_view here = text.substr(at);
        if (!here.starts_with(bucket.common)) continue;
        for (const Token& token : bucket.longest_first)
            if (here.starts_with(token.content)) return {at, at + token.content.size(), token.id};
    }
    return {text.size(), text.size(), -1};
}

}  // namespace coeus
