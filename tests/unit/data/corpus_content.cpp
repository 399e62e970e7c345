// SPDX-License-Identifier: Apache-2.0
// What a corpus makes of the content of its files: JSON with flaws, other formats, names that say something
// else.
#include "coeus/base/error.hpp"
#include "coeus/data/corpus.hpp"
#include "corpus_documents.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;
using Strings = std::vector<std::string>;
namespace fs = std::filesystem;

TEST_CASE("corpus: the field text is read, and no other field is judged") {
    const TemporaryFolder folder;
    const auto read = [&](const std::string& line) {
        write_file(folder / "a.jsonl", line + "\n");
        return documents_of(Corpus({folder / "a.jsonl"}));
    };
    for (const char* other :
         {"NaN", "-Infinity", "nan", "01", "+1", "0x1F", "1e999", "'x'", "\"\\q\"", "\"\t\"",
          "[NaN, {\"text\": NaN}]", "{\"b\": \"}\\\"{\", \"text\": \"no\"}", "undefined"}) {
        CAPTURE(other);
        CHECK(read(fmt::format("{{\"text\": \"yes\", \"other\": {}}}", other)) == Strings{"yes"});
        CHECK(read(fmt::format("{{\"other\":{},\"text\":\"yes\" }}", other)) == Strings{"yes"});
    }
    CHECK(read("{\"a\":1,\"a\":2,\"text\":\"yes\"}") == Strings{"yes"});
    CHECK(read("{\"te\\u0078t\":\"yes\"}") == Strings{"yes"});
    CHECK(read(R"({"text":"\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\ude00"})") ==
          Strings{"\"\\/\b\f\n\r\tA\u00e9\u20AC\U0001F600"});
    // an array, and one object
    write_file(folder / "b.json", "[{\"score\": NaN, \"text\": \"a\"}, {\"text\": \"b\"}]");
    CHECK(documents_of(Corpus({folder / "b.json"})) == Strings{"a", "b"});
    write_file(folder / "c.json", "{\n\"score\": NaN,\n\"text\": \"a\"}");
    CHECK(documents_of(Corpus({folder / "c.json"})) == Strings{"a"});
    write_file(folder / "d.json", "{\"score\": NaN, \"text\": \"a\"}\n{\"text\": \"b\"}\n");
    CHECK(documents_of(Corpus({folder / "d.json"})) == Strings{"a", "b"});
    // files that were joined have a byte order mark in the middle
    CHECK(read("{\"text\": \"a\"}\n\uFEFF {\"text\": \"b\"}") == Strings{"a", "b"});

    const auto error = [&](const std::string& line) {
        write_file(folder / "a.jsonl", line + "\n");
        const std::string all = problem({folder / "a.jsonl"}),
                          begin = (folder / "a.jsonl").string() + ": line 1: ";
        CHECK_THAT(all, StartsWith(begin) &&
                            EndsWith(". With bad_lines = \"skip\" (in a deck, training.bad_lines) such "
                                     "lines are left out"));
        return all.substr(begin.size(), all.find(". With bad_lines") - begin.size());
    };
    CHECK(error("{\"text\": \"a\", \"text\": \"b\"}") == "the key \"text\" appears twice in one object");
    CHECK(error("{\"text\": null}") == "text must be a string, is null");
    CHECK(error("{\"a\": NaN}") ==
          "has no field \"text\", only \"a\"; --field NAME (in a deck, training.text_field) reads the field "
          "of that "
          "name");
    CHECK(error("{\"id\": \"short\", \"body\": \"the longest\", \"n\": 5}") ==
          "has no field \"text\", only \"id\", \"body\", \"n\"; --field body (in a deck, "
          "training.text_field) reads "
          "that one");
    CHECK(error("{\"text\": \"a\"") == "not valid JSON: a comma or } must follow a value, at byte 13");
    CHECK(error("{\"text\": \"a") == "not valid JSON: the text ends within a value that begins, at byte 10");
    CHECK(error("{\"text\": \"a\"} x") == "not valid JSON: there is more text after the object, at byte 15");
    CHECK(error("{\"text\" \"a\"}") == "not valid JSON: a colon must follow the name of a field, at byte 9");
    CHECK(error("{\"a\": , \"text\": \"a\"}") == "not valid JSON: a value must follow, at byte 7");
    CHECK(error("{\"text\": \uFEFF\"a\"}") == "not valid JSON: a byte order mark is not a value, at byte 10");
    CHECK(error("{text: \"a\"}") == "not valid JSON: the name of a field must be in quotes, at byte 2");
    for (const char* text : {"\\x41", "\\u12", "\\u12G4", "\t", "\\ud83"}) {
        CAPTURE(text);
        CHECK_THAT(error(fmt::format("{{\"text\": \"{}\"}}", text)),
                   Contains("text has an escape or a control character that JSON does not have, at byte 10"));
    }
}

