// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE against Hugging Face's: merges of a training on 20 MB of English, ids and texts of whole
// tokenizers.
#include "coeus/data/tokenizer.hpp"

#include "coeus/data/bpe_training.hpp"
#include "coeus/file/json.hpp"
#include "support/support.hpp"

#include <catch2/catch.hpp>

#include <fstream>

using namespace coeus;
using namespace coeus::test;

namespace {

// The English that the golden values were made of (Debian's dict-gcide), or "" where it is not installed.
std::string english() {
    const std::string packed = "/usr/share/dictd/gcide.dict.dz";
    if (!std::filesystem::exists(packed)) {
        WARN("skipped: no " << packed << " (package dict-gcide)");
        return "";
    }
    return run_shell("zcat " + packed + " 2>/dev/null | iconv -f UTF-8 -t UTF-8 -c").output;
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

TEST_CASE("golden: byte-level tokenizers encode and decode as Hugging Face's") {
    for (const std::string name :
         {"llama3", "llama3_merges_only", "o200k", "gpt2", "deepseek", "ascii_only"}) {
        const auto folder = golden("tokenizer/" + name);
        if (folder.empty()) return;
        const Tokenizer tokenizer(folder);
        const JsonDocument document = JsonDocument::read(folder / "cases.json");
        const JsonView root = document.root();
        CAPTURE(name);
        CHECK(tokenizer.vocab_size() == root.integer("vocab_size"));
        CHECK(tokenizer.bos_id().value_or(-1) == root.integer("bos_id", -1));
        CHECK(tokenizer.eos_id().value_or(-1) == root.integer("eos_id", -1));
        size_t wrong_ids = 0, wrong_texts = 0;
        for (const JsonView& c : root["cases"].elements()) {
            const std::vector<int32_t> ids = ids_of(c["ids"]);
            wrong_ids += tokenizer.encode(c.string("text")) != ids;
            wrong_texts += tokenizer.decode(ids) != c.string("decoded");
            if (const auto skipping = c.find("decoded_skipping_special"))
                wrong_texts += tokenizer.decode(ids, true) != skipping->string();
        }
        for (const JsonView& c : root["decode"].elements()) {
            const std::vector<int32_t> ids = ids_of(c["ids"]);
            const std::string expected = c.string("decoded");
            wrong_texts += tokenizer.decode(ids) != expected;
            Tokenizer::Stream stream(tokenizer, false);
            std::string streamed;
            for (const int32_t id : ids) streamed += stream.push(id);
            wrong_texts += streamed + stream.finish() != expected;
        }
        CHECK(root["cases"].size() > 200);
        CHECK(wrong_ids == 0);
        CHECK(wrong_texts == 0);
    }
}
