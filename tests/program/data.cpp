// SPDX-License-Identifier: Apache-2.0
// Data as a user prepares it and looks at it: the standard input, fields, token files of other programs,
// tokens back to text, and the samples of a run.
#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <filesystem>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// A folder with a tokenizer, tok, of some words.
struct WithWords {
    TemporaryFolder folder;

    WithWords() {
        std::string text;
        for (int i = 0; i < 30; ++i) text += "The dog sat on the mat, the cat sat on the log.\n";
        write_file(folder / "a.txt", text);
        CHECK(run({"tokenizer", "a.txt", "--vocab_size", "272", "--special", "<|im_start|>",
                   "--special=<|im_end|>", "--output=tok"})
                  .exit_code == 0);
    }
    Outcome run(const Arguments& arguments) const { return run_coeus(arguments, 0, {}, folder.path()); }
    // With its standard input from a command of a shell.
    Outcome piped(const std::string& command, const Arguments& arguments) const {
        std::string line =
            "cd '" + folder.path().string() + "' && " + command + " | '" + paths::program() + "'";
        for (const std::string& argument : arguments) line += " '" + argument + "'";
        return run_shell(line);
    }
    std::string refusal(const Arguments& arguments) const {
        const Outcome outcome = run(arguments);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 2);
        return outcome.output;
    }
};

}  // namespace

TEST_CASE("program: text from the standard input becomes a token file, whole or not at all") {
    const WithWords words;
    write_file(
        words.folder / "x.jsonl",
        "{\"id\": \"1\", \"content\": \"the cat\"}\n{\"id\": \"2\", \"content\": \"<|im_start|>the dog\"}\n");
    const Arguments from_input = {"tokenize", "-", "--field=content", "--tokenizer=tok", "--output=piped.h5"};
    const Outcome piped = words.piped("cat x.jsonl", from_input);
    CHECK(piped.exit_code == 0);
    CHECK_THAT(piped.output, Contains("piped.h5: ") && Contains(" tokens in 2 documents"));
    CHECK_THAT(words.piped("cat x.jsonl", from_input).output, Contains("piped.h5 is up to date"));
    CHECK(words.run({"tokenize", "x.jsonl", "--field=content", "--tokenizer=tok", "--output=file.h5"})
              .exit_code == 0);
    CHECK(differing_arrays(words.folder / "piped.h5", words.folder / "file.h5").empty());

    // a line that is not usable leaves nothing
    const Outcome bad =
        words.piped("printf '{\"content\": \"a\"}\\n{\"content\": 5}\\n'",
                    {"tokenize", "-", "--field=content", "--tokenizer=tok", "--output=bad.h5"});
    CHECK(bad.exit_code == 2);
    CHECK_THAT(bad.output, Contains("the standard input: line 2: content must be a string, is 5"));
    const Outcome empty = words.piped(":", {"tokenize", "-", "--tokenizer=tok", "--output=bad.h5"});
    CHECK(empty.exit_code == 2);
    CHECK_THAT(empty.output, Contains("the standard input: is empty, there is no text to read"));
    for (const auto& entry : fs::directory_iterator(words.folder.path()))
        CHECK_THAT(entry.path().filename().string(), !Contains("bad.h5") && !Contains(".part"));

    CHECK(words
              .piped("printf 'the cat\\n'",
                     {"tokenize", "-", "--format=text", "--tokenizer=tok", "--output=text.h5"})
              .exit_code == 0);
    CHECK(TokenFile(words.folder / "text.h5").num_documents() == 1);
    CHECK_THAT(words.refusal({"tokenize", "-", "a.txt", "--tokenizer=tok", "--output=y.h5"}),
               Contains("-: the standard input must be the only INPUT, but there are 2"));
    CHECK_THAT(words.refusal({"tokenize", "a.txt", "--format=text", "--tokenizer=tok", "--output=y.h5"}),
               Contains("--format text: is for the standard input (INPUT is -)"));
    CHECK_THAT(words.refusal({"tokenize", "-", "--include=*.txt", "--tokenizer=tok", "--output=y.h5"}),
               Contains("--include: chooses files of folders, and - is the standard input"));
}

