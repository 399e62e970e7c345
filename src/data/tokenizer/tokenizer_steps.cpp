// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_steps.hpp"

#include "characters.hpp"
#include "coeus/base/error.hpp"
#include "expression.hpp"
#include "tokenizer_config.hpp"

#include <algorithm>
#include <memory>

namespace coeus {

namespace {

// The elements of a Sequence and of those within it, or the part itself if it is not one.
std::vector<JsonView> steps_of(const JsonView& part, const char* key) {
    if (part.string("type") != "Sequence") return {part};
    std::vector<JsonView> all;
    for (const JsonView& step : part[key].elements())
        for (const JsonView& inner : steps_of(step, key)) all.push_back(inner);
    return all;
}

// {"Regex": ...} or {"String": ...}
std::string expression_of(const JsonView& pattern) {
    if (const auto text = pattern.find("String")) return expression_for(text->string());
    return pattern.string("Regex");
}

TextStep replace_matches(std::shared_ptr<const Pattern> pattern, std::string replacement) {
    return [pattern = std::move(pattern), replacement = std::move(replacement)](
               std::string_view text, bool& first, std::string& buffer) -> std::string_view {
        if (text.empty()) return text;
        PatternScan scan(*pattern);
        buffer.clear();
        size_t at = 0;
        scan.matches(text, [&](const PatternScan::Match& match) {
            if (match.end > 0 && match.begin == 0 && replacement.empty()) first = false;
            buffer.append(text, at, match.begin - at).append(replacement);
            at = match.end;
            return true;
        });
        return buffer.append(text, at);
    };
}

TextStep replace_text(std::string searched, std::string replacement) {
    return [searched = std::move(searched), replacement = std::move(replacement)](
               std::string_view text, bool& first, std::string& buffer) -> std::string_view {
        size_t found = text.find(searched);
        if (found == std::string_view::npos) return text;
        if (found == 0 && replacement.empty()) first = false;
        buffer.clear();
        size_t at = 0;
        for (; found != std::string_view::npos; found = text.find(searched, at)) {
            buffer.append(text, at, found - at).append(replacement);
            at = found + searched.size();
        }
        return buffer.append(text, at);
    };
}

TextStep normal_form(NormalForm form) {
    return [form](std::string_view text, bool&, std::string& buffer) {
        return in_normal_form(text, form, buffer);
    };
}

TextStep without_space(bool left, bool right) {
    return [left, right](std::string_view text, bool& first, std::string&) {
        const size_t space = left ? space_at_start(text) : 0;
        if (space > 0) first = false;
        text.remove_prefix(space);
        return right ? text.substr(0, space_at_end(text)) : text;
    };
}

TextStep with_prefix(std::string prefix) {
    return
        [prefix = std::move(prefix)](std::string_view text, bool&, std::string& buffer) -> std::string_view {
            if (text.empty()) return text;
            return buffer.assign(prefix).append(text);
        };
}

TextStep replaced(const JsonView& step) {
    const JsonView pattern = step["pattern"];
    const std::string& content = step.string("content");
    if (const auto text = pattern.find("String")) {
        if (text->string().empty()) text->reject("must not be empty");
        return replace_text(text->string(), content);
    }
    return replace_matches(std::make_shared<const Pattern>(pattern.string("Regex"), step.file()), content);
}

TextStep normalizer_of(const JsonView& step) {
    const std::string& type = step.string("type");
    if (type == "NFC") return normal_form(NormalForm::c);
    if (type == "NFD") return normal_form(NormalForm::d);
    if (type == "NFKC") return normal_form(NormalForm::kc);
    if (type == "NFKD") return normal_form(NormalForm::kd);
    if (type == "Replace") return replaced(step);
    if (type == "Prepend") return with_prefix(step.string("prepend"));
    if (type == "Strip")
        return without_space(step.boolean("strip_left", true), step.boolean("strip_right", true));
    if (type == "Lowercase")
        return [](std::string_view text, bool&, std::string& buffer) { return in_lower_case(text, buffer); };
    if (type == "StripAccents")
        return [](std::string_view text, bool& first, std::string& buffer) {
            if (starts_in_mark(text)) first = false;
            return without_marks(text, buffer);
        };
    not_known(step, "the normalizer " + type,
              "only NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, Lowercase and StripAccents are");
}

void read_normalizer(const JsonView& normalizer, BpeDescription& out) {
    for (const JsonView& step : steps_of(normalizer, "normalizers")) {
        const std::string& type = step.string("type");
        const bool of_utf8proc = type.starts_with("NF") || type == "Lowercase";
        out.normalizers.push_back({type == "NFC" ? "nfc" : type, normalizer_of(step), of_utf8proc});
    }
}

Behavior behavior_of(const JsonView& name) {
    const std::vector<std::pair<const char*, Behavior>> all = {
        {"Isolated", Behavior::isolated},
        {"Removed", Behavior::removed},
        {"Contiguous", Behavior::contiguous},
        {"MergedWithPrevious", Behavior::merged_with_previous},
        {"MergedWithNext", Behavior::merged_with_next}};
    for (const auto& [known, behavior] : all)
        if (name.string() == known) return behavior;
    name.reject("must be Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
}

std::string_view with_space_in_front(std::string_view text, bool&, std::string& buffer) {
    if (text.starts_with(' ')) return text;
    return buffer.assign(1, ' ').append(text);
}

void read_byte_level(const JsonView& step, BpeDescription& out) {
    if (step.boolean("add_prefix_space", false)) out.add_change(with_space_in_front);
    if (step.boolean("use_regex", true)) out.add_split({gpt2_pattern});
}

// Spaces become the mark, which is also put in front of a text (or only of the first).
void read_metaspace(const JsonView& step, BpeDescription& out) {
    const std::string& mark = step.string("replacement");
    const std::string scheme = step.string("prepend_scheme", "always");
    const bool never = scheme == "never" || !step.boolean("add_prefix_space", true);
    if (!never && scheme != "always" && scheme != "first")
        step["prepend_scheme"].reject("must be always, first or never");
    const TextStep marked = replace_text(" ", mark);
    out.add_change([=, only_first = scheme == "first"](std::string_view text, bool& first,
                                                       std::string& buffer) -> std::string_view {
        const bool in_front =
            !never && (first || !only_first) && !text.starts_with(mark) && !text.starts_with(' ');
        text = marked(text, first, buffer);
        if (!in_front) return text;
        if (text.data() != buffer.data()) buffer.assign(text);
        return buffer.insert(0, mark);
    });
    if (step.boolean("split", true)) out.add_split({expression_for(mark), Behavior::merged_with_next});
}

const char* const punctuation = R"([\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e\p{P}])";

void read_pre_tokenizer_step(const JsonView& step, BpeDescription& out) {
    const std::string& type = step.string("type");
    if (type == "Split")
        out.add_split(
            {expression_of(step["pattern"]), behavior_of(step["behavior"]), step.boolean("invert", false)});
    else if (type == "Digits")
        out.add_split({step.boolean("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"});
    else if (type == "Metaspace")
        read_metaspace(step, out);
    else if (type == "Whitespace")  // words include joiners, but no superscripts
        out.add_split(
            {R"([[:word:]\x{200c}\x{200d}]+|[^\s[:word:]\x{200c}\x{200d}]+)", Behavior::removed, true});
    else if (type == "WhitespaceSplit")
        out.add_split({R"(\s)", Behavior::removed});
    else if (type == "Punctuation")
        out.add_split(
            {punctuation, step.contains("behavior") ? behavior_of(step["behavior"]) : Behavior::isolated});
    else if (type == "CharDelimiterSplit")
        out.add_split({expression_for(step.string("delimiter")), Behavior::removed});
    else
        not_known(step, "the pre-tokenizer " + type + (type == "ByteLevel" ? " before other steps" : ""),
                  "only Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation and "
                  "CharDelimiterSplit are, and ByteLevel at the end");
}

void read_pre_tokenizer(const JsonView& root, BpeDescription& out) {
    out.options.characters = true;
    const auto pre_tokenizer = root.find("pre_tokenizer");
    if (!pre_tokenizer) return;
    const std::vector<JsonView> steps = steps_of(*pre_tokenizer, "pretokenizers");
    for (size_t i = 0; i < steps.size(); ++i) {
        if (i + 1 < steps.size() || steps[i].string("type") != "ByteLevel") {
            read_pre_tokenizer_step(steps[i], out);
            continue;
        }
        read_byte_level(steps[i], out);
        out.options.characters = false;
    }
}

// Reads TemplateProcessing for a single text: special tokens, the text, special tokens.
void read_template(const JsonView& processor, BpeDescription& out) {
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

void read_post_processor(const JsonView& post_processor, BpeDescription& out) {
    for (const JsonView& step : steps_of(post_processor, "processors")) {
        const std::string type = step.string("type");
        if (type == "TemplateProcessing") {
            read_template(step, out);
        } else if (type == "RobertaProcessing" || type == "BertProcessing") {  // ["</s>", 2]
            out.frame.before.push_back(token_id(step["cls"][1]));
            out.frame.after.push_back(token_id(step["sep"][1]));
        } else if (type != "ByteLevel") {
            not_known(step, "the post-processor " + type,
                      "only TemplateProcessing, RobertaProcessing, BertProcessing and ByteLevel are");
        }
    }
}

// Decoders in the order in which they can follow each other.
void read_decoder_step(const JsonView& step, PieceDecoding& out, int& last) {
    const char* const known =
        "only ByteLevel is, or Replace (of a String) or Metaspace, ByteFallback, Fuse and Strip (at the "
        "start), in "
        "this order";
    const std::string& type = step.string("type");
    const std::vector<std::string> order = {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"};
    const auto place = int(std::find(order.begin(), order.end(), type) - order.begin());
    if (size_t(place) == order.size()) not_known(step, "the decoder " + type, known);
    if (place < last) not_known(step, "the decoder " + type + " after " + order[size_t(last)], known);
    if (type == "Replace") {
        const std::string& from = step["pattern"].string("String", "");
        if (from.empty()) not_known(step, "the decoder Replace of a Regex", known);
        out.replaced.emplace_back(from, step.string("content"));
    } else if (type == "Metaspace") {
        const std::string& mark = step.string("replacement");
        if (step.string("prepend_scheme", "always") != "never" && step.boolean("add_prefix_space", true))
            out.removed_from_first = mark;
        out.replaced.emplace_back(mark, " ");
    } else if (type == "ByteFallback") {
        out.byte_tokens = true;
    } else if (type == "Strip") {
        const std::string& content = step.string("content");
        if (last != place - 1) not_known(step, "the decoder Strip without Fuse before it", known);
        if (content.size() != 1 || step.integer("stop", 0) != 0)
            not_known(step, "a Strip of other text or at the end", known);
        out.stripped = content[0];
        out.most_stripped = step.integer("start", 0);
    }
    last = place;
}

void read_decoder(const JsonView& root, BpeDescription& out) {
    const auto decoder = root.find("decoder");
    const std::vector<JsonView> steps = decoder ? steps_of(*decoder, "decoders") : std::vector<JsonView>();
    if (steps.empty())
        throw ConfigError(
            "{}: decoder: is empty, which is not supported; a tokenizer with the pre-tokenizer "
            "ByteLevel has the decoder ByteLevel",
            root.file());
    const auto is_byte_level = [](const JsonView& step) { return step.string("type") == "ByteLevel"; };
    if (std::all_of(steps.begin(), steps.end(), is_byte_level)) return;
    if (!out.options.characters) {
        const auto other = std::find_if_not(steps.begin(), steps.end(), is_byte_level);
        not_known(*other, "the decoder " + other->string("type") + " with the pre-tokenizer ByteLevel",
                  "only ByteLevel is");
    }
    out.decoding.byte_symbols = false;
    int last = 0;
    for (const JsonView& step : steps) read_decoder_step(step, out.decoding, last);
}

}  // namespace

void not_known(const JsonView& where, const std::string& what, const std::string& known) {
    throw ConfigError("{}: {}: {} is not supported; {}", where.file(), where.path(), what, known);
}

void read_steps(const JsonView& root, BpeDescription& out) {
    if (const auto normalizer = root.find("normalizer")) read_normalizer(*normalizer, out);
    read_pre_tokenizer(root, out);
    if (const auto processor = root.find("post_processor")) read_post_processor(*processor, out);
    read_decoder(root, out);
}

}  // namespace coeus
