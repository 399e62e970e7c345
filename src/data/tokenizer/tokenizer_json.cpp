// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_json.hpp"

#include "byte_symbols.hpp"
#include "coeus/base/error.hpp"
#include "pre_tokenizer.hpp"

#include <algorithm>

namespace coeus {

namespace {

[[noreturn]] void not_known(const JsonView& where, const std::string& what, const char* known) {
    throw ConfigError("{}: {}: {} is not known here; {}", where.file(), where.path(), what, known);
}

// The elements of a Sequence, or the one thing itself.
std::vector<JsonView> steps_of(const JsonView& part, const char* key) {
    if (part.string("type") == "Sequence") return part[key].elements();
    return {part};
}

// What the symbols of all 256 bytes cannot reach is never used: unk_token, byte_fallback.
bool spells_every_byte(const JsonView& vocab) {
    int symbols = 0;
    for (const auto& [content, id] : vocab.items()) {
        const auto bytes = bytes_of_symbols(content);
        symbols += bytes && bytes->size() == 1;
    }
    return symbols == 256;
}

void check_model(const JsonView& model) {
    const char* const known = "byte-level BPE is";
    if (const std::string type = model.string("type", "BPE"); type != "BPE")
        not_known(model, "the model " + type, known);
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
        if (const auto value = model.find(key); value && value->value().text() != "\"\"")
            not_known(model, key, known);
    if (model.contains("unk_token") && !spells_every_byte(model["vocab"]))
        not_known(model, "unk_token", known);
    if (model.boolean("byte_fallback", false) && !spells_every_byte(model["vocab"]))
        not_known(model, "byte_fallback", known);
}

void read_normalizer(const JsonView& normalizer, ByteBpeDescription& out) {
    for (const JsonView& step : steps_of(normalizer, "normalizers")) {
        if (step.string("type") != "NFC") not_known(step, "the normalizer " + step.string("type"), "NFC is");
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
    if (out.prefix_space && !out.patterns.empty()) not_known(step, "add_prefix_space behind a Split", known);
    if (step.boolean("use_regex", true)) out.patterns.push_back(gpt2_pattern);
}

void read_pre_tokenizer(const JsonView& pre_tokenizer, ByteBpeDescription& out) {
    const char* const known = "Split (Isolated, with a Regex) and Digits are, then ByteLevel at the end";
    const std::vector<JsonView> steps = steps_of(pre_tokenizer, "pretokenizers");
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
            not_known(steps[i], "the pre-tokenizer " + type + (last ? " at the end" : " before others"),
                      known);
    }
}

// TemplateProcessing for one text: special tokens, the text, special tokens.
void read_template(const JsonView& processor, ByteBpeDescription& out) {
    bool behind = false;
    for (const JsonView& piece : processor["single"].elements()) {
        const auto special = piece.find("SpecialToken");
        if (!special) {
            if (behind || piece["Sequence"].string("id") != "A")
                processor["single"].reject("must have the text once, as $A");
            behind = true;
            continue;
        }
        for (const JsonView& id : processor["special_tokens"][special->string("id")]["ids"].elements())
            (behind ? out.frame.after : out.frame.before).push_back(token_id(id));
    }
    if (!behind) processor["single"].reject("must have the text once, as $A");
}

void read_post_processor(const JsonView& post_processor, ByteBpeDescription& out) {
    for (const JsonView& step : steps_of(post_processor, "processors")) {
        const std::string type = step.string("type");
        if (type == "TemplateProcessing")
            read_template(step, out);
        else if (type != "ByteLevel")
            not_known(step, "the post-processor " + type, "TemplateProcessing and ByteLevel are");
    }
}

std::pair<std::string, std::string> merge_of(const JsonView& merge) {
    if (merge.is_array()) {
        if (merge.size() != 2) merge.reject("must be a pair");
        return {merge[0].string(), merge[1].string()};
    }
    const std::string& both = merge.string();  // before 2024: "left right"
    const size_t space = both.find(' ');
    if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
        merge.reject("must be two symbols");
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

}  // namespace

ByteBpeDescription read_tokenizer_json(const std::string& file, const std::string& content,
                                       const TokenizerConfig& config) {
    const JsonDocument document = JsonDocument::parse(content, file);
    const JsonView root = document.root();
    ByteBpeDescription out;
    out.file = file;
    check_model(root["model"]);
    if (const auto normalizer = root.find("normalizer")) read_normalizer(*normalizer, out);
    read_pre_tokenizer(root["pre_tokenizer"], out);
    if (const auto processor = root.find("post_processor")) read_post_processor(*processor, out);
    for (const JsonView& step : steps_of(root["decoder"], "decoders"))
        if (step.string("type") != "ByteLevel")
            not_known(step, "the decoder " + step.string("type"), "ByteLevel is");
    read_model(root["model"], out);
    if (const auto added = root.find("added_tokens"))
        for (const JsonView& token : added->elements())
            out.added.push_back(added_token(token, token_id(token["id"])));
    out.set_special(config.bos, config.eos);
    return out;
}

}  // namespace coeus