TEST_CASE("program: a token file becomes text again, and Megatron-LM's pair and back") {
    const WithWords words;
    write_file(
        words.folder / "x.jsonl",
        "{\"text\": \"the cat\"}\n{\"text\": \"<|im_start|>the dog<|im_end|>\"}\n{\"text\": \"a log\"}\n");
    CHECK(words.run({"tokenize", "x.jsonl", "--tokenizer=tok", "--output=x.h5"}).exit_code == 0);
    const Outcome some = words.run({"detokenize", "x.h5", "--tokenizer=tok", "--documents=1-2"});
    CHECK(some.exit_code == 0);
    CHECK_THAT(some.output, Contains("{\"text\":\"the dog\"}\n{\"text\":\"a log\"}\n"));
    CHECK_THAT(some.output,
               Contains("2 special tokens inside documents were left out; --special writes them out"));
    CHECK(words.run({"detokenize", "x.h5", "--tokenizer=tok", "--special", "--output=y.jsonl"}).exit_code ==
          0);
    CHECK(words.run({"tokenize", "y.jsonl", "--tokenizer=tok", "--output=y.h5"}).exit_code == 0);
    CHECK(differing_arrays(words.folder / "x.h5", words.folder / "y.h5").empty());
    fs::create_symlink("x.h5", words.folder / "link.h5");
    const std::string tokens = read_file(words.folder / "x.h5"), words_of = read_file(words.folder / "a.txt"),
                      tokenizer = read_file(words.folder / "tok/tokenizer.json");
    for (const std::string same : {"x.h5", "./x.h5", "tok/../x.h5", "link.h5"})
        CHECK_THAT(words.refusal({"detokenize", "x.h5", "--tokenizer=tok", "--force", "--output=" + same}),
                   Contains("coeus detokenize: --output " + same +
                            " would replace x.h5, which the command reads; give another --output"));
    for (const Arguments& command :
         {Arguments{"detokenize", "x.h5", "--tokenizer=tok", "--output=tok/tokenizer.json"},
          Arguments{"tokenize", "a.txt", "--tokenizer=tok", "--output=./a.txt"},
          Arguments{"tokenize", ".", "--tokenizer=tok", "--include=a.txt", "--output=a.txt"},
          Arguments{"tokenize", "a.txt", "--tokenizer=tok", "--output=tok/tokenizer.json"},
          Arguments{"tokenizer", "tok/tokenizer.json", "a.txt", "--output=tok"},
          Arguments{"convert", "x.h5", "./x.h5"}})
        CHECK_THAT(words.refusal(command + Arguments{"--force"}),
                   Contains("coeus " + command[0] + ": ") && Contains(" would replace ") &&
                       Contains(", which the command reads; give another "));
    CHECK(read_file(words.folder / "x.h5") == tokens);
    CHECK(read_file(words.folder / "a.txt") == words_of);
    CHECK(read_file(words.folder / "tok/tokenizer.json") == tokenizer);
    CHECK_THAT(words.refusal({"detokenize", "x.h5", "--tokenizer=tok", "--output=y.jsonl"}),
               Contains("y.jsonl already exists; --force replaces it"));
    for (const std::string range : {"2-1", "1-", "-1", "1-2-3", "1-99999999999999999999", "x"})
        CHECK_THAT(words.refusal({"detokenize", "x.h5", "--tokenizer=tok", "--documents=" + range}),
                   Contains("--documents " + range +
                            ": must be a number, or two as in 10-20, of which the second is not smaller"));
    CHECK_THAT(words.refusal({"detokenize", "x.h5", "--tokenizer=tok", "--bos_id=1", "--eos_id=2"}),
               Contains("--bos_id 1 --eos_id 2: a document begins with the one or ends with the other"));
    CHECK_THAT(words.refusal({"detokenize", "x.h5", "y.h5", "--tokenizer=tok"}),
               Contains("coeus detokenize: converts one token file, but 2 are given"));

    CHECK(words.run({"convert", "x.h5", "pair.idx"}).exit_code == 0);
    for (const char* to : {"pair.idx", "./pair.idx"})
        CHECK_THAT(words.refusal({"convert", "pair", to, "--tokenizer=tok", "--force"}),
                   Contains("coeus convert: TARGET ") && Contains(", which the command reads"));
    CHECK_THAT(words.refusal({"detokenize", "pair", "--tokenizer=tok", "--output=pair.idx", "--force"}),
               Contains("--output pair.idx would replace pair.idx, which the command reads"));
    const Outcome back = words.run({"convert", "pair", "z.h5", "--tokenizer=tok"});
    CHECK(back.exit_code == 0);
    CHECK_THAT(back.output, Contains("pair.bin: a token file of Megatron-LM with ") &&
                                Contains("in 3 documents; it does not say which tokenizer made it"));
    CHECK(differing_arrays(words.folder / "x.h5", words.folder / "z.h5").empty());
    CHECK(TokenFile(words.folder / "z.h5").tokenizer_hash() == Tokenizer(words.folder / "tok").hash());
    CHECK_THAT(words.run({"info", "pair"}).output, Contains("pair: token file of Megatron-LM, ") &&
                                                       Contains("(uint16)") && Contains("documents      3"));
    CHECK_THAT(words.run({"info", "pair.bin", "--verify"}).output,
               Contains("verified       the largest id is 2"));
    CHECK_THAT(words.refusal({"convert", "x.h5", "w.h5"}), Contains("x.h5 is a token file already"));
    CHECK_THAT(words.refusal({"convert", "pair", "w"}),
               Contains("TARGET w: a token file becomes a token file"));
    CHECK_THAT(words.refusal({"convert", "pair", "w.h5", "--dtype=float32"}),
               Contains("--dtype: is for weights, but pair is a token file"));
    CHECK_THAT(words.refusal({"convert", "x.h5", "pair.idx"}),
               Contains("pair.idx already exists; --force replaces it"));
    CHECK_THAT(words.refusal({"convert", "tok", "w.h5", "--eos_id=1"}),
               Contains("--eos_id: is for token files, and tok is not one"));
    write_token_file(words.folder / "masked.h5", {.tokens = {1, 2}, .documents = {}, .loss_mask = {0, 1}});
    CHECK_THAT(words.refusal({"convert", "masked.h5", "m.idx"}),
               Contains("masked.h5: has a loss mask, for which a pair of Megatron-LM has no place"));
}

