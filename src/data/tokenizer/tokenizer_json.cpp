// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_json.hpp"

#include "byte_symbols.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "tokenizer_steps.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace coeus {

namespace {

bool means_nothing(const Json& value) {
    const double* const real = value.as_real();
    return value.text() == "\"\"" || value.text() == "0" || (real && *real == 0);
}

void check_model(const JsonView& model) {
    const char* const known = "only BPE is, without dropout and without affixes of words";
    if (const std::string type = model.string("type", "BPE"); type != "BPE")
        not_known(model, "the model " + type, known);
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
        if (const auto value = model.find(key); value && !means_nothing(value->value()))
            not_known(model, key, known);
}

std::pair<std::string, std::string> merge_of(const JsonView& merge) {
    if (merge.is_array()) {
        if (merge.size() != 2) merge.reject("must be a pair of symbols");
        return {merge[0].string(), merge[1].string()};
    }
    const std::string& both = merge.string();  // before 2024: "left right"
    const size_t space = both.find(' ');
    if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
        merge.reject("must be two symbols and a space between them");
    return {both.substr(0, space), both.substr(space + 1)};
}

using Symbols = std::vector<std::pair<std::string, int32_t>>;

std::optional<int32_t> id_in(const Symbols& vocab, std::string_view content) {
    const auto found =
        std::find_if(vocab.begin(), vocab.end(), [&](const auto& v) { return v.first == content; });
    return found == vocab.end() ? std::nullopt : std::optional(found->second);
}

// The ids of <0x00> ... <0xFF>; -1: not in the vocabulary. <0xff> is the token of a byte only where ids are
// decoded.
std::vector<int32_t> byte_tokens_of(const Symbols& vocab) {
    std::vector<int32_t> ids(256, -1);
    for (const auto& [content, id] : vocab)
        if (const auto byte = byte_of_token(content); byte && content == fmt::format("<0x{:02X}>", *byte))
            ids[*byte] = id;
    return ids;
}

bool has_all(const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), -1) == ids.end();
}

// The ids of the symbols of the 256 bytes.
std::vector<int32_t> symbols_of_bytes_in(const Symbols& vocab) {
    std::vector<int32_t> ids(256, -1);
    for (const auto& [content, id] : vocab)
        if (const auto bytes = bytes_of_symbols(content); bytes && bytes->size() == 1)
            ids[uint8_t((*bytes)[0])] = id;
    return ids;
}

// What becomes of symbols that the vocabulary lacks.
void read_unknown(const JsonView& model, const Symbols& vocab, BpeDescription& out) {
    Bpe::Options& options = out.options;
    if (!options.characters && has_all(symbols_of_bytes_in(vocab))) return;  // there are none
    if (model.boolean("byte_fallback", false)) {
        if (!options.characters)
            not_known(model,
                      "byte_fallback with the pre-tokenizer ByteLevel and without the symbols of all bytes",
                      "it is if there are all 256 symbols");
        options.byte_tokens = byte_tokens_of(vocab);
    }
    const std::string unknown = model.string("unk_token", "");
    options.unknown = id_in(vocab, unknown);
    options.fuse_unknown = model.boolean("fuse_unk", false);
    const bool needed = options.byte_tokens.empty() || !has_all(options.byte_tokens);
    if (needed && !unknown.empty() && !options.unknown)
        model["unk_token"].reject("must be a token of model.vocab");
}

void read_model(const JsonView& model, BpeDescription& out) {
    out.options.whole_pieces = model.boolean("ignore_merges", false);
    Symbols vocab;
    for (const auto& [symbols, id] : model["vocab"].items()) vocab.emplace_back(symbols, token_id(id));
    std::vector<std::pair<std::string, std::string>> merges;
    for (const JsonView& merge : model["merges"].elements()) merges.push_back(merge_of(merge));
    read_unknown(model, vocab, out);
    out.set_symbols(vocab, merges);
}

// Hugging Face assigns ids by the order in the file and ignores the ids that the file contains. Files in
// which the two differ are damaged.
class Ids {
public:
    explicit Ids(const JsonView& vocab) {
        for (const auto& [content, id] : vocab.items()) ids_.emplace(content, token_id(id));
    }
    void add(const BpeDescription::Added& added, const JsonView& where) {
        const auto [first, is_new] = ids_.emplace(added.token.content, added.token.id);
        if (!is_new && first->second != added.token.id)
            throw ConfigError("{}: {}: \"{}\" has the id {} here, but the id {} before", where.file(),
                              where.path(), added.token.content, added.token.id, first->second);
    }

private:
    std::unordered_map<std::string, int32_t> ids_;
};

// Reads the added tokens of tokenizer.json, then those that only tokenizer_config.json has.
void read_added_tokens(const JsonView& root, const TokenizerConfig& config, BpeDescription& out) {
    Ids ids(root["model"]["vocab"]);
    std::unordered_set<std::string> seen;
    const auto add = [&](const BpeDescription::Added& added, const JsonView& where) {
        ids.add(added, where);
        if (!seen.insert(added.token.content).second) return;
        out.added.push_back(added);
        out.added.back().bytes = out.decoding.bytes_of(added.token.content);
    };
    if (const auto tokens = root.find("added_tokens"))
        for (const JsonView& token : tokens->elements())
            add(added_token(token, token_id(token["id"])), token);
    const Json nothing;
    for (const auto& added : config.added)
        add(added, JsonView(nothing, config.file, fmt::format("added_tokens_decoder.{}", added.token.id)));
    for (const auto& added : config.added_before)
        if (!out.id_of(added.token.content)) out.added.push_back(added);
}

void check_keys(const JsonView& root) {
    const std::vector<std::string> known = {"version",        "truncation", "padding",
                                            "added_tokens",   "normalizer", "pre_tokenizer",
                                            "post_processor", "decoder",    "model"};
    for (const auto& [key, value] : root.items())
        if (std::find(known.begin(), known.end(), key) == known.end())
            throw ConfigError("{}: the key {} is not supported; supported are {}", root.file(), key,
                              join(known, ", "));
    if (const std::string version = root.string("version", "1.0"); version != "1.0")
        throw ConfigError("{}: version: {} is not supported; only 1.0 is", root.file(), version);
}

// Truncation and padding are for batches of short texts; documents for training are encoded completely.
std::string notice_of(const JsonView& root) {
    std::vector<std::string> ignored;
    for (const char* key : {"truncation", "padding"})
        if (root.contains(key)) ignored.emplace_back(key);
    if (ignored.empty()) return "";
    return fmt::format("{}: {} {} ignored: texts are encoded completely, whatever their length", root.file(),
                       join(ignored, " and "), ignored.size() == 1 ? "is" : "are");
}

}  // namespace

BpeDescription read_tokenizer_json(const std::string& file, const std::string& content,
                                   const TokenizerConfig& config) {
    const JsonDocument document = JsonDocument::parse(content, file);
    const JsonView root = document.root();
    BpeDescription out;
    out.file = file;
    check_model(root["model"]);
    check_keys(root);
    out.notice = notice_of(root);
    read_steps(root, out);
    read_model(root["model"], out);
    read_added_tokens(root, config, out);
    out.set_special(config.bos, config.eos);
    return out;
}

}  // namespace coeus
