// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_json.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"
#include "pre_tokenizer.hpp"

#include <fstream>
#include <sstream>

namespace coeus {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void not_built(const JsonView& where, const std::string& what) {
    throw ConfigError("{}: {}: {} is not built yet; byte-level BPE as in Llama 3 and GPT-2 is", where.file(),
                      where.path(), what);
}

std::string text_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream content;
    if (!in || fs::is_directory(file) || !(content << in.rdbuf()))
        throw ConfigError(
            "{}: no such file; a tokenizer folder holds tokenizer.json (coeus tokenizer makes one)",
            file.string());
    return content.str();
}

// Split(regex, isolated) and ByteLevel, alone or in a Sequence that ends with ByteLevel.
std::vector<std::string> patterns_of(const JsonView& pre_tokenizer) {
    std::vector<JsonView> steps = {pre_tokenizer};
    if (pre_tokenizer.string("type") == "Sequence") steps = pre_tokenizer["pretokenizers"].elements();
    std::vector<std::string> patterns;
    for (size_t i = 0; i < steps.size(); ++i) {
        const JsonView& step = steps[i];
        const bool last = i + 1 == steps.size();
        if (step.string("type") == "Split" && !last) {
            const auto regex = step["pattern"].find("Regex");
            if (!regex) not_built(step["pattern"], "a pattern that is not a Regex");
            if (step.string("behavior") != "Isolated" || step.boolean("invert", false))
                not_built(step, "a Split that is not Isolated");
            patterns.push_back(regex->string());
        } else if (step.string("type") == "ByteLevel" && last) {
            if (step.boolean("add_prefix_space", false)) not_built(step, "add_prefix_space");
            if (step.boolean("use_regex", true)) patterns.push_back(gpt2_pattern);
        } else {
            not_built(step, "the pre-tokenizer " + step.string("type") + " here");
        }
    }
    return patterns;
}

void check_model(const JsonView& root) {
    const JsonView model = root["model"];
    if (const std::string type = model.string("type", "BPE"); type != "BPE")
        not_built(model, "the model " + type);
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
        if (const auto value = model.find(key); value && value->value().text() != "\"\"")
            not_built(model, key);
    if (model.boolean("byte_fallback", false)) not_built(model, "byte_fallback");
    if (const auto normalizer = root.find("normalizer")) {
        const auto steps = normalizer->find("normalizers");
        if (!steps || steps->size() > 0)
            not_built(*normalizer, "the normalizer " + normalizer->string("type"));
    }
    const auto decoder = root.find("decoder");
    if (!decoder || decoder->string("type") != "ByteLevel")
        throw ConfigError("{}: a decoder that is not ByteLevel is not built yet", root.file());
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

int32_t id_of(const JsonView& value) {
    const int64_t id = value.integer();
    if (id < 0 || id >= (int64_t(1) << 24)) value.reject("must be an id from 0 to 2^24 - 1");
    return int32_t(id);
}

// "bos_token": "<s>", or {"content": "<s>", ...}, or null.
std::optional<std::string> special_of(const JsonView& config, const char* key) {
    const auto token = config.find(key);
    if (!token) return std::nullopt;
    return token->is_object() ? token->string("content") : token->string();
}

}  // namespace

TokenizerFile read_tokenizer(const fs::path& folder) {
    TokenizerFile t;
    t.file = (folder / "tokenizer.json").string();
    t.content = text_of(t.file);
    const JsonDocument document = JsonDocument::parse(t.content, t.file);
    const JsonView root = document.root();
    check_model(root);
    t.patterns = patterns_of(root["pre_tokenizer"]);
    const JsonView model = root["model"];
    t.ignore_merges = model.boolean("ignore_merges", false);
    for (const auto& [symbols, id] : model["vocab"].items()) t.vocab.emplace_back(symbols, id_of(id));
    for (const JsonView& merge : model["merges"].elements()) t.merges.push_back(merge_of(merge));
    if (const auto added = root.find("added_tokens")) {
        for (const JsonView& token : added->elements()) {
            for (const char* flag : {"lstrip", "rstrip", "single_word"})
                if (token.boolean(flag, false)) not_built(token, flag);
            if (token.string("content").empty()) token.reject("must have a content");
            t.added.push_back({id_of(token["id"]), token.string("content"), token.boolean("special", false),
                               token.boolean("normalized", false)});
        }
    }
    if (const fs::path config_file = folder / "tokenizer_config.json"; fs::exists(config_file)) {
        const JsonDocument config = JsonDocument::read(config_file);
        t.bos = special_of(config.root(), "bos_token");
        t.eos = special_of(config.root(), "eos_token");
    }
    return t;
}

