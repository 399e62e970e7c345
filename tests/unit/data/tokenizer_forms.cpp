// SPDX-License-Identifier: Apache-2.0
// Small forms of tokenizer.json give the ids, the decoded texts and the pieces that Hugging Face's tokenizers
// gives: tests/data/tokenizers/forms.json, which make.py in the same folder wrote.
#include "../../../src/data/tokenizer/characters.hpp"
#include "../../../src/data/tokenizer/pre_tokenizer.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <functional>

using namespace coeus;
using namespace coeus::test;

namespace {

const JsonView forms() {
    static const JsonDocument document =
        JsonDocument::read(paths::source() + "/tests/data/tokenizers/forms.json");
    return document.root();
}

// FNV-1a with 32 bits.
std::string sum_of(std::string_view bytes) {
    uint32_t value = 0x811c9dc5;
    for (const char byte : bytes) value = (value ^ uint8_t(byte)) * 0x01000193;
    return fmt::format("{:08x}", value);
}

std::string sum_of(const std::vector<int32_t>& ids) {
    std::string text;
    for (const int32_t id : ids) text += fmt::format("{} ", id);
    return sum_of(std::string_view(text));
}

void set_all(Json& json, const Json& changes) {
    for (const auto& [key, value] : *changes.as_object()) json.set(key, value);
}

// document() of make.py.
Json document_of(const JsonView& form) {
    const Json bytes = Json::object()
                           .set("type", "ByteLevel")
                           .set("add_prefix_space", false)
                           .set("trim_offsets", true)
                           .set("use_regex", true);
    const bool normalized = form["in_file"].boolean("normalized", false);
    Json added = Json::array();
    for (const char* content : {"<unk>", "<s>", "</s>", "<|im_start|>"}) {
        const auto id = int64_t(added.as_array()->size());
        added.push(Json::object()
                       .set("id", id)
                       .set("content", content)
                       .set("normalized", normalized && id == 3)
                       .set("special", id < 3));
    }
    Json model = forms()["models"][form.string("model")].value();
    set_all(model, form["in_model"].value());
    Json file = Json::object()
                    .set("version", "1.0")
                    .set("added_tokens", added)
                    .set("pre_tokenizer", bytes)
                    .set("decoder", Json::object().set("type", "ByteLevel"))
                    .set("model", model);
    for (const auto& [key, value] : form["in_file"].items())
        if (key != "normalized") file.set(key, value.value());
    return file;
}

// The texts whose ids have another sum, for messages.
std::vector<std::string> different_texts(const Tokenizer& tokenizer, std::string_view sums) {
    std::vector<std::string> different;
    Tokenizer::Encoder encoder(tokenizer);
    for (const std::string& text : forms()["texts"].strings()) {
        std::vector<int32_t> ids;
        encoder.encode(text, ids);
        if (sum_of(ids) != sums.substr(0, 8)) different.push_back(text);
        sums.remove_prefix(std::min<size_t>(9, sums.size()));
    }
    return different;
}

// Calls visit() for texts that have every character of the table between a letter and a digit.
void each_character_text(const std::function<void(const std::string&)>& visit) {
    std::string text;
    int count = 0;
    for (uint32_t code = 1; code < 0x34000; ++code) {
        if (code >= 0xd800 && code < 0xe000) continue;
        text += 'a';
        append_utf8(text, code);
        text += '1';
        if (++count % 512 != 0) continue;
        visit(text);
        text.clear();
    }
    if (!text.empty()) visit(text);
}

std::string base64(std::string_view bytes) {
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    uint32_t bits = 0;
    int count = 0;
    for (const char byte : bytes) {
        bits = (bits << 8) | uint8_t(byte);
        for (count += 8; count >= 6; count -= 6) text += digits[(bits >> (count - 6)) & 63];
    }
    if (count > 0) text += digits[(bits << (6 - count)) & 63];
    return text + std::string((4 - text.size() % 4) % 4, '=');
}

std::string bytes_of_hex(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("tokenizer: forms of tokenizer.json give the ids and texts of Hugging Face's tokenizers") {
    const TemporaryFolder folder;
    const std::vector<std::string> texts = forms()["texts"].strings();
    REQUIRE(texts.size() == 270);
    REQUIRE(forms()["forms"].size() >= 95);
    for (const JsonView& form : forms()["forms"].elements()) {
        INFO(form.string("name"));
        write_json(document_of(form), folder / "tokenizer.json");
        const Tokenizer tokenizer(folder.path());
        CHECK(different_texts(tokenizer, form.string("ids")) == Words());
        std::string decoded;
        for (const std::string& text : texts)
            decoded += (&text == texts.data() ? "" : "\n") + tokenizer.decode(tokenizer.encode(text));
        CHECK(sum_of(std::string_view(decoded)) == form.string("text"));
    }
}

TEST_CASE("tokenizer: forms of tokenizer.json: a superscript ends a word for Whitespace") {
    // Whitespace has the words of Rust's crate regex, whose \w has no superscripts
    const TemporaryFolder folder;
    const auto ids = [&](const char* pre_tokenizer) {
        const char* rest = R"("decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "vocab": {"m": 0, "\u00b2": 1, "m\u00b2": 2}, "merges": ["m \u00b2"]})";
        write_file(folder / "tokenizer.json",
                   fmt::format("{{\"version\": \"1.0\", \"pre_tokenizer\": {}, {}}}", pre_tokenizer, rest));
        return Tokenizer(folder.path()).encode("m\u00b2");
    };
    CHECK(ids("null") == std::vector<int32_t>{2});
    CHECK(ids(R"({"type": "Whitespace"})") == std::vector<int32_t>{0, 1});
}

