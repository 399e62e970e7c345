// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/corpus.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "corpus_documents.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <tuple>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Strings = std::vector<std::string>;
namespace fs = std::filesystem;

TEST_CASE("corpus: files and folders in order of names, without hidden ones") {
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
}

TEST_CASE("corpus: a file that is given twice is read once") {
    const TemporaryFolder folder;
    write_file(folder / "a" / "b.txt", "bee");
    write_file(folder / "a" / "same.txt", "bee");  // a copy is another file
    std::filesystem::create_symlink(folder / "a" / "b.txt", folder / "link.txt");
    const auto file = folder / "a" / "b.txt";
    CHECK(documents_of(Corpus({file, file})) == Strings{"bee"});
    CHECK(documents_of(Corpus({folder / "a", file})) == Strings{"bee", "bee"});
    CHECK(documents_of(Corpus({file, folder / "." / "a" / ".." / "a" / "b.txt"})) == Strings{"bee"});
    CHECK(documents_of(Corpus({folder.path()})) == Strings{"bee", "bee"});
    CHECK(documents_of(Corpus({folder / "link.txt", folder.path()})) == Strings{"bee", "bee"});
}

TEST_CASE("corpus: links to folders are followed, and each folder is read once") {
    const TemporaryFolder folder;
    namespace fs = std::filesystem;
    write_file(folder / "data" / "a.txt", "ay");
    write_file(folder / "elsewhere" / "b.txt", "bee");
    write_file(folder / "elsewhere" / "deep" / "c.txt", "see");
    const auto link = [&](const std::string& name, const fs::path& target) {
        fs::create_directory_symlink(target, folder / "data" / name);
    };
    link("b", folder / "elsewhere");
    CHECK(documents_of(Corpus({folder / "data"})) == Strings{"ay", "bee", "see"});
    // loops: to a folder above, between two folders, and to a folder that is read anyway
    link("loop", folder / "data");
    fs::create_directory_symlink(folder / "data", folder / "elsewhere" / "back");
    link("again", folder / "elsewhere" / "deep");
    link(".hidden", folder / "elsewhere");
    CHECK(documents_of(Corpus({folder / "data"})) == Strings{"ay", "see", "bee"});
    link("gone", folder / "absent");
    CHECK(documents_of(Corpus({folder / "data"})) == Strings{"ay", "see", "bee"});
    // a loop that is not a folder
    link("self", folder / "data" / "self");
    CHECK_THAT(problem({folder / "data"}), Contains("cannot be listed: Too many levels of symbolic links"));
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

TEST_CASE("corpus: text that is not UTF-8 is replaced and counted") {
    const TemporaryFolder folder;
    // a single byte; an overlong slash (2 parts); a surrogate (3); a cut sequence (1 part); U+110000 (4)
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

TEST_CASE("corpus: large files are divided without loss") {
    const TemporaryFolder folder;
    std::string lines, words, solid(3 << 20, 'x'), json;
    for (int i = 0; lines.size() < (3 << 20); ++i) lines += "line " + std::to_string(i) + " of the file é\n";
    while (words.size() < (3 << 20)) words += "words without line ends ";
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

TEST_CASE("corpus: the content hash depends on the content, not on the place") {
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

TEST_CASE("corpus: pictures and programs in a folder are skipped, and patterns choose files") {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "clone/src");
    write_file(folder / "clone/a.txt", "first");
    write_file(folder / "clone/src/b.cpp", "second");
    write_file(folder / "clone/src/c.py", "third");
    write_file(folder / "clone/logo.png", std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16));
    write_file(folder / "clone/src/tool", std::string("\x7f"
                                                      "ELF\x02\x01\x01\0\0\0",
                                                      10));
    const auto read = [](const Corpus& corpus) {
        std::string all;
        corpus.read([&](const std::vector<Passage>& passages) {
            for (const Passage& passage : passages) all += std::string(passage.text()) + ";";
        });
        return all;
    };
    CHECK(read(Corpus({folder / "clone"})) == "first;second;third;");
    CHECK(read(Corpus({folder / "clone"}, BadLines::stop, {"*.cpp", "*.py"})) == "second;third;");
    // a file that is given is read, whatever its name is
    CHECK(read(Corpus({folder / "clone/a.txt", folder / "clone/src"}, BadLines::stop, {"*.py"})) ==
          "first;third;");
    CHECK_THROWS_WITH(Corpus({folder / "clone"}, BadLines::stop, {"*.rs"}),
                      Contains("contains no files that match *.rs"));
    std::filesystem::create_directories(folder / "pictures");
    std::filesystem::rename(folder / "clone/logo.png", folder / "pictures/logo.png");
    CHECK_THAT(problem({folder / "pictures"}), Contains("contains no files of text, but 1 other file; ") &&
                                                   Contains("logo.png: is a PNG picture"));
    // UTF-16 is text: reading it says what to do
    write_file(folder / "pictures/wide.txt", std::string("a\0b\0c\0d\0e\0f\0g\0h\0", 16));
    CHECK_THAT(problem({folder / "pictures"}), Contains("wide.txt: is not text, or it is UTF-16LE"));
    std::filesystem::remove(folder / "pictures/wide.txt");
    // archives and tables beside text are skipped; alone or named, they are refused
    write_file(folder / "data/x.arrow", std::string("ARROW1\0", 7));
    write_file(folder / "data/y.csv", std::string("PK\3\4\0", 5));
    write_file(folder / "data/z.tar.gz", "text");
    CHECK(problem({folder / "data"}) == (folder / "data").string() +
                                            ": contains no files of text, but 3 other files; " +
                                            (folder / "data/x.arrow").string() +
                                            ": .arrow is not supported; use plain text or JSON Lines, "
                                            "optionally .gz or .zst, or folders of "
                                            "them");
    CHECK_THAT(problem({folder / "clone", folder / "data/y.csv"}),
               Contains("y.csv: is a zip file, which is not"));
    CHECK(read(Corpus({folder / "clone", folder / "data"})) == "first;second;third;");
    const Logged logged;
    (void)Corpus({folder / "clone", folder / "data"});
    CHECK_THAT(logged.text(), Contains("skipped 4 files, not text by the name or the first bytes: ") &&
                                  Contains("x.arrow, ") && Contains("y.csv, ") && Contains("z.tar.gz"));
}

TEST_CASE("corpus: UTF-16 and UTF-32 in a folder are text, however short, and programs are not") {
    const TemporaryFolder folder;
    using namespace std::string_literals;
    write_file(folder / "a.txt", "text");
    for (const auto& [content, name] : {std::pair("h\0i\0"s, "UTF-16LE"s),
                                        {"\0h\0i"s, "UTF-16BE"s},
                                        {"h\0\0\0i\0\0\0"s, "UTF-32LE"s},
                                        {"\0\0\0h\0\0\0i"s, "UTF-32BE"s}}) {
        write_file(folder / "b.txt", content);
        CHECK_THAT(problem({folder.path()}), Contains("b.txt: is not text, or it is " + name));
    }
    for (const std::string& content : {"\xFF\xFEh\0"s, "\xFE\xFF\0h"s, "\xFF\xFE\0\0h\0\0\0"s}) {
        write_file(folder / "b.txt", content);
        CHECK_THAT(problem({folder.path()}), Contains("according to its byte order mark"));
    }
    for (const std::string& content : {"\0asm\1\0\0\0\1\x0B\2\x60"s, "\1\0\0\0\0\0\0\0"s, "text\0"s}) {
        write_file(folder / "b.txt", content);
        CHECK(documents_of(Corpus({folder.path()})) == Strings{"text"});
    }
}

TEST_CASE("corpus: bad input") {
    const TemporaryFolder folder;
    const std::string at = folder.path().string();
    std::filesystem::create_directories(folder / "none");
    write_file(folder / "empty.txt", "");
    write_file(folder / "a.txt.bz2", "x");
    write_file(folder / "a.parquet", "x");
    write_file(folder / "binary.txt", std::string("a\0b", 3));
    write_file(folder / "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n");
    write_file(folder / "cut.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"a\n");
    write_file(folder / "other.jsonl", "[1]\n");
    write_file(folder / "bad.json", "[{\"text\": \"a\"}, {\"content\": \"b\"}]");
    const std::string lines =
        ". With bad_lines = \"skip\" (in a deck, training.bad_lines) such lines are left out";
    CHECK(problem({folder / "absent.txt"}) == at + "/absent.txt: this file does not exist");
    CHECK(problem({folder / "none"}) == at + "/none: contains no files");
    CHECK(problem({folder / "empty.txt"}) == at + "/empty.txt: is empty, there is no text to read");
    CHECK(problem({folder / "a.txt.bz2"}) ==
          at + "/a.txt.bz2: .bz2 is not supported, only .gz and .zst are; decompress it first");
    CHECK(problem({folder / "a.parquet"}) == at + "/a.parquet: does not begin as Parquet files do");
    write_file(folder / "a.parquet.zst", "x");
    CHECK_THAT(problem({folder / "a.parquet.zst"}),
               Contains("a.parquet.zst: does not begin as Parquet files do"));
    CHECK(problem({folder / "binary.txt"}) ==
          at + "/binary.txt: is not text, or it is UTF-16LE without a byte order mark (convert it with iconv "
               "-f UTF-16LE -t UTF-8)");
    CHECK(problem({folder / "bad.jsonl"}) == at + "/bad.jsonl: line 2: text must be a string, is 5" + lines);
    CHECK_THAT(problem({folder / "cut.jsonl"}), Contains("cut.jsonl: line 3: not valid JSON"));
    CHECK(problem({folder / "other.jsonl"}) ==
          at + "/other.jsonl: line 1: the top level must be an object, is an array" + lines);
    CHECK(problem({folder / "bad.json"}) ==
          at + "/bad.json: [1]: has no field \"text\", only \"content\"; --field content (in a deck, "
               "training.text_field) reads that one. With bad_lines = \"skip\" (in a deck, "
               "training.bad_lines) such elements are left out");
}

TEST_CASE("corpus: compressed files of all kinds, also of several members") {
    const TemporaryFolder folder;
    write_file(folder / "a.txt", "plain é\n");
    write_file(folder / "b.txt", "more\n");
    write_file(folder / "c.json", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    write_file(folder / "d.json", "[{\"text\": \"three\"},\n {\"text\": \"four\"}]\n");
    const Outcome packed = run_shell("cd " + folder.path().string() +
                                     " && gzip -c a.txt > x.txt.gz && gzip -c b.txt >> x.txt.gz && "
                                     "head -c 512 /dev/zero >> x.txt.gz && gzip -c c.json > c.json.gz && "
                                     "gzip -c d.json > D.JSON.GZ");
    REQUIRE(packed.exit_code == 0);
    CHECK(documents_of(Corpus({folder / "x.txt.gz"})) == Strings{"plain é\nmore\n"});
    CHECK(documents_of(Corpus({folder / "c.json.gz", folder / "D.JSON.GZ"})) ==
          Strings{"one", "two", "three", "four"});
    // under a name without .gz
    for (const char* name : {"c.jsonl", "c.json", "part-00000"}) {
        fs::copy_file(folder / "c.json.gz", folder / name, fs::copy_options::overwrite_existing);
        CHECK(documents_of(Corpus({folder / name})) == Strings{"one", "two"});
    }
}

TEST_CASE("corpus: JSON arrays, however they are formatted") {
    const TemporaryFolder folder;
    const auto texts = [&](const std::string& json) {
        write_file(folder / "a.json", json);
        return documents_of(Corpus({folder / "a.json"}));
    };
    CHECK(texts("[]").empty());
    CHECK(texts("[{\"text\":\"}]\\\"[,{\"}]") == Strings{"}]\"[,{"});
    CHECK(texts("\n[\n  {\n    \"id\": [1, {\"a\": \"]\"}],\r\n    \"text\": \"a\\nb\"\n  }\n,\n{\"text\": "
                "\"c\"}\n]\n\n") == Strings{"a\nb", "c"});
    const auto wrong = [&](const std::string& json) {
        write_file(folder / "a.json", json);
        const std::string message = problem({folder / "a.json"}), place = (folder / "a.json").string() + ": ";
        return message.starts_with(place) ? message.substr(place.size()) : message;
    };
    CHECK(wrong("[") ==
          "not valid JSON: the file ends in or after element [0], before the array's closing ]");
    CHECK(wrong("[{\"text\": \"a\"}") ==
          "not valid JSON: the file ends in or after element [0], before the array's closing ]");
    CHECK(wrong("[{\"text\": \"a\"}, {\"text\": ") ==
          "not valid JSON: the file ends in or after element [1], before the array's closing ]");
    CHECK(wrong("[{\"text\": \"a\"} {\"text\": \"b\"}]") ==
          "not valid JSON: there must be one comma before element [1]");
    CHECK(wrong("[{\"text\": \"a\"},]") == "not valid JSON: there must be one comma before element [1]");
    CHECK(wrong("[,{\"text\": \"a\"}]") == "not valid JSON: there must be nothing before element [0]");
    CHECK(wrong("[{\"text\": \"a\"}] x") == "not valid JSON: there is more text after the array");
    CHECK_THAT(wrong("[{\"text\": \"a\"}, 5]"),
               Catch::StartsWith("[1]: the top level must be an object, is 5. With bad_lines = \"skip\""));
    CHECK_THAT(wrong("[{\"text\": \"a\"}, {\"text\" \"b\"}]"), Contains("[1]: not valid JSON"));
}

TEST_CASE("corpus: blocks may end anywhere, nothing is lost, and reading can continue after any of them") {
    const TemporaryFolder folder;
    std::string words, json, array = "[\n";
    Strings texts;
    for (int i = 0; words.size() < (5 << 20); ++i) words += "Line " + std::to_string(i) + " é\xff of\nit ";
    for (int i = 0; json.size() < (5 << 20); ++i) {
        texts.push_back("document " + std::to_string(i) + std::string(1000, 'y'));
        json += "{\"text\": \"" + texts.back() + "\"}\n";
        array += (i ? ",\n" : "") + std::string("{\"text\":\n \"") + texts.back() + "\"}";
    }
    write_file(folder / "a.txt", words);
    write_file(folder / "b.jsonl", json);
    write_file(folder / "c.json", array + "]");
    write_file(folder / "d.txt", "the end");
    const Corpus corpus({folder.path()});
    const Strings all = documents_of(corpus);
    REQUIRE(all.size() == 2 * texts.size() + 2);
    CHECK((all[texts.size()] == texts.back()));
    struct Seen {
        std::string text;  // of all passages, in order
        CorpusPosition next;
        CorpusReport report;
    };
    const auto read = [&](const Corpus::Options& options) {
        std::vector<Seen> blocks(1);
        const CorpusReport report = corpus.read_blocks(
            [&](const Corpus::Block& block) {
                blocks.back().next = block.next;
                blocks.back().report = block.report;
                for (const Passage& passage : block.passages) blocks.back().text += passage.text();
                blocks.emplace_back();
            },
            options);
        blocks.back().report = report;
        return blocks;
    };
    const auto whole = read({});
    REQUIRE(whole.size() == 2);
    const auto blocks = read({.block_bytes = 1});
    REQUIRE(blocks.size() > 10);
    CHECK(blocks.back().report.replaced == whole.back().report.replaced);
    CHECK(blocks.back().report.replaced > 100000);
    CHECK(blocks.back().report.text_bytes == whole.back().report.text_bytes);
    // the remaining text from the end of each block on
    for (size_t b = 0; b + 1 < blocks.size(); b += 2) {
        std::string before, after;
        for (size_t i = 0; i <= b; ++i) before += blocks[i].text;
        const auto rest = read({.from = blocks[b].next, .report = blocks[b].report});
        for (const Seen& block : rest) after += block.text;
        CHECK((before + after == whole[0].text));
        CHECK(rest.back().report.replaced == whole.back().report.replaced);
        CHECK(rest.back().report.text_bytes == whole.back().report.text_bytes);
    }
    // numbers of lines and elements are also right after a block
    write_file(folder / "b.jsonl", json + "{}\n");
    CHECK_THROWS_WITH(
        corpus.read_blocks(
            [](const Corpus::Block& block) {
                for (const Passage& passage : block.passages)
                    if (passage.json_lines) each_json_text(passage, [](std::string_view) {});
            },
            {.block_bytes = 1}),
        Contains("b.jsonl: line " + std::to_string(texts.size() + 1) + ": has no field \"text\""));
    write_file(folder / "b.jsonl", json);
    write_file(folder / "c.json", array + ", {}]");
    CHECK_THROWS_WITH(documents_of(corpus),
                      Contains("c.json: [" + std::to_string(texts.size()) + "]: has no field \"text\""));
}

TEST_CASE("corpus: whole documents on request") {
    const TemporaryFolder folder;
    std::string words;
    while (words.size() < (4 << 20)) words += "some words\n";
    write_file(folder / "a.txt", words);
    int blocks = 0;
    Corpus({folder / "a.txt"})
        .read_blocks(
            [&](const Corpus::Block& block) {
                ++blocks;
                for (const Passage& passage : block.passages) CHECK(passage.document.size() == words.size());
            },
            {.block_bytes = 1 << 20, .whole_documents = true});
    CHECK(blocks == 1);
}

TEST_CASE("corpus: other encodings") {
    const TemporaryFolder folder;
    using namespace std::string_literals;
    const std::string at = folder.path().string();
    write_file(folder / "a.txt", "\xFF\xFE"s + "h\0i\0"s);
    write_file(folder / "b.txt", "\xFE\xFF"s + "\0h\0i"s);
    write_file(folder / "c.txt", "\xFF\xFE\0\0h\0\0\0"s);
    CHECK(
        problem({folder / "a.txt"}) ==
        at + "/a.txt: is UTF-16, according to its byte order mark; convert it with iconv -f UTF-16 -t UTF-8");
    CHECK_THAT(problem({folder / "b.txt"}), Contains("b.txt: is UTF-16"));
    CHECK_THAT(problem({folder / "c.txt"}), Contains("c.txt: is UTF-32"));
    // without a byte-order mark, recognised by the NUL bytes of ASCII characters
    write_file(folder / "a.txt", "h\0i\0"s);
    CHECK_THAT(problem({folder / "a.txt"}), Contains("UTF-16LE without a byte order mark"));
    write_file(folder / "a.txt", "\0h\0i"s);
    CHECK_THAT(problem({folder / "a.txt"}), Contains("UTF-16BE without a byte order mark"));
    write_file(folder / "a.txt", "h\0\0\0i\0\0\0"s);
    CHECK_THAT(problem({folder / "a.txt"}), Contains("UTF-32LE without a byte order mark"));
    write_file(folder / "a.txt", "\0\0\0h\0\0\0i"s);
    CHECK_THAT(problem({folder / "a.txt"}), Contains("UTF-32BE without a byte order mark"));
    write_file(folder / "a.txt", "caf\u00e9\nas\nh\0i\0"s);
    CHECK(problem({folder / "a.txt"}) ==
          at + "/a.txt: contains NUL bytes, the first at line 3, byte 11: it is not text, or it is UTF-16 "
               "from there on (convert it with iconv -f UTF-16 -t UTF-8)");
}

TEST_CASE("corpus: text that is not UTF-8 is reported with its place and likely encoding") {
    const TemporaryFolder folder;
    using namespace std::string_literals;
    const std::string at = folder.path().string();
    const auto warning = [&](const std::vector<std::filesystem::path>& inputs) {
        return join(Corpus(inputs).read([](const std::vector<Passage>&) {}).warnings(), "\n");
    };
    const auto of = [&](const std::string& name, const std::string& content) {
        write_file(folder / name, content);
        return warning({folder / name});
    };
    CHECK(of("utf8.txt", "caf\u00e9, \uFFFD").empty());
    const std::string convert =
        "it looks like Latin-1 or Windows-1252: convert it with iconv -f WINDOWS-1252 -t UTF-8";
    CHECK(of("latin.txt", "caf\xe9, na\xefve, 5 \x80") ==
          "3 invalid bytes or sequences became U+FFFD: " + at +
              "/latin.txt is not UTF-8, first at line 1, byte 4; " + convert);
    CHECK(of("mixed.txt",
             "\xEF\xBB\xBF"
             "caf\u00e9\n\ncaf\xe9 na\xefve\n") == "2 invalid bytes or sequences became U+FFFD: " + at +
                                                       "/mixed.txt is not UTF-8, first at line 3, byte 14; "
                                                       "it is UTF-8 up to there and looks like Latin-1 or "
                                                       "Windows-1252 from there on: convert that part with "
                                                       "tail -c +14 | iconv -f WINDOWS-1252 -t UTF-8");
    CHECK_THAT(
        of("cesu.txt", "\xED\xA0\xBD\xED\xB8\x80 caf\u00e9"),
        Contains("6 invalid bytes or sequences became U+FFFD: " + at +
                 "/cesu.txt is not UTF-8, first at line "
                 "1, byte 1; it looks like CESU-8, which Java and old MySQL write: convert it with python3"));
    CHECK_THAT(of("halves.txt", "\xED\xA0\xBD \xED\xB8\x80"), !Contains("CESU-8"));
    CHECK(of("damaged.txt", "caf\u00e9 caf\xe9 caf\u00e9") ==
          "1 invalid bytes or sequences became U+FFFD: " + at +
              "/damaged.txt is not UTF-8, first at line 1, byte 10");
    // after the beginning, which is checked before everything else
    std::string many, wide;
    for (int i = 0; i < 1000; ++i) many += "caf\u00e9 au lait\n", wide += "h\0i\0 \0\n\0"s;
    CHECK(of("marked.txt", many + "\xFF\xFE" + wide) ==
          "2 invalid bytes or sequences became U+FFFD and 4,000 NUL bytes were kept: " + at +
              "/marked.txt is not UTF-8, first at line 1001, byte 14001; from there on it looks like UTF-16: "
              "convert that "
              "part with tail -c +14001 | iconv -f UTF-16 -t UTF-8");
    CHECK(of("unmarked.txt", many + wide) ==
          "4,000 NUL bytes were kept: " + at +
              "/unmarked.txt is not UTF-8, first at line 1001, byte 14002; UTF-16 without a byte order mark "
              "seems to begin near there (iconv -f UTF-16LE -t UTF-8)");
    CHECK(of("nul.txt", many + "\0"s + many) ==
          "1 NUL bytes were kept: " + at + "/nul.txt is not UTF-8, first at line 1001, byte 14001");
    // the place is also right if the file is read in many pieces
    std::string megabytes;
    while (megabytes.size() < (9 << 20)) megabytes += many;
    CHECK_THAT(of("large.txt", megabytes + "caf\xe9" + megabytes),
               Contains(fmt::format("large.txt is not UTF-8, first at line {}, byte {}",
                                    megabytes.size() / 14 + 1, megabytes.size() + 4)));
    CHECK(warning({folder / "damaged.txt", folder / "utf8.txt", folder / "latin.txt"}) ==
          "4 invalid bytes or sequences became U+FFFD: 2 files are not UTF-8; the worst is " + at +
              "/latin.txt (3), first at line 1, byte 4; " + convert);
}

TEST_CASE("corpus: a line or an element of JSON longer than 64 MiB is refused before it fills the memory") {
    const TemporaryFolder folder;
    const std::string text(65 << 20, 'a'), object = "{\"text\": \"" + text + "\"}";
    const auto refusal = [&](const std::string& name, const std::string& content) {
        const std::string path = (folder / name).string();
        write_file(path, content);
        try {
            const Corpus corpus({path});
            corpus.read([](const std::vector<Passage>& passages) {
                for (const Passage& passage : passages)
                    if (passage.json_lines) each_json_text(passage, [](std::string_view) {});
            });
        } catch (const ConfigError& error) {
            return std::string(error.what()).substr(path.size());
        }
        return std::string("nothing");
    };
    const std::string rule = " longer than 64 MiB, the maximum for one JSON value; split it";
    const auto begins = [&](const std::string& place) { return Catch::StartsWith(place + rule + ". With "); };
    const std::string good = "{\"text\": \"a\"}";
    CHECK_THAT(refusal("a.jsonl", good + "\n" + object), begins(": line 2: is"));
    CHECK_THAT(refusal("b.jsonl", good + "\n" + object + "\n" + good + "\n"), begins(": line 2: is"));
    CHECK_THAT(refusal("a.json", "[" + good + ", " + object + "]"), begins(": [1]: is"));
    CHECK_THAT(refusal("b.json", "{\n\"text\": \"" + text + "\"}"), begins(": is"));
    CHECK_THAT(refusal("c.json", object), begins(": line 1: is"));
    CHECK(refusal("part-0", object) == ": line 1 is" + rule);
    CHECK(refusal("d.json", "[" + good + "]" + std::string(65 << 20, ' ')) == "nothing");
}

TEST_CASE("corpus: a line that is too long is left out if that is asked for") {
    const TemporaryFolder folder;
    const std::string long_line = "{\"text\": \"" + std::string(70 << 20, 'a') + "\"}";
    const auto read = [&](const std::string& name, const std::string& content, Corpus::Options options = {}) {
        write_file(folder / name, content);
        Strings texts;
        JsonFlaws flaws;
        CorpusPosition last;
        const CorpusReport report =
            Corpus({folder / name}, BadLines::skip)
                .read_blocks(
                    [&](const Corpus::Block& block) {
                        if (block.next.file == 0) last = block.next;
                        for (const Passage& passage : block.passages)
                            flaws.add(each_json_text(
                                passage, [&](std::string_view text) { texts.emplace_back(text); }));
                    },
                    options);
        flaws.add(report.json);
        return std::tuple(texts, flaws, last);
    };
    for (const char* name : {"a.jsonl", "a.json"}) {
        const std::string content =
            "{\"text\": \"a\"}\n" + long_line + "\n{\"text\": \"b\"}\n{\"text\": 5}\n{\"text\": \"c\"}";
        const auto [texts, flaws, last] = read(name, content);
        CHECK(texts == Strings{"a", "b", "c"});
        CHECK(flaws.bad_lines == 2);
        CHECK_THAT(flaws.first_bad, Contains(": line 2: is longer than 64 MiB"));
        // reading continues after it
        CHECK(last.number == 3);
        CHECK(last.offset == int64_t(content.find("\n{\"text\": \"b\"")) + 1);
        const auto [rest, later, end] = read(name, content, {.from = last});
        CHECK(rest == Strings{"b", "c"});
        CHECK_THAT(later.first_bad, Contains(": line 4: text must be a string, is 5"));
    }
    const auto [texts, flaws, last] = read("b.jsonl", "{\"text\": \"a\"}\n" + long_line);
    CHECK(texts == Strings{"a"});
    CHECK(flaws.bad_lines == 1);
    const auto [none, object, end] = read("c.json", "{\n" + long_line.substr(1));
    CHECK(none.empty());
    CHECK(object.bad_lines == 1);
}