TEST_CASE("corpus: half characters become U+FFFD and are counted") {
    const TemporaryFolder folder;
    const std::string bad = "\uFFFD";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"\\ud83d", bad},
        {"cut \\ud83d", "cut " + bad},
        {"\\ude00 back", bad + " back"},
        {"\\ud83d\\u0041", bad + "A"},
        {"\\ude00\\ud83d", bad + bad},
        {"\\ud83d\\ud83d\\ude00", bad + "\U0001F600"},
        {"\\ud83dx", bad + "x"},
        {"\\ud83d\\n", bad + "\n"},
    };
    std::string lines;
    int64_t halves = 0;
    Strings wanted;
    for (const auto& [escaped, text] : cases) {
        lines += fmt::format("{{\"text\": \"{}\"}}\n", escaped);
        wanted.push_back(text);
        for (size_t at = 0; (at = text.find(bad, at)) != std::string::npos; ++at) ++halves;
    }
    write_file(folder / "a.jsonl", lines);
    CHECK(documents_of(Corpus({folder / "a.jsonl"})) == wanted);
    JsonFlaws flaws;
    Corpus({folder / "a.jsonl"}).read([&](const std::vector<Passage>& passages) {
        for (const Passage& passage : passages) flaws.add(each_json_text(passage, [](std::string_view) {}));
    });
    CHECK(flaws.lone_surrogates == halves);
    CHECK(flaws.bad_lines == 0);
    CorpusReport report;
    report.json = flaws;
    CHECK(report.warnings() == Strings{"9 escapes of half a character, such as \\ud83d, became U+FFFD"});
    // one object over several lines
    write_file(folder / "b.json", "{\n\"text\": \"\\ud83d\"}");
    CHECK(Corpus({folder / "b.json"}).read([](const std::vector<Passage>&) {}).json.lone_surrogates == 1);
}

TEST_CASE("corpus: bad lines are left out if that is asked for") {
    const TemporaryFolder folder;
    const auto read = [&](const fs::path& file, JsonFlaws& flaws) {
        Strings all;
        Corpus({file}, BadLines::skip).read([&](const std::vector<Passage>& passages) {
            for (const Passage& passage : passages)
                flaws.add(each_json_text(passage, [&](std::string_view text) { all.emplace_back(text); }));
        });
        return all;
    };
    write_file(folder / "a.jsonl",
               "{\"text\": \"a\"}\n{\"text\": \n{\"text\": 5}\n\n[1]\n{\"other\": \"x\"}\n{\"text\": "
               "\"b\"}\n{\"text");
    JsonFlaws lines;
    CHECK(read(folder / "a.jsonl", lines) == Strings{"a", "b"});
    CHECK(lines.bad_lines == 5);
    CHECK(lines.first_bad ==
          (folder / "a.jsonl").string() +
              ": line 2: not valid JSON: the text ends within a value that begins, at byte 9");
    CorpusReport report;
    report.json = lines;
    CHECK(report.warnings() ==
          Strings{"5 lines without a usable text were left out. The first: " + lines.first_bad});
    write_file(folder / "b.json", "[{\"text\": \"a\"}, 5, {\"text\": \"b\"}]");
    JsonFlaws elements;
    CHECK(read(folder / "b.json", elements) == Strings{"a", "b"});
    CHECK(elements.bad_lines == 1);
    CHECK(elements.first_bad ==
          (folder / "b.json").string() + ": [1]: the top level must be an object, is 5");
    CHECK(Corpus({folder / "a.jsonl"}).content_hash() !=
          Corpus({folder / "a.jsonl"}, BadLines::skip).content_hash());
}

