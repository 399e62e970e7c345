// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/describe_tokens.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <optional>

namespace coeus {

namespace {

constexpr const char *grey = "\x1b[90m", *plain = "\x1b[0m";

bool has_token(const Tokenizer& tokenizer, int32_t id) {
    try {
        tokenizer.bytes_of(id);
        return true;
    } catch (const ConfigError&) {
        return false;
    }
}

// One token, whatever precedes it.
std::string alone(const Tokenizer& tokenizer, int32_t id) {
    const std::string& bytes = tokenizer.bytes_of(id);
    const std::vector<int32_t> one = {id};
    if (tokenizer.decode(one).find("\xef\xbf\xbd") == std::string::npos) return bytes;
    std::string hexadecimal;
    for (const char c : bytes) hexadecimal += fmt::format("\\x{:02x}", uint8_t(c));
    return hexadecimal;
}

// Appends tokens one by one.
class Writer {
public:
    Writer(const Tokenizer& tokenizer, const TokenStyle& style)
        : tokenizer_(&tokenizer), style_(style), stream_(tokenizer, false) {}

    void begin_document(const std::string& line) {
        end_text();
        if (!text_.empty() && !text_.ends_with('\n')) text_ += '\n';
        text_ += line + "\n";
        divided_ = true;
    }
    void add(int32_t id, bool masked) {
        if (masked != masked_) {
            end_text();
            text_ += masked ? (style_.colors ? grey : "[") : (style_.colors ? plain : "]");
            masked_ = masked;
        }
        if (style_.divides && !divided_) text_ += '|';
        divided_ = false;
        if (!has_token(*tokenizer_, id))
            put(fmt::format("<id {}>", id));
        else
            put(style_.divides ? alone(*tokenizer_, id) : stream_.push(id));
    }
    std::string finish() {
        end_text();
        if (masked_) text_ += style_.colors ? plain : "]";
        return std::move(text_);
    }

private:
    void put(const std::string& text) { text_ += printable_lines(text); }
    // Bytes of a character that does not continue.
    void end_text() {
        put(stream_.finish());
        stream_ = Tokenizer::Stream(*tokenizer_, false);
    }

    const Tokenizer* tokenizer_;
    TokenStyle style_;
    Tokenizer::Stream stream_;
    std::string text_;
    bool masked_ = false, divided_ = true;
};

}  // namespace

void require_made_by(const TokenFile& file, const Tokenizer& tokenizer) {
    const std::string& hash = file.tokenizer_hash();
    if (hash.empty() || tokenizer.has_hash(hash)) return;
    throw ConfigError(
        "{}: was made with the tokenizer {}, but that in {} is {}; give the one that made it with "
        "--tokenizer",
        file.path(), hash, tokenizer.folder(), tokenizer.hash());
}

std::string text_of(const ShownTokens& tokens, const TokenFile& file, const Tokenizer& tokenizer,
                    const TokenStyle& style) {
    std::vector<int32_t> starts(tokens.ids.size());
    file.document_starts(tokens.first, starts);
    Writer writer(tokenizer, style);
    for (size_t t = 0; t < tokens.ids.size(); ++t) {
        if (t > 0 && starts[t] != starts[t - 1])
            writer.begin_document(file.lists_documents()
                                      ? fmt::format("--- document {} ---",
                                                    with_commas(file.document_of(tokens.first + int64_t(t))))
                                      : "--- another document ---");
        writer.add(tokens.ids[t], !tokens.masked.empty() && tokens.masked[t]);
    }
    return writer.finish();
}

}  // namespace coeus