TEST_CASE("program: broken pairs of Megatron-LM end a command with one error") {
    const fs::path broken = golden("megatron/broken");
    if (broken.empty()) return;
    const JsonDocument reasons = JsonDocument::read(broken / "reasons.json");
    for (const auto& [name, reason] : reasons.root().items()) {
        CAPTURE(name);
        const Outcome outcome = run_coeus({"info", (broken / (name + ".idx")).string(), "--verify"});
        CHECK(outcome.exit_code == 2);
        CHECK(count_of(" - error - ", outcome.output) == 1);
        CHECK_THAT(outcome.output, Contains((broken / name).string()));
    }
}

TEST_CASE("program: a run trains on a Megatron-LM pair as on the token file of which it was made") {
    const TemporaryFolder folder;
    std::vector<uint16_t> tokens = learnable_tokens(2000);
    write_token_file(folder / "x.h5", {.tokens = tokens, .documents = {0, 100, 777, 2000}, .loss_mask = {}});
    CHECK(run_coeus({"convert", (folder / "x.h5").string(), (folder / "pair.idx").string()}).exit_code == 0);
    const Arguments masked = {"--training.document_mask=true", "--training.local_batch_size=2",
                              "--training.global_batch_size=4"};
    train_tiny(folder / "ours", folder / "x.h5", masked);
    const Outcome theirs = train_tiny(folder / "theirs", folder / "pair", masked, 2);
    CHECK_THAT(theirs.output,
               Contains("pair.bin: a token file of Megatron-LM with 2,000 tokens in 3 documents; it "
                        "does not say which tokenizer made it"));
    train_tiny(folder / "one", folder / "pair.bin", masked);
    CHECK(read_metrics(folder / "ours").losses() == read_metrics(folder / "one").losses());
    const std::vector<double> ours = read_metrics(folder / "ours").losses(),
                              two = read_metrics(folder / "theirs").losses();
    REQUIRE(ours.size() == two.size());
    for (size_t i = 0; i < ours.size(); ++i) CHECK(two[i] == Approx(ours[i]).epsilon(1e-5));
    CHECK(
        run_coeus(tiny_run(folder / "both", folder / "x.h5", {"--training.bos_id=1", "--training.eos_id=2"}))
            .exit_code == 2);
}

