// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE against Hugging Face's: merges of a training on 20 MB of English, ids and texts of whole
// tokenizers.
#include "coeus/data/tokenizer.hpp"

#include "coeus/data/bpe_training.hpp"
#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <regex>

using namespace coeus;
using namespace coeus::test;

namespace {

// The English that the golden values were made of (Debian's dict-gcide), or "" where it is not installed.
std::string english() {
    const std::string packed = "/usr/share/dictd/gcide.dict.dz";
    if (!std::filesystem::exists(packed)) {
        skip_unless_required("there is no " + packed + " (Debian: dict-gcide)");
        return "";
    }
    const std::string text = run_shell("zcat " + packed + " 2>/dev/null | iconv -f UTF-8 -t UTF-8 -c").output;
    // its head names the second in which the package was built: that of Debian 12's
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
    REQUIRE(text.size() == 39952318);
    const size_t trained = text.rfind('\n', 20'000'000 - 1) + 1;
    const size_t measured = text.rfind('\n', trained + 2'000'000 - 1) + 1;

    const TemporaryFolder work;
    write_file(work / "train.txt", text.substr(0, trained));
    const WordCounts words = count_words(Corpus({work / "train.txt"}), 2);
    CHECK(words.size() == 207344);
    std::string merges;
    for (const auto& [left, right] : train_bpe(words, 2048)) merges += left + " " + right + "\n";
    CHECK((merges == read_file(folder / "merges.txt")));

    // two tokens fewer are learnt, for BOS and EOS: the measure is near, not equal
    train_tokenizer(Corpus({work / "train.txt"}), 2050, work / "tokenizer", 2);
    const Tokenizer tokenizer(work / "tokenizer");
    CHECK(tokenizer.vocab_size() == 2050);
    CHECK(tokenizer.encode(std::string_view(text).substr(trained, measured - trained)).size() == 752955);
}

namespace {

std::vector<int32_t> between(const Tokenizer::Ends& ends, std::vector<int32_t> ids) {
    ids.insert(ids.begin(), ends.before.begin(), ends.before.end());
    ids.insert(ids.end(), ends.after.begin(), ends.after.end());
    return ids;
}

// The texts of cases.json in which a tokenizer differs, by what differs.
struct Differences {
    std::vector<std::string> ids, parts, prompts, own_ends, document_ends, texts, streams;
};

// The ids of a text that is encoded in parts of some length.
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
    CHECK(root["cases"].size() >= 220);
    CHECK(root["decode"].size() == 40);
    const Differences d = differences(tokenizer, root);
    CHECK(d.ids == none);
    CHECK(d.parts == none);
    CHECK(d.prompts == none);
    CHECK(d.own_ends == none);
    CHECK(d.document_ends == none);
    CHECK(d.texts == none);
    CHECK(d.streams == none);
}

}  // namespace

TEST_CASE("golden: tokenizer.json of every kind") {
    for (const char* name : {"llama3", "llama3_merges_only", "gpt2", "gpt2_prefix_space", "qwen", "o200k",
                             "deepseek", "added_tokens", "ascii_only"}) {
        const auto folder = golden(std::string("tokenizer/") + name);
        if (folder.empty()) return;
        check_all(Tokenizer(folder), folder);
    }
}

TEST_CASE("golden: SentencePiece models") {
    for (const char* name : {"sentencepiece_llama2", "sentencepiece_nfkc"}) {
        const auto folder = golden(std::string("tokenizer/") + name);
        if (folder.empty()) return;
        check_all(Tokenizer(folder), folder);
        check_all(Tokenizer(folder / "tokenizer.model"), folder);
    }
}

TEST_CASE("golden: SentencePiece gives a long text the ids of its words") {
    const std::vector<std::string> words = {"music", "of", "the", "1913", "na\u00efve", "art,", "(x)\n", "Z"};
    for (const char* name : {"sentencepiece_llama2", "sentencepiece_nfkc"}) {
        const auto folder = golden(std::string("tokenizer/") + name);
        if (folder.empty()) return;
        const Tokenizer tokenizer(folder);
        std::vector<std::vector<int32_t>> ids;  // of each word behind a space
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
    }
}

TEST_CASE("golden: tiktoken's files, with a word on what they are") {
    const auto llama3 = golden("tokenizer/tiktoken_llama3"), o200k = golden("tokenizer/tiktoken_o200k");
    if (llama3.empty() || o200k.empty()) return;
    const TemporaryFolder work;
    const auto copy = [&](const std::filesystem::path& from, const std::string& name) {
        write_file(work / name, read_file(from / "tokenizer.model"));
    };
    // the special tokens of Llama 3 are those of the kind
    copy(llama3, "tokenizer.model");
    write_file(work / "tokenizer_config.json", R"({"tiktoken": "llama3"})");
    check_all(Tokenizer(work.path()), llama3);

    copy(o200k, "tokenizer.model");
    Json added = Json::object();
    const JsonDocument cases = JsonDocument::read(o200k / "cases.json");
    for (const auto& [content, id] : cases.root()["special_tokens"].items())
        added.set(std::to_string(id.integer()), Json::object().set("content", content).set("special", true));
    write_json(Json::object()
                   .set("tiktoken", "o200k")
                   .set("bos_token", "<|begin_of_text|>")
                   .set("eos_token", "<|end_of_text|>")
                   .set("added_tokens_decoder", std::move(added)),
               work / "tokenizer_config.json");
    check_all(Tokenizer(work / "tokenizer.model"), o200k);
}

TEST_CASE("golden: vocab.json and merges.txt") {
    for (const char* name : {"gpt2", "qwen"}) {
        const auto folder = golden(std::string("tokenizer/") + name);
        if (folder.empty()) return;
        const JsonDocument document = JsonDocument::read(folder / "tokenizer.json");
        const JsonView model = document.root()["model"];
        const TemporaryFolder work;
        write_json(model["vocab"].value(), work / "vocab.json");
        std::string merges = "#version: 0.2\n";
        for (const JsonView& merge : model["merges"].elements())
            merges +=
                merge.is_array() ? merge[0].string() + " " + merge[1].string() + "\n" : merge.string() + "\n";
        write_file(work / "merges.txt", merges);
        Json config = JsonDocument::read(folder / "tokenizer_config.json").root().value();
        if (!config.find("added_tokens_decoder"))  // GPT-2's is in the vocabulary of its tokenizer.json alone
            config.set("added_tokens_decoder",
                       Json::object().set(
                           "1000", Json::object().set("content", "<|endoftext|>").set("special", true)));
        write_json(config, work / "tokenizer_config.json");
        check_all(Tokenizer(work.path()), folder);
        check_all(Tokenizer(work / "merges.txt"), folder);
        CHECK(Tokenizer(work / "merges.txt").hash() == Tokenizer(work / "vocab.json").hash());
    }
}
