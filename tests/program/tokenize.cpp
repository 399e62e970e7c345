// SPDX-License-Identifier: Apache-2.0
// coeus tokenizer and coeus tokenize as a user runs them.
#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("program: train a tokenizer, tokenize, tokenize again") {
    const TemporaryFolder folder;
    const auto run = [&](const std::vector<std::string>& arguments) {
        return run_coeus(arguments, 0, {}, folder.path());
    };
    std::string text;
    for (int i = 0; i < 30; ++i) text += "The dog sat on the mat, the cat sat on the log.\n";
    write_file(folder / "text" / "a.txt", text);
    write_file(folder / "more.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \"the dog\"}\n");

    const Outcome trained =
        run({"tokenizer", "text", "--vocab_size", "270", "--output=tok", "--threads", "2"});
    CHECK(trained.exit_code == 0);
    CHECK_THAT(trained.output, Contains("tok: 270 tokens from 1.41 KiB of text ("));
    const Tokenizer tokenizer(folder / "tok");
    CHECK(tokenizer.vocab_size() == 270);

    const std::vector<std::string> command = {"tokenize", "text",     "more.jsonl", "--tokenizer",
                                              "tok",      "--output", "tokens.h5"};
    const Outcome first = run(command), second = run(command);
    CHECK(first.exit_code == 0);
    CHECK_THAT(first.output, Contains("tokens.h5: ") && Contains(" tokens in 3 documents, "));
    CHECK(second.exit_code == 0);
    // a different tokenizer replaces neither tokenizer nor token file
    const std::vector<std::string> other_tokenizer = {"tokenizer", "more.jsonl", "--vocab_size=264",
                                                      "--output=tok"};
    const std::string before = read_file(folder / "tok/tokenizer.json");
    const Outcome kept = run(other_tokenizer);
    CHECK(kept.exit_code == 2);
    CHECK(count_of("tok/tokenizer.json already exists; --force replaces it", kept.output) == 1);
    CHECK(read_file(folder / "tok/tokenizer.json") == before);
    const std::vector<std::string> other_text = {"tokenize", "text", "--tokenizer=tok", "--output=tokens.h5"};
    const Outcome refused = run(other_text);
    CHECK(refused.exit_code == 2);
    CHECK(count_of("tokens.h5 already exists, but was made from other text or with another tokenizer; "
                   "--force replaces it",
                   refused.output) == 1);
    write_file(folder / "tok2/tokenizer_config.json", "{}");
    CHECK(run({"tokenizer", "text", "--vocab_size=264", "--output=tok2"}).exit_code == 2);
    CHECK(run({"tokenizer", "text", "--vocab_size=264", "--output=tok2", "--force"}).exit_code == 0);
    CHECK(Tokenizer(folder / "tok2").vocab_size() == 264);
    CHECK_THAT(run(other_text + Arguments{"--force"}).output, Contains(" tokens in 1 document,"));
    CHECK(run(command + Arguments{"--force"}).exit_code == 0);
    CHECK_THAT(second.output, Contains("tokens.h5 is up to date: "));
    const TokenFile file(folder / "tokens.h5");
    std::vector<int32_t> ids(static_cast<size_t>(file.document_begin(1)));
    file.read(0, ids);
    CHECK(tokenizer.decode(ids) == "<|begin_of_text|>" + text + "<|end_of_text|>");

    // a file given twice is read once, with a message
    const Outcome twice = run({"tokenize", "more.jsonl", "text", "text/a.txt", "./more.jsonl", "--tokenizer",
                               "tok", "--output", "twice.h5"});
    CHECK(twice.exit_code == 0);
    CHECK_THAT(twice.output, Contains(" tokens in 3 documents, "));
    CHECK(count_of("2 files are given more than once, but read only once: text/a.txt (the same file as "
                   "text/a.txt), ...",
                   twice.output) == 1);
    CHECK(count_of(" - warning - ", twice.output) == 1);

    // a vocabulary larger than the pairs of the text allow
    const Outcome small = run({"tokenizer", "more.jsonl", "--vocab_size=9999", "--output", "tok3"});
    CHECK(small.exit_code == 0);
    CHECK_THAT(small.output, Contains("the corpus yields only "));
}

TEST_CASE("program: tokenizer and tokenize name what is wrong and end with exit code 2") {
    const TemporaryFolder folder;
    write_file(folder / "a.txt", "some text");
    const auto check = [&](const std::vector<std::string>& arguments, const std::string& message) {
        const Outcome outcome = run_coeus(arguments, 0, {}, folder.path());
        CHECK(outcome.exit_code == 2);
        CHECK_THAT(outcome.output, Contains(message));
    };
    check({"tokenizer", "--output", "x"},
          "coeus tokenizer needs a text file or folder; see coeus help tokenizer");
    check({"tokenizer", "a.txt"}, "coeus tokenizer needs --output");
    check({"tokenizer", "a.txt", "--output"}, "coeus tokenizer: --output needs a value");
    check({"tokenizer", "a.txt", "--output", "x", "--vocab_sise", "5"},
          "coeus tokenizer: unknown option --vocab_sise; did you mean --vocab_size?");
    check({"tokenizer", "a.txt", "--output", "x", "--vocab_size", "many"},
          "coeus tokenizer: --vocab_size must be a whole number of at least 1, but is \"many\"");
    check({"tokenizer", "a.txt", "--output", "x", "--vocab_size", "257"}, "--vocab_size must be from 258");
    check({"tokenizer", "a.txt", "--output", "x", "--output", "y"},
          "coeus tokenizer: --output is given twice");
    check({"tokenizer", "absent.txt", "--output", "x"}, "absent.txt: this file does not exist");
    check({"tokenizer", "/dev/null", "--output", "x"}, "/dev/null is a pipe or a device, not a file");
    check({"tokenize", "a.txt", "--output", "x.h5", "--tokenizer", "."}, "no tokenizer in this folder");
    check({"tokenize", "a.txt", "--output", "x.h5"}, "coeus tokenize needs --tokenizer");
    const Outcome help = run_coeus({"help", "tokenize"});
    CHECK(help.exit_code == 0);
    CHECK_THAT(help.output, Contains("coeus tokenize INPUT... --tokenizer FOLDER --output FILE.h5"));
}