TEST_CASE("corpus: the content decides where the name says nothing") {
    const TemporaryFolder folder;
    const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
    for (const char* name : {"part-00000", "a.jl", "a.jsonl.1", "a.txt", "a.log"}) {
        CAPTURE(name);
        write_file(folder / name, lines);
        CHECK(documents_of(Corpus({folder / name})) == Strings{"a", "b"});
        write_file(folder / name, "\xEF\xBB\xBF" + lines);
        CHECK(documents_of(Corpus({folder / name})) == Strings{"a", "b"});
        write_file(folder / name, "{\"text\": \"a\"}");
        CHECK(documents_of(Corpus({folder / name})) == Strings{"a"});
        // longer than a piece that is read at a time
        const std::string text(100000, 'x');
        write_file(folder / name, "{\"text\": \"" + text + "\"}\n" + lines);
        CHECK(documents_of(Corpus({folder / name})) == Strings{text, "a", "b"});
        // other text, and objects without the field
        for (const char* other :
             {"{ int x; }\n{ int y; }\n", "{\"text\": \"a\"}\nand more\n", "text\n{\"text\": \"a\"}\n",
              "{\"body\": \"a\"}\n{\"body\": \"b\"}\n", "{\"a\": {\n\"text\": \"b\"}}\n", "{\"id\": 1}\n",
              "[text](a.html), {\"text\": 1}\n", "[[1], {\"a\": {\"text\": \"b\"}}]\n", "{}\n{}\n"}) {
            CAPTURE(other);
            write_file(folder / name, other);
            CHECK(documents_of(Corpus({folder / name})) == Strings{other});
        }
    }
    using namespace std::string_literals;
    for (const auto& [begin, what] :
         std::vector<std::pair<std::string, std::string>>{{"BZh91AY&SY", "bzip2 data"},
                                                          {"\xFD"
                                                           "7zXZ\0"s,
                                                           "xz data"},
                                                          {"PK\3\4", "a zip file"},
                                                          {"ARROW1", "an Arrow file"},
                                                          {"\x89HDF\r\n\x1A\n", "an HDF5 file"},
                                                          {"\x93NUMPY", "a NumPy file"},
                                                          {"%PDF-1.5", "a PDF file"},
                                                          {"\x89PNG\r\n\x1A\n", "a PNG picture"}}) {
        write_file(folder / "a.jsonl", begin + "\1\2\3");
        CHECK(problem({folder / "a.jsonl"}) == (folder / "a.jsonl").string() + ": is " + what +
                                                   ", which is not supported; use plain text or JSON Lines, "
                                                   "optionally .gz or .zst, or folders of them");
    }
    // a Parquet file, under any name: read by Arrow, or refused with the command that converts it
    write_file(folder / "a.jsonl", "PAR1\1\2\3");
    CHECK_THAT(problem({folder / "a.jsonl"}),
               Contains("a.jsonl: cannot be read as Parquet: ") ||
                   (Contains("a.jsonl: this program was built without Arrow (COEUS_ARROW)") &&
                    Contains("a.jsonl text | coeus tokenize - --tokenizer FOLDER --output FILE.h5")));
    for (const char* word : {"BZh is a word", "PK and so on", "Rar!"}) {
        write_file(folder / "a.txt", word);
        CHECK(documents_of(Corpus({folder / "a.txt"})) == Strings{word});
    }
}