TEST_CASE("tokenizer: every character of the table is in the classes that Oniguruma has for Unicode 16") {
    for (const auto& [expression, sum] : forms()["characters"].items()) {
        INFO(expression);
        const PreTokenizer pre_tokenizer({{expression}}, "test");
        for (const auto& scan : {pre_tokenizer.scan(), pre_tokenizer.scan_by_expression()}) {
            std::string lengths;
            each_character_text([&](const std::string& text) {
                scan->pieces(text, 0, [&](size_t begin, size_t end) {
                    lengths += fmt::format("{} ", end - begin);
                    return true;
                });
            });
            CHECK(sum_of(std::string_view(lengths)) == sum.string());
        }
    }
}

TEST_CASE("tokenizer: a class of POSIX that needs other tables is refused by name") {
    for (const char* name : {"[:alpha:]", "[:^digit:]", "[:other:]"}) {
        const std::string expression = fmt::format("[a{}]+", name);
        CHECK_THROWS_WITH(
            Pattern(expression, "x.json"),
            fmt::format("x.json: the regular expression \"{}\" has the class {}, which is not supported",
                        expression, name));
    }
}

TEST_CASE("tiktoken: ranks give the ids of tiktoken, for texts and for every character of the table") {
    const JsonView all = forms()["tiktoken"];
    const TemporaryFolder folder;
    std::string lines;
    int rank = 0;
    for (const std::string& hex : all["ranks"].strings())
        lines += fmt::format("{} {}\n", base64(bytes_of_hex(hex)), rank++);
    write_file(folder / "small.tiktoken", lines);
    for (const std::string kind : {"llama3", "o200k"}) {
        INFO(kind);
        write_json(Json::object().set("tiktoken", kind), folder / "tokenizer_config.json");
        const Tokenizer tokenizer(folder.path());
        CHECK(different_texts(tokenizer, all.string(kind + " ids")) == Words());
        std::vector<int32_t> ids;
        each_character_text([&](const std::string& text) {
            for (const int32_t id : tokenizer.encode(text)) ids.push_back(id);
        });
        CHECK(sum_of(ids) == all.string(kind + " characters"));
    }
}

TEST_CASE("tokenizer.model and a tokenizer.json beside it: the one with more tokens, or both") {
    const JsonView all = forms()["sentencepiece"];
    const TemporaryFolder folder;
    write_file(folder / "tokenizer.model", bytes_of_hex(all.string("model")));
    const Tokenizer alone(folder.path());
    CHECK(different_texts(alone, all.string("ids")) == Words());
    CHECK(alone.kind() == "SentencePiece");
    CHECK(alone.hash() == alone.earlier_hash());
    const auto pieces = int32_t(alone.vocab_size());
    const std::vector<int32_t> added = {pieces};
    for (const char* form : {"legacy", "first"}) {
        INFO(form);
        const std::string sums = all.string(std::string(form) + " ids");
        // tokenizer.json has one token more
        write_json(all[form].value(), folder / "tokenizer.json");
        const Tokenizer json(folder.path());
        CHECK(json.kind() == "BPE (tokenizer.json)");
        CHECK(json.vocab_size() == pieces + 1);
        CHECK(different_texts(json, sums) == Words());
        CHECK(json.hash() != alone.hash());
        // the same tokens: tokenizer.model, as in earlier versions
        Json same = all[form].value();
        same.set("added_tokens", Json::array());
        write_json(same, folder / "tokenizer.json");
        CHECK(Tokenizer(folder.path()).hash() == alone.hash());
        // a kind that cannot be read: its added token is joined with tokenizer.model
        Json unigram = all[form].value();
        unigram.set("model", Json(*unigram.find("model")).set("type", "Unigram"));
        write_json(unigram, folder / "tokenizer.json");
        write_json(Json::object().set("legacy", std::string(form) == "legacy"),
                   folder / "tokenizer_config.json");
        const Tokenizer joined(folder.path());
        CHECK(joined.kind() == "SentencePiece");
        CHECK(joined.encode("<|im_start|>") == added);
        CHECK(joined.decode(added) == "<|im_start|>");
        CHECK(joined.hash() != alone.hash());
        // SentencePiece puts a space before every text, the other form not before one that begins with a
        // space
        const auto differ = [&](const Tokenizer& tokenizer) {
            Words different = different_texts(tokenizer, sums);
            if (std::string(form) == "first")
                std::erase_if(different, [](const std::string& text) {
                    return text.starts_with(" ") || text.starts_with("\u2581");
                });
            return different;
        };
        CHECK(differ(joined) == Words());
        std::filesystem::remove(folder / "tokenizer.json");
        CHECK(Tokenizer(folder.path()).hash() == alone.hash());
        write_file(folder / "added_tokens.json", fmt::format("{{\"<|im_start|>\": {}}}", pieces));
        CHECK(differ(Tokenizer(folder.path())) == Words());
        std::filesystem::remove(folder / "added_tokens.json");
        std::filesystem::remove(folder / "tokenizer_config.json");
    }
}
