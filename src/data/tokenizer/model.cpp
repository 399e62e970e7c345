// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

// The bytes of all tokens, joined, are the text. A character may be split over several tokens.
class ByteDecoder : public TokenizerModel::Decoder {
public:
    std::string push(int32_t, std::string_view bytes) override {
        held_ += bytes;
        // at most three bytes can wait for the rest of their character
        size_t waiting = 0;
        for (size_t n = 1; n <= std::min<size_t>(3, held_.size()); ++n)
            if (incomplete_utf8(std::string_view(held_).substr(held_.size() - n))) waiting = n;
        std::string ready = held_.substr(0, held_.size() - waiting);
        held_.erase(0, ready.size());
        int64_t replaced = 0;
        return repaired_utf8(ready, replaced);
    }

    std::string finish() override {
        int64_t replaced = 0;
        return repaired_utf8(std::exchange(held_, ""), replaced);
    }

private:
    std::string held_;
};

}  // namespace

void Vocabulary::put(int32_t id, std::string its_bytes, bool is_special) {
    if (bytes.size() <= size_t(id)) {
        bytes.resize(size_t(id) + 1);
        special.resize(size_t(id) + 1);
    }
    bytes[size_t(id)] = std::move(its_bytes);
    special[size_t(id)] = is_special;
}

size_t TokenizerModel::Encoder::encode_part(std::string_view, size_t, size_t, std::vector<int32_t>&) {
    throw LogicError("this kind of tokenizer encodes whole texts only");
}

std::unique_ptr<TokenizerModel::Decoder> TokenizerModel::decoder() const {
    return std::make_unique<ByteDecoder>();
}

}  // namespace coeus
