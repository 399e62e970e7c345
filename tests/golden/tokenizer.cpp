// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE against Hugging Face's: merges trained on 20 MB of English; ids and texts of complete
// tokenizers.
#include "coeus/data/tokenizer.hpp"

#include "coeus/data/bpe_training.hpp"
#include "coeus/data/detokenize.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenize.hpp"
#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>

using namespace coeus;
using namespace coeus::test;

namespace {

// The English text from which the golden values were made (Debian's dict-gcide), or "" if it is not
// installed.
std::string english() {
    const std::string packed = "/usr/share/dictd/gcide.dict.dz";
    if (!std::filesystem::exists(packed)) {
        skip_unless_required("there is no " + packed + " (Debian: dict-gcide)");
        return "";
    }
    const std::string text = run_shell("zcat " + packed + " 2>/dev/null | iconv -f UTF-8 -t UTF-8 -c").output;
    // its head names the second in which the package was built; the golden values have that of Debian 12
    const size_t head = std::min<size_t>(text.size(), 2000);
    static const std::regex built(R"([A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ [0-9:]{8} [0-9]{4}\n)");
    return std::regex_replace(text.substr(0, head), built, "Tue Feb 15 10:31:36 2022\n") + text.substr(head);
}

std::vector<int32_t> ids_of(const JsonView& view) {
    const auto ids = view.integers();
    return {ids.begin(), ids.end()};
}

}  // namespace

TEST_CASE("golden: merges of BPE training, and bytes per token") {
    const auto folder = golden("tokenizer/bpe_training");
    if (folder.empty()) return;
    const std::string text = english();
    if (text.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "figures.json");
    const JsonView figures = document.root();
    REQUIRE(int64_t(text.size()) == figures["corpus"].integer("bytes"));
    const size_t trained = text.rfind('\n', 20'000'000 - 1) + 1;
    const size_t measured = text.rfind('\n', trained + 2'000'000 - 1) + 1;

    const TemporaryFolder work;
    write_file(work / "train.txt", text.substr(0, trained));
    const WordCounts words = count_words(Corpus({work / "train.txt"}), 2);
    CHECK(int64_t(words.size()) == figures.integer("distinct_words"));
    const int64_t vocab = figures.integer("vocab_size");
    std::string merges;
    for (const auto& [left, right] : train_bpe(words, vocab)) merges += left + " " + right + "\n";
    CHECK((merges == read_file(folder / "merges.txt")));

    // two tokens fewer are learnt, to leave room for BOS and EOS: the result is close, not equal
    train_tokenizer(Corpus({work / "train.txt"}), vocab + 2, work / "tokenizer", 2);
    const Tokenizer tokenizer(work / "tokenizer");
    CHECK(tokenizer.vocab_size() == vocab + 2);
    CHECK(int64_t(tokenizer.encode(std::string_view(text).substr(trained, measured - trained)).size()) ==
          figures.integer("tokens_as_one_text"));
}

namespace {

std::vector<int32_t> between(const Tokenizer::Ends& ends, std::vector<int32_t> ids) {
    ids.insert(ids.begin(), ends.before.begin(), ends.before.end());
    ids.insert(ids.end(), ends.after.begin(), ends.after.end());
    return ids;
}

// The texts of cases.json for which a tokenizer differs, sorted by the kind of difference.
struct Differences {
    std::vector<std::string> ids, parts, prompts, own_ends, document_ends, texts, streams;
};

// The ids of a text that is encoded in parts of `size` bytes.
std::vector<int32_t> in_parts(const Tokenizer& tokenizer, const std::string& text, size_t length) {
    std::vector<int32_t> ids;
    Tokenizer::Encoder encoder(tokenizer);
    for (size_t at = 0, end = length; at < text.size(); end += length) {
        while (end < text.size() && (uint8_t(text[end]) & 0xc0) == 0x80) ++end;
        if (end > at) at = encoder.encode_part(text, at, std::min(end, text.size()), ids);
    }
    return ids;
}

Differences differences(const Tokenizer& tokenizer, const JsonView& root) {
    Differences d;
    for (const JsonView& c : root["cases"].elements()) {
        const std::string& text = c.string("text");
        const std::vector<int32_t> ids = ids_of(c["ids"]);
        if (tokenizer.encode(text) != ids) d.ids.push_back(text);
        if (tokenizer.can_encode_parts() && in_parts(tokenizer, text, 17) != ids) d.parts.push_back(text);
        if (tokenizer.decode(ids) != c.string("decoded")) d.texts.push_back(text);
        const auto differs = [&](const char* key, const std::vector<int32_t>& own) {
            const auto expected = c.find(key);
            return expected && own != ids_of(*expected);
        };
        if (differs("template", between(tokenizer.own_ends(), ids))) d.own_ends.push_back(text);
        if (differs("with_bos_eos", between(tokenizer.document_ends(), ids))) d.document_ends.push_back(text);
        if (differs("ids_special_allowed", tokenizer.encode_prompt(text))) d.prompts.push_back(text);
        if (const auto skipping = c.find("decoded_skipping_special"))
            if (tokenizer.decode(ids, true) != skipping->string()) d.texts.push_back(text);
    }
    for (const JsonView& c : root["decode"].elements()) {
        const std::vector<int32_t> ids = ids_of(c["ids"]);
        const std::string expected = c.string("decoded");
        if (tokenizer.decode(ids) != expected) d.texts.push_back(expected);
        Tokenizer::Stream stream(tokenizer, false);
        std::string streamed;
        for (const int32_t id : ids) streamed += stream.push(id);
        if (streamed + stream.finish() != expected) d.streams.push_back(expected);
    }
    return d;
}

const std::vector<std::string> none;

void check_all(const Tokenizer& tokenizer, const std::filesystem::path& folder) {
    const JsonDocument document = JsonDocument::read(folder / "cases.json");
    const JsonView root = document.root();
    CAPTURE(folder);
    CHECK(tokenizer.vocab_size() == root.integer("vocab_size"));
    CHECK(tokenizer.bos_id().value_or(-1) == root.integer("bos_id", -1));
    CHECK(tokenizer.eos_id().value_or(-1) == root.integer("eos_id", -1));
    CHECK(root["cases"].size() > 0);
    CHECK(root["decode"].size() > 0);
    const Differences d = differences(tokenizer, root);
    CHECK(d.ids == none);
    CHECK(d.parts == none);
    CHECK(d.prompts == none);
    CHECK(d.own_ends == none);
    CHECK(d.document_ends == none);
    CHECK(d.texts == none);
    CHECK(d.streams == none);
}

namespace fs = std::filesystem;

// Compares every tokenizer of golden/tokenizer, except those for which `why_not` returns a reason.
void for_each_tokenizer(const std::function<std::string(const fs::path& folder)>& why_not,
                        const std::function<void(const fs::path& folder)>& check) {
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_folders("tokenizer")) {
        const fs::path folder = golden(name);
        const auto refusal = [folder, &why_not] {
            return fs::exists(folder / "cases.json") ? why_not(folder) : "it has no texts (cases.json)";
        };
        cases.push_back({name, refusal, [folder, &check] { check(folder); }});
    }
    compare_golden(cases);
}

