// SPDX-License-Identifier: Apache-2.0
#include "write_tokenizer.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"

namespace coeus {

namespace fs = std::filesystem;

namespace {

Json byte_level(bool add_prefix_space, bool use_regex) {
    return Json::object()
        .set("type", "ByteLevel")
        .set("add_prefix_space", add_prefix_space)
        .set("trim_offsets", true)
        .set("use_regex", use_regex);
}

Json added_token(const TrainedTokenizer::Added& token) {
    return Json::object()
        .set("content", token.content)
        .set("single_word", false)
        .set("lstrip", false)
        .set("rstrip", false)
        .set("normalized", false)
        .set("special", true);
}

Json pre_tokenizer_of(const TrainedTokenizer& t) {
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
Json post_processor_of(const TrainedTokenizer& t) {
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

Json model_of(const TrainedTokenizer& t) {
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
        .set("ignore_merges", false)
        .set("vocab", std::move(vocab))
        .set("merges", std::move(merges));
}

}  // namespace

void write_tokenizer(const TrainedTokenizer& t, const fs::path& folder) {
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
