// SPDX-License-Identifier: Apache-2.0
#include "open.hpp"

#include "characters.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/hub_name.hpp"
#include "coeus/file/raw_file.hpp"
#include "sentencepiece.hpp"
#include "tiktoken.hpp"
#include "tokenizer_json.hpp"
#include "unicode_table.hpp"
#include "vocab_and_merges.hpp"

#include <algorithm>
#include <set>

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
    if (is_file_patiently(model) && is_file_patiently(json) && is_of_sentencepiece(content_of(json)))
        return {model};
    for (const char* name : {"tokenizer.json", "tokenizer.model"})
        if (is_file_patiently(folder / name)) return {folder / name};
    std::vector<fs::path> found;
    std::error_code failed;
    for (const fs::path& entry : entries_patiently(folder, failed)) {
        const std::string extension = entry.extension().string();
        if ((extension == ".model" || extension == ".tiktoken") && is_file_patiently(entry))
            found.push_back(entry);
    }
    if (failed) throw fs::filesystem_error("", folder, failed);
    if (found.empty() && exists_patiently(folder / "vocab.json") && exists_patiently(folder / "merges.txt"))
        return {folder / "vocab.json"};
    std::sort(found.begin(), found.end());
    return found;
}

Hasher with_ends(Hasher content, const Vocabulary& vocabulary) {
    const auto add = [&](const std::vector<int32_t>& ids) {
        content.update(std::as_bytes(std::span(ids))).update(";");
    };
    add({vocabulary.bos.value_or(-1), vocabulary.eos.value_or(-1)});
    add(vocabulary.frame.before);
    add(vocabulary.frame.after);
    return content;
}

void add_to_hash(const std::vector<BpeDescription::Added>& tokens, Hasher& hasher) {
    for (const auto& [token, special, normalized, bytes] : tokens)
        hasher.update(fmt::format("{} {} {} {} {} {} {} {};", token.id, token.content.size(), token.content,
                                  token.lstrip, token.rstrip, token.single_word, special, normalized));
}

// The added tokens of a tokenizer.json.
std::vector<BpeDescription::Added> added_in_json(const fs::path& file) {
    const JsonDocument document = JsonDocument::parse(content_of(file), file.string());
    std::vector<BpeDescription::Added> added;
    if (const auto tokens = document.root().find("added_tokens"))
        for (const JsonView& token : tokens->elements())
            added.push_back(added_token(token, token_id(token["id"])));
    return added;
}

// The tokens that files in the folder of a SentencePiece model add to it.
std::vector<BpeDescription::Added> added_beside(const fs::path& file, const std::string& content,
                                                const TokenizerConfig& config) {
    std::vector<BpeDescription::Added> all;
    const fs::path json = file.parent_path() / "tokenizer.json";
    if (file.filename() == "tokenizer.model" && is_file_patiently(json)) all = added_in_json(json);
    all.insert(all.end(), config.added.begin(), config.added.end());
    all.insert(all.end(), config.added_before.begin(), config.added_before.end());
    std::vector<BpeDescription::Added> missing;
    std::set<int32_t> ids;
    for (const auto& token : missing_in_sentencepiece(file.string(), content, all))
        if (ids.insert(token.token.id).second) missing.push_back(token);
    return missing;
}

// tokenizer_config.json affects ids too. The hash includes its effect, not its text, most of which has no
// influence on ids.
std::unique_ptr<const TokenizerModel> hashed_bpe(const BpeDescription& description, Hasher& hasher,
                                                 std::string& tables) {
    tables = fmt::format("Unicode {};", unicode_version);
    if (std::ranges::any_of(description.normalizers, &BpeDescription::Normalizer::of_utf8proc))
        tables += fmt::format("utf8proc with Unicode {};", unicode_version_of_utf8proc());
    if (description.normalizers.empty()) hasher.update(";");
    for (const auto& normalizer : description.normalizers) hasher.update(normalizer.name).update(";");
    for (const auto& stage : description.stages)
        for (const Split& split : stage.splits) hasher.update(split.expression).update(";");
    add_to_hash(description.added, hasher);
    return make_bpe_model(description);
}

