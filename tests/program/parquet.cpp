// SPDX-License-Identifier: Apache-2.0
// Parquet: a program that was built with Arrow reads it, with the ids of the same texts in JSON Lines.
// Another one names the command that converts it.
#include "coeus/data/token_file.hpp"
#include "program/python.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/skip.hpp"
#include "support/support.hpp"

#include <filesystem>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// Writes the same texts as Parquet of several kinds and as JSON Lines.
constexpr const char* parquet_script = R"(
import json, sys
import pyarrow as pa, pyarrow.parquet as q
texts = [f'text {i} "quoted" \\ \u00e9 \u6771\n\ttab' + 'x' * (i % 50) for i in range(3000)]
def write(name, array, **options):
    q.write_table(pa.table({'id': range(3000), 'other': ['no'] * 3000, 'text': array}), name, **options)
write('snappy.parquet', pa.array(texts), compression='snappy', row_group_size=700)
write('zstd_large.parquet', pa.array(texts, pa.large_string()), compression='zstd', use_dictionary=False)
write('dictionary.parquet', pa.array(texts).dictionary_encode(), compression='none')
write('view.parquet', pa.array(texts, pa.string_view()), data_page_version='2.0')
with open('same.jsonl', 'w') as lines:
    for text in texts: lines.write(json.dumps({'text': text}) + '\n')
q.write_table(pa.table({'text': [['a'], ['b']], 'meta': [{'x': 'a'}, {'x': 'b'}], 'n': [1, 2]}), 'nested.parquet')
q.write_table(pa.table({'text': ['a', None, 'b']}), 'null.parquet')
q.write_table(pa.table({'body': ['the cat', 'the dog']}), 'body.parquet')
open('cut.parquet', 'wb').write(open('snappy.parquet', 'rb').read()[:2000])
)";

// A folder with these files and a tokenizer; not made if there is no Python with pyarrow.
struct Tables {
    TemporaryFolder folder;
    std::string python = python_with("parquet");

    Tables() {
        if (python.empty()) return;
        write_file(folder / "write.py", parquet_script);
        const Outcome made = run_shell("cd '" + folder.path().string() + "' && '" + python + "' write.py");
        INFO(made.output);
        REQUIRE(made.exit_code == 0);
        write_file(folder / "t.txt", "the cat sat on the mat, the dog on the log\n");
        REQUIRE(run({"tokenizer", "t.txt", "--vocab_size=264", "--output=tok"}).exit_code == 0);
    }
    bool are_made() const {
        if (python.empty()) skip("there is no Python with pyarrow (build/venv-parquet)");
        return !python.empty();
    }
    Outcome run(const Arguments& arguments) const { return run_coeus(arguments, 0, {}, folder.path()); }
    Outcome tokens_of(const std::string& name, const Arguments& more = {}) const {
        return run(Arguments{"tokenize", name, "--tokenizer=tok",
                             "--output=" + fs::path(name).stem().string() + ".h5"} +
                   more);
    }
    // The program's message about Parquet if it was built without Arrow.
    std::string refusal_without_arrow() const {
        const Outcome tried = tokens_of("body.parquet", {"--field=body"});
        return tried.exit_code == 0 ? "" : tried.output;
    }
};

}  // namespace

TEST_CASE("program: Parquet has the tokens of the same texts in JSON Lines") {
    const Tables tables;
    if (!tables.are_made()) return;
    if (!tables.refusal_without_arrow().empty()) return skip("the program was built without Arrow");
    CHECK(TokenFile(tables.folder / "body.h5").num_documents() == 2);
    REQUIRE(tables.tokens_of("same.jsonl").exit_code == 0);
    for (const std::string name : {"snappy", "zstd_large", "dictionary", "view"}) {
        CAPTURE(name);
        REQUIRE(tables.tokens_of(name + ".parquet").exit_code == 0);
        CHECK(differing_arrays(tables.folder / (name + ".h5"), tables.folder / "same.h5").empty());
    }
    const auto refusal = [&](const std::string& name, const Arguments& more = {}) {
        const Outcome outcome = tables.tokens_of(name, more);
        CHECK(outcome.exit_code == 2);
        CHECK(count_of(" - error - ", outcome.output) == 1);
        return outcome.output;
    };
    const std::string fields = R"("meta" (struct<x: string>), "n" (int64))";
    CHECK_THAT(refusal("nested.parquet"), Contains(R"(nested.parquet: the field "text" is list<)") &&
                                              Contains("not text; its fields are ") && Contains(fields));
    CHECK_THAT(refusal("nested.parquet", {"--field=n"}), Contains(R"(the field "n" is int64, not text)"));
    CHECK_THAT(refusal("nested.parquet", {"--field=meta.x"}),
               Contains(R"(has no field "meta.x" at its top; its fields are )") && Contains(fields));
    CHECK_THAT(refusal("null.parquet"), Contains("null.parquet: line 2: text must be a string, is null"));
    CHECK_THAT(refusal("cut.parquet"), Contains("cut.parquet: cannot be read as Parquet: "));
    CHECK(tables.tokens_of("null.parquet", {"--bad_lines=skip"}).exit_code == 0);
    CHECK(TokenFile(tables.folder / "null.h5").num_documents() == 2);
}

TEST_CASE("program: without Arrow, the message about Parquet has a command that works") {
    const Tables tables;
    if (!tables.are_made()) return;
    const std::string message = tables.refusal_without_arrow();
    if (message.empty()) return skip("the program was built with Arrow");
    const size_t begin = message.find("python3 -c");
    REQUIRE(begin != std::string::npos);
    std::string command = message.substr(begin, message.find('\n', begin) - begin);
    const auto replace = [&](const std::string& what, const std::string& by) {
        REQUIRE(command.find(what) != std::string::npos);
        command.replace(command.find(what), what.size(), by);
    };
    replace("python3", "'" + tables.python + "'");
    replace("FOLDER", "tok");
    replace("FILE.h5", "piped.h5");
    replace("coeus tokenize", "'" + paths::program() + "' tokenize");
    const Outcome piped = run_shell("cd '" + tables.folder.path().string() + "' && " + command);
    INFO(piped.output);
    REQUIRE(piped.exit_code == 0);
    CHECK(TokenFile(tables.folder / "piped.h5").num_documents() == 2);
}
