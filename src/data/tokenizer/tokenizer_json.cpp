// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_json.hpp"

#include "byte_symbols.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "pre_tokenizer.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace coeus {

namespace {

[[noreturn]] void not_known(const JsonView& where, const std::string& what, const char* known) {
    throw ConfigError("{}: {}: {} is not supported; {}", where.file(), where.path(), what, known);
}

// The elements of a Sequence, or the part itself if it is not one.
std::vector<JsonView> steps_of(const JsonView& part, const char* key) {
    if (part.string("type") == "Sequence") return part[key].elements();
    return {part};
}

// True if the vocabulary has symbols for all 256 bytes, so that unk_token and byte_fallback are never used.
bool spells_every_byte(const JsonView& vocab) {
    int symbols = 0;
    for (const auto& [content, id] : vocab.items()) {
        const auto bytes = bytes_of_symbols(content);
        symbols += bytes && bytes->size() == 1;
    }
    return symbols == 256;
}

bool means_nothing(const Json& value) {
    const double* const real = value.as_real();
    return value.text() == "\"\"" || value.text() == "0" || (real && *real == 0);
}

void check_model(const JsonView& model) {
    const char* const known = "only byte-level BPE is";
    if (const std::string type = model.string("type", "BPE"); type != "BPE")
        not_known(model, "the model " + type, known);
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
        if (const auto value = model.find(key); value && !means_nothing(value->value()))
            not_known(model, key, known);
    if (model.contains("unk_token") && !spells_every_byte(model["vocab"]))
        not_known(model, "unk_token", known);
    if (model.boolean("byte_fallback", false) && !spells_every_byte(model["vocab"]))
        not_known(model, "byte_fallback", known);
}

void read_normalizer(const JsonView& normalizer, ByteBpeDescription& out) {
    for (const JsonView& step : steps_of(normalizer, "normalizers")) {
        if (step.string("type") != "NFC")
            not_known(step, "the normalizer " + step.string("type"), "only NFC is");
        out.nfc = true;
    }
}

std::string expression_of(const JsonView& split, const char* known) {
    const auto regex = split["pattern"].find("Regex");
    if (!regex) not_known(split["pattern"], "a pattern that is not a Regex", known);
    if (split.string("behavior") != "Isolated" || split.boolean("invert", false))
        not_known(split, "a Split that is not Isolated", known);
    return regex->string();
}

void read_byte_level(const JsonView& step, ByteBpeDescription& out, const char* known) {
    out.prefix_space = step.boolean("add_prefix_space", false);
    if (out.prefix_space && !out.patterns.empty()) not_known(step, "add_prefix_space after a Split", known);
    if (step.boolean("use_regex", true)) out.patterns.push_back(gpt2_pattern);
}

void read_pre_tokenizer(const JsonView& root, ByteBpeDescription& out) {
    const char* const known = "only Split (Isolated, with a Regex) and Digits are, with ByteLevel at the end";
    const auto pre_tokenizer = root.find("pre_tokenizer");
    const std::vector<JsonView> steps =
        pre_tokenizer ? steps_of(*pre_tokenizer, "pretokenizers") : std::vector<JsonView>();
    if (steps.empty())
        throw ConfigError("{}: pre_tokenizer: is empty, which is not supported; {}", root.file(), known);
    for (size_t i = 0; i < steps.size(); ++i) {
        const std::string& type = steps[i].string("type");
        const bool last = i + 1 == steps.size();
        if (type == "ByteLevel" && last)
            read_byte_level(steps[i], out, known);
        else if (type == "Split" && !last)
            out.patterns.push_back(expression_of(steps[i], known));
        else if (type == "Digits" && !last)
            out.patterns.push_back(steps[i].boolean("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
        else
            not_known(steps[i],
                      "the pre-tokenizer " + type + (last ? " as the last step" : " before other steps"),
                      known);
    }
}

// Reads TemplateProcessing for a single text: special tokens, the text, special tokens.
void read_template(const JsonView& processor, ByteBpeDescription& out) {
    bool behind = false;
    for (const JsonView& piece : processor["single"].elements()) {
        const auto special = piece.find("SpecialToken");
        if (!special) {
            if (behind || piece["Sequence"].string("id") != "A")
                processor["single"].reject("must contain the text once, as $A");
            behind = true;
            continue;
        }
        for (const JsonView& id : processor["special_tokens"][special->string("id")]["ids"].elements())
            (behind ? out.frame.after : out.frame.before).push_back(token_id(id));
    }
    if (!behind) processor["single"].reject("must contain the text once, as $A");
}

void read_post_processor(const JsonView& post_processor, ByteBpeDescription& out) {
    for (const JsonView& step : steps_of(post_processor, "processors")) {
        const std::string type = step.string("type");
        if (type == "TemplateProcessing")
            read_template(step, out);
        else if (type != "ByteLevel")
            not_known(step, "the post-processor " + type, "only TemplateProcessing and ByteLevel are");
    }
}

// For all supported tokenizers, the decoder replaces byte symbols by their bytes.
void check_decoder(const JsonView& root) {
    const auto decoder = root.find("decoder");
    const std::vector<JsonView> steps = decoder ? steps_of(*decoder, "decoders") : std::vector<JsonView>();
    if (steps.empty())
        throw ConfigError("{}: decoder: is empty, which is not supported; only ByteLevel is", root.file());
    for (const JsonView& step : steps)
        if (step.string("type") != "ByteLevel")
            not_known(step, "the decoder " + step.string("type"), "only ByteLevel is");
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

void read_model(const JsonView& model, ByteBpeDescription& out) {
    out.whole_pieces = model.boolean("ignore_merges", false);
    std::vector<std::pair<std::string, int32_t>> vocab;
    for (const auto& [symbols, id] : model["vocab"].items()) vocab.emplace_back(symbols, token_id(id));
    std::vector<std::pair<std::string, std::string>> merges;
    for (const JsonView& merge : model["merges"].elements()) merges.push_back(merge_of(merge));
    out.set_symbols(vocab, merges);
}

// Hugging Face assigns ids by the order in the file and ignores the ids that the file contains. Files in
// which the two differ are damaged.
class Ids {
public:
    explicit Ids(const JsonView& vocab) {
        for (const auto& [content, id] : vocab.items()) ids_.emplace(content, token_id(id));
    }
    void add(const ByteBpeDescription::Added& added, const JsonView& where) {
        const auto [first, is_new] = ids_.emplace(added.token.content, added.token.id);
        if (!is_new && first->second != added.token.id)
            throw ConfigError("{}: {}: \"{}\" has the id {} here, but the id {} before", where.file(),
                              where.path(), added.token.content, added.token.id, first->second);
    }

private:
    std::unordered_map<std::string, int32_t> ids_;
};

// Reads the added tokens of tokenizer.json, then those that only tokenizer_config.json has.
void read_added_tokens(const JsonView& root, const TokenizerConfig& config, ByteBpeDescription& out) {
    Ids ids(root["model"]["vocab"]);
    std::unordered_set<std::string> seen;
    const auto add = [&](const ByteBpeDescription::Added& added, const JsonView& where) {
        ids.add(added, where);
        if (seen.insert(added.token.content).second) out.added.push_back(added);
    };
    if (const auto tokens = root.find("added_tokens"))
        for (const JsonView& token : tokens->elements())
            add(added_token(token, token_id(token["id"])), token);
    const Json nothing;
    for (const auto& added : config.added)
        add(added, JsonView(nothing, config.file, fmt::format("added_tokens_decoder.{}", added.token.id)));
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

ByteBpeDescription read_tokenizer_json(const std::string& file, const std::string& content,
                                       const TokenizerConfig& config) {
    const JsonDocument document = JsonDocument::parse(content, file);
    const JsonView root = document.root();
    ByteBpeDescription out;
    out.file = file;
    check_model(root["model"]);
    check_keys(root);
    out.notice = notice_of(root);
    if (const auto normalizer = root.find("normalizer")) read_normalizer(*normalizer, out);
    read_pre_tokenizer(root, out);
    if (const auto processor = root.find("post_processor")) read_post_processor(*processor, out);
    check_decoder(root);
    read_model(root["model"], out);
    read_added_tokens(root, config, out);
    out.set_special(config.bos, config.eos);
    return out;
}

}  // namespace coeus
