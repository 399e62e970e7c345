// SPDX-License-Identifier: Apache-2.0
#include "piece_decoder.hpp"

#include "byte_symbols.hpp"
#include "coeus/base/utf8.hpp"

#include <charconv>
#include <system_error>
#include <utility>

namespace coeus {

namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
}

// A run of byte tokens is text if all of it is valid UTF-8, otherwise each of its bytes becomes U+FFFD.
class TextDecoder : public TokenizerModel::Decoder {
public:
    TextDecoder(const PieceDecoding& decoding, const std::vector<bool>& is_byte,
                const std::vector<std::string>& first_bytes)
        : is_byte_(is_byte),
          first_bytes_(first_bytes),
          stripped_(decoding.stripped),
          to_strip_(decoding.most_stripped) {}

    std::string push(int32_t id, std::string_view bytes) override {
        if (std::exchange(first_, false) && !first_bytes_.empty()) bytes = first_bytes_[size_t(id)];
        if (!is_byte_[size_t(id)]) return stripped(released().append(bytes));
        held_ += bytes;
        return "";
    }

    std::string finish() override { return stripped(released()); }

private:
    std::string released() {
        std::string bytes = std::exchange(held_, "");
        if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
        std::string text;
        for (size_t i = 0; i < bytes.size(); ++i) text += "\uFFFD";
        return text;
    }

    std::string stripped(std::string text) {
        size_t count = 0;
        while (to_strip_ > 0 && count < text.size() && text[count] == stripped_) ++count, --to_strip_;
        if (count < text.size()) to_strip_ = 0;
        return text.erase(0, count);
    }

    const std::vector<bool>& is_byte_;
    const std::vector<std::string>& first_bytes_;
    char stripped_;
    int64_t to_strip_;
    bool first_ = true;
    std::string held_;
};

}  // namespace

std::optional<uint8_t> byte_of_token(const std::string& content) {
    uint8_t byte = 0;
    if (content.size() != 6 || !content.starts_with("<0x") || content[5] != '>') return std::nullopt;
    const auto [stop, error] = std::from_chars(content.data() + 3, content.data() + 5, byte, 16);
    return error == std::errc() && stop == content.data() + 5 ? std::optional(byte) : std::nullopt;
}

std::string PieceDecoding::bytes_of(const std::string& content) const {
    if (byte_symbols) return bytes_of_symbols(content).value_or(content);
    std::string text = content;
    for (const auto& [from, to] : replaced) replace_all(text, from, to);
    const auto byte = byte_tokens ? byte_of_token(text) : std::nullopt;
    return byte ? std::string(1, char(*byte)) : text;
}

std::string PieceDecoding::first_bytes_of(const std::string& content) const {
    std::string text = content;
    if (!removed_from_first.empty()) replace_all(text, removed_from_first, "");
    return bytes_of(text);
}

std::unique_ptr<TokenizerModel::Decoder> make_piece_decoder(const PieceDecoding& decoding,
                                                            const std::vector<bool>& is_byte,
                                                            const std::vector<std::string>& first_bytes) {
    return std::make_unique<TextDecoder>(decoding, is_byte, first_bytes);
}

}  // namespace coeus