// `tables`: the versions of the tables of Unicode that it uses, for the hash.
std::unique_ptr<const TokenizerModel> model_of(const fs::path& file, Hasher& hasher, std::string& kind,
                                               std::string& tables) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    const std::string name = file.filename().string();
    const TokenizerConfig config = read_tokenizer_config(folder);
    if (name == "vocab.json" || name == "merges.txt") {
        const std::string vocab = content_of(folder / "vocab.json"),
                          merges = content_of(folder / "merges.txt");
        hasher.update(vocab).update(merges);
        kind = "byte-level BPE (vocab.json and merges.txt)";
        return hashed_bpe(read_vocab_and_merges(folder.string(), vocab, merges, config), hasher, tables);
    }
    const std::string content = content_of(file);
    hasher.update(content);
    if (file.extension() == ".json" || content.starts_with('{')) {
        const BpeDescription description = read_tokenizer_json(file.string(), content, config);
        kind = description.options.characters ? "BPE (tokenizer.json)" : "byte-level BPE (tokenizer.json)";
        return hashed_bpe(description, hasher, tables);
    }
    kind = "byte-level BPE (tiktoken)";
    if (is_tiktoken(content))
        return hashed_bpe(read_tiktoken(file.string(), content, config), hasher, tables);
    kind = "SentencePiece";
    const auto added = added_beside(file, content, config);
    add_to_hash(added, hasher);
    return make_sentencepiece(file.string(), content, added, config.legacy);
}

OpenedTokenizer open_file(const fs::path& file) {
    Hasher hasher;
    std::string kind, tables;
    auto model = model_of(file, hasher, kind, tables);
    Hasher whole = with_ends(std::move(hasher), model->vocabulary());
    const uint64_t earlier_hash = whole.digest();
    whole.update(tables);
    return {std::move(model), whole.digest(), earlier_hash, kind};
}

// True if tokenizer.json can be read instead of the tokenizer.model in the same folder, and has tokens that
// this lacks.
bool json_has_more(const fs::path& json, const fs::path& model) {
    const JsonDocument document = JsonDocument::parse(content_of(json), json.string());
    const auto type = document.root()["model"].string("type", "BPE");
    const std::string content = content_of(model);
    if (type != "BPE" || is_tiktoken(content)) return false;
    std::vector<BpeDescription::Added> all = added_in_json(json);
    for (const auto& [token, id] : document.root()["model"]["vocab"].items())
        all.push_back(special_token(token, token_id(id)));
    return !missing_in_sentencepiece(model.string(), content, all).empty();
}

// Files of other kinds of tokenizers.
std::string other_kinds_in(const fs::path& folder) {
    const std::vector<std::pair<const char*, const char*>> all = {
        {"vocab.txt", "the vocabulary of a WordPiece"},
        {"tekken.json", "the file of mistral-common"},
        {"encoder.json", "vocab.json under another name, if vocab.bpe is merges.txt"},
        {"vocab.bpe", "merges.txt under another name, if encoder.json is vocab.json"},
        {"vocab.json", "read only with merges.txt"},
        {"merges.txt", "read only with vocab.json"},
        {"added_tokens.json", "read only with a tokenizer"},
        {"tokenizer_config.json", "read only with a tokenizer"},
        {"special_tokens_map.json", "not a tokenizer"},
        {"tokenizer.json.gz", "compressed"},
        {"tokenizer.pkl", "a program of Python"}};
    std::vector<std::string> found;
    for (const auto& [name, what] : all)
        if (exists_patiently(folder / name)) found.push_back(fmt::format("{} ({})", name, what));
    std::error_code unreadable;
    for (const fs::path& file : entries_patiently(folder, unreadable))
        if (file.extension() == ".py" && file.filename().string().starts_with("tokenization"))
            found.push_back(file.filename().string() + " (a program of Python)");
    return join(found, ", ");
}

}  // namespace

OpenedTokenizer open_tokenizer(const fs::path& place) {
    if (!leads_somewhere(place))
        throw ConfigError("{}: this file or folder does not exist{}; a tokenizer is {}", place.string(),
                          download_hint(place.string()), what_is_known);
    if (const std::string name = place.filename().string();
        name == "config.json" || name == "tokenizer_config.json" || name == "generation_config.json")
        throw ConfigError("{}: is not a tokenizer; give the folder that it is in, or its {}", place.string(),
                          "tokenizer.json or tokenizer.model");
    if (!is_folder_patiently(place)) return open_file(place);
    const std::vector<fs::path> files = main_files(place);
    if (files.empty()) {
        const std::string others = other_kinds_in(place);
        throw ConfigError("{}: there is no tokenizer in this folder{}; a tokenizer is {}", place.string(),
                          others.empty() ? "" : " that Coeus reads, but " + others, what_is_known);
    }
    if (files.size() > 1)
        throw ConfigError("{} contains {} and {}: give the path of one of these files", place.string(),
                          files[0].filename().string(), files[1].filename().string());
    const fs::path json = place / "tokenizer.json";
    if (files[0].filename() == "tokenizer.model" && is_file_patiently(json) && json_has_more(json, files[0]))
        return open_file(json);
    return open_file(files[0]);
}

bool holds_tokenizer(const fs::path& place) {
    return is_file_patiently(place) || (is_folder_patiently(place) && main_files(place).size() == 1);
}

}  // namespace coeus