TEST_CASE("program: info shows a part of a token file") {
    const WithWords words;
    write_file(words.folder / "x.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \"a dog\"}\n");
    CHECK(words.run({"tokenize", "x.jsonl", "--tokenizer=tok", "--output=x.h5"}).exit_code == 0);
    const Outcome document = words.run({"info", "x.h5", "--document", "1", "--tokenizer", "tok"});
    CHECK(document.exit_code == 0);
    CHECK_THAT(document.output, Contains("x.h5: document 1, tokens ") &&
                                    Contains("\n  <|begin_of_text|>a dog<|end_of_text|>\n"));
    const Outcome position = words.run({"info", "x.h5", "--position=1", "--tokenizer=tok", "--tokens"});
    CHECK(position.exit_code == 0);
    CHECK_THAT(position.output, Contains("documents 0 to 1; position 1 is in document 0 and has the id ") &&
                                    Contains("<|begin_of_text|>|") && Contains("--- document 1 ---"));
    CHECK_THAT(words.refusal({"info", "x.h5", "--document=2", "--tokenizer=tok"}),
               Contains("--document 2: x.h5 has documents 0 to 1"));
    CHECK_THAT(words.refusal({"info", "x.h5", "--document=1"}),
               Contains("--document and --position need --tokenizer PLACE, the tokenizer that made x.h5"));
    CHECK_THAT(words.refusal({"info", "x.h5", "--document=1", "--position=2", "--tokenizer=tok"}),
               Contains("--document, --position: give one of these"));
    CHECK_THAT(words.refusal({"info", "x.h5", "--tokens"}),
               Contains("--tokens: is for --document, --position, --step and --samples"));
    CHECK_THAT(words.refusal({"info", "x.h5", "x.h5", "--document=1", "--tokenizer=tok"}),
               Contains("shows a part of one PATH, but 2 are given"));
    CHECK_THAT(words.refusal({"info", "x.h5", "--rank=1"}), Contains("--rank: is for --step"));
    for (const std::string option : {"--verify", "--diff=y.h5", "--model", "--gpu=H100", "--memory=80"})
        CHECK_THAT(words.refusal({"info", "x.h5", "--document=1", "--tokenizer=tok", option}),
                   Contains(option.substr(0, option.find('=')) +
                            ": cannot be used together with --document, which shows a part"));
    CHECK_THAT(words.refusal({"info", "x.h5", "--document=1", "--tokenizer=tok", "--ranks=2"}),
               Contains("--ranks: cannot be used together with --document, which shows a part of a file"));
    CHECK(words.run({"tokenizer", "a.txt", "--vocab_size=260", "--output=other"}).exit_code == 0);
    CHECK_THAT(words.refusal({"info", "x.h5", "--document=1", "--tokenizer=other"}),
               Contains(Tokenizer(words.folder / "tok").hash()) &&
                   Contains(Tokenizer(words.folder / "other").hash()));
}

