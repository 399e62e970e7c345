// SPDX-License-Identifier: Apache-2.0
#include "open.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/hub_name.hpp"
#include "sentencepiece.hpp"
#include "tiktoken.hpp"
#include "tokenizer_json.hpp"
#include "vocab_and_merges.hpp"

#include <algorithm>

namespace coeus {

namespace fs = std::filesystem;

namespace {

const char* const what_is_known =
    "tokenizer.json (`coeus tokenizer` makes one), a .model or .tiktoken file of tiktoken or SentencePiece, "
    "or vocab.json with merges.txt";

// True for a tokenizer.json in which characters outside the vocabulary fall back to bytes, as in
// SentencePiece's BPE.
bool is_of_sentencepiece(const std::string& json) {
    const size_t at = json.find("\"byte_fallback\"");
    if (at == std::string::npos) return false;
    const size_t value = json.find_first_not_of(" \t\r\n:", at + 15);
    return value != std::string::npos && json.compare(value, 4, "true") == 0;
}

// The main files of a folder's tokenizer: none, one, or several candidates.
std::vector<fs::path> main_files(const fs::path& folder) {
    // Llama 2: the JSON file was converted from the SentencePiece model in the same folder
    const fs::path model = folder / "tokenizer.model", json = folder / "tokenizer.json";
    if (fs::is_regular_file(model) && fs::is_regular_file(json) && is_of_sentencepiece(content_of(json)))
        return {model};
    for (const char* name : {"tokenizer.json", "tokenizer.model"})
        if (fs::is_regular_file(folder / name)) return {folder / name};
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string extension = entry.path().extension().string();
        if (entry.is_regular_file() && (extension == ".model" || extension == ".tiktoken"))
            found.push_back(entry.path());
    }
    if (found.empty() && fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt"))
        return {folder / "vocab.json"};
    std::sort(found.begin(), found.end());
    return found;
}

uint64_t hash_with_ends(Hasher content, const Vocabulary& vocabulary) {
    const auto add = [&](const std::vector<int32_t>& ids) {
        content.update(std::as_bytes(std::span(ids))).update(";");
    };
    add({vocabulary.bos.value_or(-1), vocabulary.eos.value_or(-1)});
    add(vocabulary.frame.before);
    add(vocabulary.frame.after);
    return content.digest();
}

// tokenizer_config.json affects ids too. The hash includes its effect, not its text, most of which has no
// influence on ids.
std::unique_ptr<const TokenizerModel> hashed_byte_bpe(const ByteBpeDescription& description, Hasher& hasher) {
    hasher.update(description.nfc ? "nfc;" : ";");
    for (const std::string& pattern : description.patterns) hasher.update(pattern).update(";");
    for (const auto& [token, special, normalized, bytes] : description.added)
        hasher.update(fmt::format("{} {} {} {} {} {} {} {};", token.id, token.content.size(), token.content,
                                  token.lstrip, token.rstrip, token.single_word, special, normalized));
    return make_byte_bpe(description);
}

std::unique_ptr<const TokenizerModel> model_of(const fs::path& file, Hasher& hasher, std::string& kind) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const std::string name = file.filename().string();
    const TokenizerConfig config = read_tokenizer_config(folder);
    if (name == "vocab.json" || name == "merges.txt") {
        const std::string vocab = content_of(folder / "vocab.json"),
                          merges = content_of(folder / "merges.txt");
        hasher.update(vocab).update(merges);
        kind = "byte-level BPE (vocab.json and merges.txt)";
        return hashed_byte_bpe(read_vocab_and_merges(folder.string(), vocab, merges, config), hasher);
    }
    const std::string content = content_of(file);
    hasher.update(content);
    kind = "byte-level BPE (tokenizer.json)";
    if (file.extension() == ".json" || content.starts_with('{'))
        return hashed_byte_bpe(read_tokenizer_json(file.string(), content, config), hasher);
    kind = "byte-level BPE (tiktoken)";
    if (is_tiktoken(content)) return hashed_byte_bpe(read_tiktoken(file.string(), content, config), hasher);
    kind = "SentencePiece";
    return make_sentencepiece(file.string(), content);
}

OpenedTokenizer open_file(const fs::path& file) {
    Hasher hasher;
    std::string kind;
    auto model = model_of(file, hasher, kind);
    const uint64_t hash = hash_with_ends(std::move(hasher), model->vocabulary());
    return {std::move(model), hash, kind};
}

}  // namespace

OpenedTokenizer open_tokenizer(const fs::path& place) {
    if (!fs::exists(place))
        throw ConfigError("{}: this file or folder does not exist{}; a tokenizer is {}", place.string(),
                          download_hint(place.string()), what_is_known);
    if (const std::string name = place.filename().string();
        name == "config.json" || name == "tokenizer_config.json" || name == "generation_config.json")
        throw ConfigError("{}: is not a tokenizer; give the folder that it is in, or its {}", place.string(),
                          "tokenizer.json or tokenizer.model");
    if (!fs::is_directory(place)) return open_file(place);
    const std::vector<fs::path> files = main_files(place);
    if (files.empty())
        throw ConfigError("{}: there is no tokenizer in this folder; a tokenizer is {}", place.string(),
                          what_is_known);
    if (files.size() > 1)
        throw ConfigError("{} contains {} and {}: give the path of one of these files", place.string(),
                          files[0].filename().string(), files[1].filename().string());
    return open_file(files[0]);
}

bool holds_tokenizer(const fs::path& place) {
    return fs::is_regular_file(place) || (fs::is_directory(place) && main_files(place).size() == 1);
}

}  // namespace coeus