namespace {

Json byte_level(bool add_prefix_space, bool use_regex) {
    return Json::object()
        .set("type", "ByteLevel")
        .set("add_prefix_space", add_prefix_space)
        .set("trim_offsets", true)
        .set("use_regex", use_regex);
}

Json added_token(const TokenizerFile::Added& token) {
    return Json::object()
        .set("content", token.content)
        .set("single_word", false)
        .set("lstrip", false)
        .set("rstrip", false)
        .set("normalized", token.normalized)
        .set("special", token.special);
}

Json pre_tokenizer_of(const TokenizerFile& t) {
    Json steps = Json::array();
    for (const std::string& pattern : t.patterns)
        steps.push(Json::object()
                       .set("type", "Split")
                       .set("pattern", Json::object().set("Regex", pattern))
                       .set("behavior", "Isolated")
                       .set("invert", false));
    steps.push(byte_level(false, false));
    return Json::object().set("type", "Sequence").set("pretokenizers", std::move(steps));
}

// One text: BOS A; a pair of texts: BOS A BOS B.
Json post_processor_of(const TokenizerFile& t) {
    Json byte_step = byte_level(true, true);
    if (!t.bos) return byte_step;
    int32_t id = -1;
    for (const auto& token : t.added)
        if (token.content == *t.bos) id = token.id;
    require(id >= 0, "BOS is an added token");
    const auto special = [&](int type) {
        return Json::object().set("SpecialToken", Json::object().set("id", *t.bos).set("type_id", type));
    };
    const auto sequence = [](const char* name, int type) {
        return Json::object().set("Sequence", Json::object().set("id", name).set("type_id", type));
    };
    const Json entry = Json::object()
                           .set("id", *t.bos)
                           .set("ids", Json::array().push(id))
                           .set("tokens", Json::array().push(*t.bos));
    const Json single = Json::array().push(special(0)).push(sequence("A", 0));
    const Json pair =
        Json::array().push(special(0)).push(sequence("A", 0)).push(special(1)).push(sequence("B", 1));
    const Json bos_step = Json::object()
                              .set("type", "TemplateProcessing")
                              .set("single", single)
                              .set("pair", pair)
                              .set("special_tokens", Json::object().set(*t.bos, entry));
    return Json::object()
        .set("type", "Sequence")
        .set("processors", Json::array().push(byte_step).push(bos_step));
}

Json model_of(const TokenizerFile& t) {
    Json vocab = Json::object(), merges = Json::array();
    vocab.reserve(t.vocab.size());
    for (const auto& [symbols, id] : t.vocab) vocab.as_object()->emplace_back(symbols, id);
    for (const auto& [left, right] : t.merges) merges.push(Json::array().push(left).push(right));
    return Json::object()
        .set("type", "BPE")
        .set("dropout", Json())
        .set("unk_token", Json())
        .set("continuing_subword_prefix", Json())
        .set("end_of_word_suffix", Json())
        .set("fuse_unk", false)
        .set("byte_fallback", false)
        .set("ignore_merges", t.ignore_merges)
        .set("vocab", std::move(vocab))
        .set("merges", std::move(merges));
}

}  // namespace

void write_tokenizer(const TokenizerFile& t, const fs::path& folder) {
    Json added = Json::array(), added_decoder = Json::object();
    for (const auto& token : t.added) {
        Json entry = Json::object().set("id", token.id);
        const Json flags = added_token(token);
        for (const auto& [key, value] : *flags.as_object()) entry.set(key, value);
        added.push(std::move(entry));
        added_decoder.set(std::to_string(token.id), flags);
    }
    write_json(Json::object()
                   .set("version", "1.0")
                   .set("truncation", Json())
                   .set("padding", Json())
                   .set("added_tokens", std::move(added))
                   .set("normalizer", Json())
                   .set("pre_tokenizer", pre_tokenizer_of(t))
                   .set("post_processor", post_processor_of(t))
                   .set("decoder", byte_level(true, true))
                   .set("model", model_of(t)),
               folder / "tokenizer.json");
    write_json(Json::object()
                   .set("bos_token", t.bos ? Json(*t.bos) : Json())
                   .set("eos_token", t.eos ? Json(*t.eos) : Json())
                   .set("tokenizer_class", "PreTrainedTokenizerFast")
                   .set("clean_up_tokenization_spaces", false)
                   .set("added_tokens_decoder", std::move(added_decoder)),
               folder / "tokenizer_config.json");
}

}  // namespace coeus
