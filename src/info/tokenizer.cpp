// SPDX-License-Identifier: Apache-2.0
// coeus info for a tokenizer: its kind, the tokens that it adds around texts, and the tokens of a sample.
#include "coeus/data/tokenizer.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/info/kinds.hpp"

#include <algorithm>

namespace coeus::info {

namespace {

constexpr size_t most_shown = 16;  // special tokens in the list
constexpr const char* sample = "Hello, world! It's 2024: naïve café, 東京.";

std::string named(const Tokenizer& tokenizer, int32_t id) {
    const std::string& content = tokenizer.bytes_of(id);  // some tokens of SentencePiece have none
    return content.empty() ? std::to_string(id) : fmt::format("{} {}", id, content);
}

std::string list_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
    std::vector<std::string> parts;
    for (int32_t id : ids) parts.push_back(named(tokenizer, id));
    return parts.empty() ? "none" : join(parts, ", ");
}

void show_sample(const Tokenizer& tokenizer) {
    const std::vector<int32_t> ids = tokenizer.encode(sample);
    std::vector<std::string> numbers, pieces;
    for (int32_t id : ids) {
        numbers.push_back(std::to_string(id));
        const std::vector<int32_t> one = {id};
        // a token that is only a part of a character is shown in hexadecimal
        const bool whole = tokenizer.decode(one).find("\xef\xbf\xbd") == std::string::npos;
        std::string piece = tokenizer.bytes_of(id);
        if (!whole) {
            std::string hexadecimal;
            for (const char c : piece) hexadecimal += fmt::format("\\x{:02x}", uint8_t(c));
            piece = hexadecimal;
        }
        pieces.push_back(piece);
    }
    entry("sample", sample);
    entry("", fmt::format("{} tokens: {}", ids.size(), join(numbers, " ")));
    entry("", join(pieces, "|"));
}

void verify(const Tokenizer& tokenizer) {
    int64_t without = 0;
    for (int32_t id = 0; id < int32_t(tokenizer.vocab_size()); ++id) {
        try {
            tokenizer.bytes_of(id);
        } catch (const ConfigError&) {
            ++without;
        }
    }
    const std::string back = tokenizer.decode(tokenizer.encode(sample));
    entry("verified", fmt::format("{} ids have a token{}; the sample decodes to {}",
                                  with_commas(tokenizer.vocab_size() - without),
                                  without ? fmt::format(", {} have none", with_commas(without)) : "",
                                  back == sample ? "itself" : "\"" + back + "\""));
}

}  // namespace

void show_tokenizer(const std::string& place, const Options& options) {
    const Tokenizer tokenizer(place);
    print("{}: tokenizer, {}\n", place, tokenizer.kind());
    entry("vocabulary", with_commas(tokenizer.vocab_size()));
    const auto one = [&](std::optional<int32_t> id) {
        return id ? named(tokenizer, *id) : std::string("none");
    };
    entry("BOS", one(tokenizer.bos_id()));
    entry("EOS", one(tokenizer.eos_id()));
    const auto around = [&](const Tokenizer::Ends& ends) {
        return fmt::format("{} | text | {}", list_of(tokenizer, ends.before), list_of(tokenizer, ends.after));
    };
    entry("own template", around(tokenizer.own_ends()));
    entry("documents", around(tokenizer.document_ends()));
    std::vector<int32_t> special = tokenizer.special_ids();
    const size_t count = special.size();
    special.resize(std::min(count, most_shown));
    entry("special tokens",
          list_of(tokenizer, special) + (count > most_shown ? fmt::format(", ... ({} in all)", count) : ""));
    entry("hash", tokenizer.hash());
    if (!tokenizer.notice().empty()) entry("note", tokenizer.notice());
    show_sample(tokenizer);
    if (options.verify) verify(tokenizer);
}

}  // namespace coeus::info