TEST_CASE("corpus: bad values do not change the form of a file") {
    const TemporaryFolder folder;
    const std::string good = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
    const auto skipping = [&](const char* name, const std::string& content) {
        write_file(folder / name, content);
        Strings texts;
        JsonFlaws flaws;
        const CorpusReport report =
            Corpus({folder / name}, BadLines::skip).read([&](const std::vector<Passage>& passages) {
                for (const Passage& passage : passages) {
                    if (!passage.json_lines) texts.emplace_back(passage.text());
                    if (passage.json_lines)
                        flaws.add(each_json_text(passage,
                                                 [&](std::string_view text) { texts.emplace_back(text); }));
                }
            });
        flaws.add(report.json);
        return std::pair(texts, flaws.bad_lines);
    };
    const std::pair<Strings, int64_t> one_left_out = {{"a", "b"}, 1};
    for (const char* name : {"part-00000", "a.json"})
        for (const char* bad :
             {"{\"text\": null, \"id\": 1}\n", "{\"id\": 1}\n", "{\"id\": 1, \"text\": \"cut sho\n",
              "{\"id\": 1, \"te\n", "{\"text\": \"a\", \"text\": \"b\"}\n", "{\n"}) {
            CAPTURE(name, bad);
            if (std::string(bad) == "{\n" && std::string(name) != "a.json") continue;
            CHECK(skipping(name, bad + good) == one_left_out);
            CHECK_THAT(problem({folder / name}), Contains(": line 1: "));
        }
    // an array, and an object over several lines
    for (const char* name : {"part-00000", "a.txt", "a.json"}) {
        CAPTURE(name);
        CHECK(skipping(name, "[{\"text\": null}, {\"text\": \"a\"},\n{\"text\": \"b\"}]") == one_left_out);
        CHECK(skipping(name, " [\n {\n\"id\": 1,\n\"text\": \"a\"},\n{\"text\": \"b\"}]\n") ==
              std::pair(Strings{"a", "b"}, int64_t(0)));
        CHECK(skipping(name, "{\n\"id\": [1,\n{}],\n\"text\": \"a\"\n}\n") ==
              std::pair(Strings{"a"}, int64_t(0)));
        CHECK(skipping(name, "{\"id\": [\n{\"a\": 1}\n], \"text\": \"a\"}") ==
              std::pair(Strings{"a"}, int64_t(0)));
        CHECK(skipping(name, "{\n\"text\": null,\n\"id\": 1}\n") == std::pair(Strings{}, int64_t(1)));
        CHECK_THAT(problem({folder / name}), Contains(": text must be a string, is null. With bad_lines"));
        CHECK(skipping(name, "{\n\"text\": \"cut sho") == std::pair(Strings{}, int64_t(1)));
    }
}

TEST_CASE("corpus: a long first line of a file without an ending is read to its end") {
    const TemporaryFolder folder;
    const std::string text(3 << 20, 'x');
    write_file(folder / "part-00000",
               "{\"id\": \"" + text + "\", \"text\": \"" + text + "\"}\n{\"text\": \"b\"}\n");
    CHECK((documents_of(Corpus({folder / "part-00000"})) == Strings{text, "b"}));
}

TEST_CASE("corpus: a file that is not packed, although its name says so, is read") {
    const TemporaryFolder folder;
    for (const char* name : {"a.jsonl.gz", "a.json.zst", "part-0.gz"}) {
        write_file(folder / name, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
        const Logged logged;
        CHECK(documents_of(Corpus({folder / name})) == Strings{"a", "b"});
        CHECK_THAT(logged.text(),
                   Contains(std::string(name) + " is not compressed, although the name says so: it is read"));
    }
}
