// SPDX-License-Identifier: Apache-2.0
#include "vocab_and_merges.hpp"

#include "characters.hpp"
#include "coeus/base/error.hpp"
#include "pre_tokenizer.hpp"

#include <algorithm>

namespace coeus {

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs pairs_of(const std::string& file, std::string_view content) {
    Pairs pairs;
    for (int64_t number = 1; !content.empty(); ++number) {
        std::string_view line = content.substr(0, content.find('\n'));
        content.remove_prefix(std::min(content.size(), line.size() + 1));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line.starts_with("#version")) continue;
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
            throw ConfigError("{}: line {} must be two symbols and a space between them, but is \"{}\"", file,
                              number, line.substr(0, 80));
        pairs.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return pairs;
}

}  // namespace

BpeDescription read_vocab_and_merges(const std::string& folder, const std::string& vocab,
                                     const std::string& merges, const TokenizerConfig& config) {
    BpeDescription out;
    out.file = folder + "/vocab.json";
    const JsonDocument document = JsonDocument::parse(vocab, out.file);
    std::vector<std::pair<std::string, int32_t>> symbols;
    for (const auto& [content, id] : document.root().items()) {
        if (content.size() > 4 && content.ends_with("</w>"))
            throw ConfigError(
                "{}: the token \"{}\" marks the end of a word, as in CLIP; only byte-level BPE is supported",
                out.file, content);
        symbols.emplace_back(content, token_id(id));
    }
    out.set_symbols(symbols, pairs_of(folder + "/merges.txt", merges));
    const bool qwen = config.tokenizer_class.starts_with("Qwen2Tokenizer");
    out.add_split({qwen ? qwen_pattern : gpt2_pattern});
    if (qwen)
        out.normalizers.push_back({"nfc",
                                   [](std::string_view text, bool&, std::string& buffer) {
                                       return in_normal_form(text, NormalForm::c, buffer);
                                   },
                                   true});
    out.added = config.added;
    for (const auto& added : config.added_before)
        if (!out.id_of(added.token.content)) out.added.push_back(added);
    out.set_special(config.bos, config.eos);
    return out;
}

}  // namespace coeus