// tiktoken's tokenizer.model does not contain its pattern; cases.json does.
bool is_tiktoken(const fs::path& folder) {
    return JsonDocument::read(folder / "cases.json").root().contains("pattern");
}
bool has_tokenizer_json(const fs::path& folder) {
    return fs::exists(folder / "tokenizer.json");
}

std::string not_tokenizer_json(const fs::path& folder) {
    return has_tokenizer_json(folder) ? "" : "it has no tokenizer.json";
}
std::string not_sentencepiece(const fs::path& folder) {
    return has_tokenizer_json(folder) || is_tiktoken(folder) ? "it is not a SentencePiece model" : "";
}
std::string not_tiktoken(const fs::path& folder) {
    return is_tiktoken(folder) ? "" : "it is not a file of tiktoken's";
}
// vocab.json and merges.txt imply the pattern of one of two classes, and no space in front of a text.
std::string not_two_files(const fs::path& folder) {
    if (!has_tokenizer_json(folder)) return "it has no tokenizer.json";
    const JsonDocument document = JsonDocument::read(folder / "tokenizer_config.json");
    const JsonView config = document.root();
    const std::string kind = config.string("tokenizer_class", "no class");
    if (kind != "GPT2Tokenizer" && kind != "Qwen2Tokenizer") return kind + " is not made of two files";
    const auto space = config.find("add_prefix_space");
    return space && space->boolean() ? "two files cannot say add_prefix_space" : "";
}

// The tokenizer_config.json for a tiktoken file: its kind and, if they are not those of the kind, its special
// tokens.
Json word_on_tiktoken(const fs::path& folder) {
    const std::string name = folder.filename(), kind = name.substr(name.find('_') + 1);
    Json word = Json::object().set("tiktoken", kind), added = Json::object();
    if (kind == "llama3") return word;
    const JsonDocument cases = JsonDocument::read(folder / "cases.json");
    const JsonView root = cases.root();
    for (const auto& [content, id] : root["special_tokens"].items()) {
        added.set(std::to_string(id.integer()), Json::object().set("content", content).set("special", true));
        if (id.integer() == root.integer("bos_id")) word.set("bos_token", content);
        if (id.integer() == root.integer("eos_id")) word.set("eos_token", content);
    }
    return word.set("added_tokens_decoder", std::move(added));
}

// Writes the content of a tokenizer.json as vocab.json and merges.txt.
void write_two_files(const fs::path& folder, const TemporaryFolder& work) {
    const JsonDocument document = JsonDocument::read(folder / "tokenizer.json");
    const JsonView model = document.root()["model"];
    write_json(model["vocab"].value(), work / "vocab.json");
    std::string merges = "#version: 0.2\n";
    for (const JsonView& merge : model["merges"].elements())
        merges +=
            merge.is_array() ? merge[0].string() + " " + merge[1].string() + "\n" : merge.string() + "\n";
    write_file(work / "merges.txt", merges);
    Json config = JsonDocument::read(folder / "tokenizer_config.json").root().value();
    if (!config.find("added_tokens_decoder")) {  // GPT-2's are only in its tokenizer.json
        Json added = Json::object();
        for (const JsonView& token : document.root()["added_tokens"].elements())
            added.set(std::to_string(token.integer("id")),
                      Json::object().set("content", token.string("content")).set("special", true));
        config.set("added_tokens_decoder", std::move(added));
    }
    write_json(config, work / "tokenizer_config.json");
}

}  // namespace