TEST_CASE("program: info divides the data of a run at another id than its deck") {
    const WithWords words;
    const int32_t border = Tokenizer(words.folder / "tok").encode("m").at(0);
    std::vector<uint16_t> tokens;
    for (int i = 0; i < 800; ++i) tokens.push_back(uint16_t(i % 7 == 0 ? border : 70 + i % 20));
    write_token_file(words.folder / "x.h5", {.tokens = tokens});
    train_tiny(words.folder / "run", words.folder / "x.h5",
               {steps(1), "--model.vocab_size=272", "--training.document_mask",
                "--model.hf_assets_path=" + (words.folder / "tok").string(),
                fmt::format("--training.bos_id={}", border)});
    const auto shown = [&](const Arguments& more) {
        const Outcome outcome =
            words.run(Arguments{"info", (words.folder / "run").string(), "--samples=0-0"} + more);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    const std::string as_run = shown({}), ends = shown({fmt::format("--eos_id={}", border)});
    INFO(as_run + ends);
    CHECK_THAT(as_run, Contains("\n  mopqrst\n"));
    CHECK_THAT(ends, Contains("\n  opqrstm\n"));
    CHECK(shown({fmt::format("--bos_id={}", border)}) == as_run);
}

TEST_CASE("program: info shows what a step of a run reads") {
    const WithWords words;
    std::string lines;
    for (int i = 0; i < 60; ++i)
        lines += "{\"text\": \"The dog sat on the mat, the cat " + std::to_string(i) + "\"}\n";
    write_file(words.folder / "x.jsonl", lines);
    CHECK(words.run({"tokenize", "x.jsonl", "--tokenizer=tok", "--output=x.h5"}).exit_code == 0);
    for (const Arguments& more : {Arguments{steps(2)}, {steps(4), "--training.global_batch_size=8"}})
        train_tiny(words.folder / "run", words.folder / "x.h5",
                   more + Arguments{"--model.vocab_size=272",
                                    "--model.hf_assets_path=" + (words.folder / "tok").string(),
                                    "--checkpoint.enable=true", "--checkpoint.interval=2"});
    const Arguments at_run = {"info", (words.folder / "run").string()};
    const Outcome third = words.run(at_run + Arguments{"--step=3"});
    INFO(third.output);
    CHECK(third.exit_code == 0);
    // two steps of 4 sequences, then 8
    CHECK_THAT(third.output, Contains("step 3: samples 8 to 15, 8 sequences for each of 1 data rank"));
    CHECK(count_of(" labels count\n", third.output) == 8);
    CHECK_THAT(third.output, Contains("sample 8 (step 3, data rank 0): ") && Contains("x.h5, window "));
    const Outcome second = words.run(at_run + Arguments{"--step=2", "--ranks=2", "--rank=1"});
    CHECK_THAT(second.output, Contains("step 2: samples 4 to 7, 2 sequences for each of 2 data ranks") &&
                                  Contains("sample 6 (step 2, data rank 1)") && !Contains("sample 5 "));
    const Outcome beyond = words.run(at_run + Arguments{"--samples=1000-1001", "--tokens"});
    CHECK(beyond.exit_code == 0);
    CHECK_THAT(beyond.output, Contains("sample 1000 (step ") && Contains("sample 1001 (step ") &&
                                  Contains("beyond the run, which has 4 steps (training.steps)"));
    // the text is that of the window
    const TokenFile file(words.folder / "x.h5");
    const Tokenizer tokenizer(words.folder / "tok");
    const std::string window = beyond.output.substr(beyond.output.find("tokens ") + 7);
    std::string first = window.substr(0, window.find(' '));
    std::erase(first, ',');
    CHECK_THAT(beyond.output, Contains("\n  " + tokenizer.bytes_of(file.token(std::stoll(first)))));
    CHECK_THAT(words.refusal(at_run + Arguments{"--step=3", "--rank=1"}),
               Contains("--rank 1: the run has data ranks 0 to 0"));
    CHECK_THAT(words.refusal({"info", "tok", "--step=3"}),
               Contains("tok: is not the folder of a run: it has no deck.toml"));
    CHECK(words.run({"tokenizer", "a.txt", "--vocab_size=260", "--output=other"}).exit_code == 0);
    CHECK_THAT(
        words.refusal(at_run + Arguments{"--step=3", "--tokenizer=" + (words.folder / "other").string()}),
        Contains("x.h5: was made with the tokenizer "));
}
