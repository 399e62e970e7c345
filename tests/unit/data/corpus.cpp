// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/corpus.hpp"

#include "coeus/base/error.hpp"
#include "support/support.hpp"

#include <catch2/catch.hpp>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Strings = std::vector<std::string>;

namespace {

// All documents in order; a passage inside a document continues it.
Strings documents_of(const Corpus& corpus, int64_t* replaced = nullptr) {
    Strings all;
    const int64_t count = corpus.read([&](const std::vector<Passage>& passages) {
        for (const Passage& passage : passages) {
            if (passage.json_lines) {
                each_json_text(passage, [&](std::string_view text) { all.emplace_back(text); });
            } else {
                if (passage.begins_document()) all.emplace_back();
                all.back() += passage.text();
            }
        }
    });
    if (replaced) *replaced = count;
    return all;
}

std::string problem(const std::vector<std::filesystem::path>& inputs) {
    try {
        documents_of(Corpus(inputs));
        return "none";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("corpus: files, folders in order of names, hidden ones left out") {
    const TemporaryFolder folder;
    write_file(folder / "b.txt", "bee");
    write_file(folder / "a" / "z.md", "zed\n");
    write_file(folder / "a" / ".git" / "x.txt", "hidden");
    write_file(folder / ".hidden", "hidden");
    write_file(folder / "a" / "empty.txt", "");
    write_file(folder / "c.jsonl", "{\"text\": \"one\"}\n\n{\"id\": 7, \"text\": \"zwei é\"}\r\n");
    const Corpus corpus({folder.path()});
    CHECK(documents_of(corpus) == Strings{"zed\n", "bee", "one", "zwei é"});
    CHECK(corpus.source() == "empty.txt and 3 more");
    CHECK(documents_of(Corpus({folder / "b.txt", folder / "b.txt"})) == Strings{"bee", "bee"});
}

TEST_CASE("corpus: the three forms of .json") {
    const TemporaryFolder folder;
    write_file(folder / "lines.json", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    write_file(folder / "array.json", " [\n{\"text\": \"a\"}, {\"text\": \"b\"}]\n");
    write_file(folder / "object.json", "{\n\"text\": \"a\"\n}\n");
    CHECK(documents_of(Corpus({folder / "lines.json"})) == Strings{"a", "b"});
    CHECK(documents_of(Corpus({folder / "array.json"})) == Strings{"a", "b"});
    CHECK(documents_of(Corpus({folder / "object.json"})) == Strings{"a"});
}

TEST_CASE("corpus: what is not UTF-8 is replaced and counted") {
    const TemporaryFolder folder;
    // a lone byte; an overlong slash (2 parts); a surrogate (3); a cut sequence (1 part); U+110000 (4)
    write_file(folder / "a.txt",
               "a\xff"
               "b\xc0\xaf"
               "c\xed\xa0\x80"
               "d\xe2\x82"
               "e\xf4\x90\x80\x80"
               "f");
    int64_t replaced = 0;
    const std::string r = "\uFFFD";
    CHECK(documents_of(Corpus({folder / "a.txt"}), &replaced) ==
          Strings{"a" + r + "b" + r + r + "c" + r + r + r + "d" + r + "e" + r + r + r + r + "f"});
    CHECK(replaced == 11);
    write_file(folder / "b.txt", "\xEF\xBB\xBFmarked \u00e9\u6771\U0001F642");
    CHECK(documents_of(Corpus({folder / "b.txt"}), &replaced) == Strings{"marked \u00e9\u6771\U0001F642"});
    CHECK(replaced == 0);
    write_file(folder / "c.jsonl", "{\"text\": \"x\xff\"}\n");
    CHECK(documents_of(Corpus({folder / "c.jsonl"}), &replaced) == Strings{"x" + r});
    CHECK(replaced == 1);
    write_file(folder / "d.txt", "cut \xe2\x82");
    CHECK(documents_of(Corpus({folder / "d.txt"})) == Strings{"cut " + r});
}

TEST_CASE("corpus: large files are cut, nothing is lost") {
    const TemporaryFolder folder;
    std::string lines, words, solid(3 << 20, 'x'), json;
    for (int i = 0; lines.size() < (3 << 20); ++i) lines += "line " + std::to_string(i) + " of the file é\n";
    for (int i = 0; words.size() < (3 << 20); ++i) words += "words without line ends ";
    Strings texts;
    for (int i = 0; json.size() < (3 << 20); ++i) {
        texts.push_back("document " + std::to_string(i) + std::string(1000, 'y'));
        json += "{\"text\": \"" + texts.back() + "\"}\n";
    }
    write_file(folder / "lines.txt", lines);
    write_file(folder / "words.txt", words);
    write_file(folder / "solid.txt", solid);
    write_file(folder / "z.jsonl", json);
    const Corpus corpus({folder / "lines.txt", folder / "words.txt", folder / "solid.txt"});
    CHECK((documents_of(corpus) == Strings{lines, words, solid}));
    CHECK((documents_of(Corpus({folder / "z.jsonl"})) == texts));
    size_t count = 0;
    corpus.read([&](const std::vector<Passage>& passages) {
        count = passages.size();
        for (const Passage& p : passages) {
            if (p.begins_document() || p.document[0] != 'l') continue;
            CHECK(p.document[p.begin - 1] == '\n');
        }
    });
    CHECK(count == 3 + 3 + 1);
}

TEST_CASE("corpus: the content hash tells contents apart, not places") {
    const TemporaryFolder folder;
    write_file(folder / "a.txt", "ab");
    write_file(folder / "b.txt", "c");
    write_file(folder / "x" / "c.txt", "ab");
    write_file(folder / "d.txt", "a");
    write_file(folder / "e.txt", "bc");
    write_file(folder / "f.jsonl", "ab");
    const auto hash = [&](const std::vector<std::filesystem::path>& inputs) {
        return Corpus(inputs).content_hash();
    };
    CHECK(hash({folder / "a.txt"}) == hash({folder / "x" / "c.txt"}));
    CHECK(hash({folder / "a.txt", folder / "b.txt"}) != hash({folder / "d.txt", folder / "e.txt"}));
    CHECK(hash({folder / "a.txt"}) != hash({folder / "f.jsonl"}));
}

TEST_CASE("corpus: bad input") {
    const TemporaryFolder folder;
    const std::string at = folder.path().string();
    std::filesystem::create_directories(folder / "none");
    write_file(folder / "empty.txt", "");
    write_file(folder / "a.txt.gz", "x");
    write_file(folder / "a.parquet", "x");
    write_file(folder / "binary.txt", std::string("a\0b", 3));
    write_file(folder / "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n");
    write_file(folder / "cut.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"a\n");
    write_file(folder / "other.jsonl", "[1]\n");
    write_file(folder / "bad.json", "[{\"text\": \"a\"}, {\"content\": \"b\"}]");
    CHECK(problem({folder / "absent.txt"}) == at + "/absent.txt: there is no such file");
    CHECK(problem({folder / "none"}) == at + "/none: no files in there");
    CHECK(problem({folder / "empty.txt"}) == at + "/empty.txt: empty, there is no text to read");
    CHECK(problem({folder / "a.txt.gz"}) ==
          at + "/a.txt.gz: compressed text (.gz) is not built yet; decompress it first");
    CHECK(problem({folder / "a.parquet"}) ==
          at + "/a.parquet: .parquet is no text; give plain text, JSON lines, or folders of these");
    CHECK(problem({folder / "binary.txt"}) == at + "/binary.txt: contains NUL bytes, so it is no text");
    CHECK(problem({folder / "bad.jsonl"}) == at + "/bad.jsonl: line 2: text must be a string, is 5");
    CHECK_THAT(problem({folder / "cut.jsonl"}), Contains("cut.jsonl: line 3: not valid JSON"));
    CHECK(problem({folder / "other.jsonl"}) ==
          at + "/other.jsonl: line 1: the top level must be an object, is an array");
    CHECK(problem({folder / "bad.json"}) == at + "/bad.json: [1].text is missing");
}