TEST_CASE("golden: tokenizer.json of every kind") {
    for_each_tokenizer(not_tokenizer_json,
                       [](const fs::path& folder) { check_all(Tokenizer(folder), folder); });
}

TEST_CASE("golden: SentencePiece models") {
    for_each_tokenizer(not_sentencepiece, [](const fs::path& folder) {
        check_all(Tokenizer(folder), folder);
        check_all(Tokenizer(folder / "tokenizer.model"), folder);
    });
}

TEST_CASE("golden: SentencePiece gives a long text the ids of its words") {
    const std::vector<std::string> words = {"music", "of", "the", "1913", "na\u00efve", "art,", "(x)\n", "Z"};
    for_each_tokenizer(not_sentencepiece, [&](const fs::path& folder) {
        const Tokenizer tokenizer(folder);
        std::vector<std::vector<int32_t>> ids;  // of each word after a space
        const size_t start = tokenizer.encode("a").size();
        for (const std::string& word : words) {
            ids.push_back(tokenizer.encode("a " + word + " a"));
            ids.back().erase(ids.back().begin(), ids.back().begin() + ptrdiff_t(start));
            ids.back().pop_back();
        }
        std::string text = "a";
        std::vector<int32_t> expected = tokenizer.encode("a");
        for (uint64_t i = 0; text.size() < 100'000; ++i) {
            const size_t word = i * i % 31 % words.size();
            text += " " + words[word];
            expected.insert(expected.end(), ids[word].begin(), ids[word].end());
        }
        text += " a";
        expected.push_back(tokenizer.encode("a a").back());
        CHECK((tokenizer.encode(text) == expected));
    });
}

TEST_CASE("golden: tiktoken files whose kind is named") {
    for_each_tokenizer(not_tiktoken, [](const fs::path& folder) {
        const TemporaryFolder work;
        write_file(work / "tokenizer.model", read_file(folder / "tokenizer.model"));
        write_json(word_on_tiktoken(folder), work / "tokenizer_config.json");
        check_all(Tokenizer(work.path()), folder);
        check_all(Tokenizer(work / "tokenizer.model"), folder);
    });
}

TEST_CASE("golden: vocab.json and merges.txt") {
    for_each_tokenizer(not_two_files, [](const fs::path& folder) {
        const TemporaryFolder work;
        write_two_files(folder, work);
        check_all(Tokenizer(work.path()), folder);
        check_all(Tokenizer(work / "merges.txt"), folder);
        CHECK(Tokenizer(work / "merges.txt").hash() == Tokenizer(work / "vocab.json").hash());
    });
}

namespace {

// The tokens of a text in JSON Lines.
std::vector<int32_t> tokens_of_lines(const std::string& lines, const Tokenizer& tokenizer,
                                     const TemporaryFolder& work, const std::string& name) {
    write_file(work / (name + ".jsonl"), lines);
    tokenize(Corpus({work / (name + ".jsonl")}), tokenizer, work / (name + ".h5"), {.threads = 2});
    const TokenFile file(work / (name + ".h5"));
    std::vector<int32_t> tokens(size_t(file.num_tokens()));
    file.read(0, tokens);
    return tokens;
}

// Texts -> tokens -> texts -> tokens: all tokens are the same.
void check_there_and_back(const Tokenizer& tokenizer, const fs::path& folder) {
    CAPTURE(folder);
    const TemporaryFolder work;
    const JsonDocument document = JsonDocument::read(folder / "cases.json");
    std::string lines;
    for (const JsonView& c : document.root()["cases"].elements())
        // of an unnormalized text only the normalized one comes back
        if (c.string("decoded") == c.string("text"))
            lines += Json::object().set("text", c.string("text")).text() + "\n";
    REQUIRE_FALSE(lines.empty());
    const std::vector<int32_t> tokens = tokens_of_lines(lines, tokenizer, work, "there");
    std::string back;
    const TokenFile file(work / "there.h5");
    detokenize(file, tokenizer, {.special = true, .threads = 2},
               [&](std::string_view some) { back += some; });
    CHECK((tokens_of_lines(back, tokenizer, work, "back") == tokens));
}

}  // namespace

TEST_CASE("golden: what is detokenized has the same tokens again, with every tokenizer") {
    for_each_tokenizer([](const fs::path&) { return ""; },
                       [](const fs::path& folder) {
                           if (!is_tiktoken(folder)) return check_there_and_back(Tokenizer(folder), folder);
                           const TemporaryFolder work;
                           fs::copy_file(folder / "tokenizer.model", work / "tokenizer.model");
                           write_json(word_on_tiktoken(folder), work / "tokenizer_config.json");
                           check_there_and_back(Tokenizer(work.path()), folder);
                       });
}
