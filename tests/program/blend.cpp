// SPDX-License-Identifier: Apache-2.0
// Training on several sources: weighted or joined, on any number of ranks, stopped and resumed. Data that are
// compressed, given by name, or wrong.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// Two token files, of 9 and 150 windows.
struct Sources {
    TemporaryFolder folder;
    std::string both;

    Sources() {
        write_token_file(folder / "a.h5", {.tokens = learnable_tokens(9 * 17)});
        std::vector<uint16_t> other(150 * 17);
        for (size_t i = 0; i < other.size(); ++i) other[i] = uint16_t(i * 7 % 61);
        write_token_file(folder / "b.h5", {.tokens = other});
        both = (folder / "a.h5").string() + "," + (folder / "b.h5").string();
    }
};

const Arguments blend = {"--training.dataset_weights=0.7,0.3", "--training.local_batch_size=1",
                         "--training.global_batch_size=4", "--training.dtype=float64"};

std::string sixty_lines() {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "The dog sat on the mat, and the cat sat on the log.\n";
    return text;
}

}  // namespace

TEST_CASE("a blend gives the same samples on any number of ranks and after a restart") {
    const Sources s;
    const Arguments more =
        blend + Arguments{"--training.shuffle",       "--validation.enable", "--validation.freq=3",
                          "--validation.per_dataset", "--checkpoint.enable", "--lr_scheduler.total_steps=8"};
    const Outcome one = train_tiny(s.folder / "one", s.both, more + Arguments{steps(8)});
    CHECK_THAT(one.output, Contains("Data: 70 % of " + (s.folder / "a.h5").string() +
                                    ", 153 tokens in 1 document, 8 windows of 16 + 1 tokens; 30 % of " +
                                    (s.folder / "b.h5").string()));
    // each source holds out one window
    CHECK_THAT(one.output, Contains("; validation: 2 windows held out"));
    train_tiny(s.folder / "moving", s.both, more + Arguments{steps(3)}, 2);
    train_tiny(s.folder / "moving", s.both, more + Arguments{steps(5)}, 4);
    const Outcome resumed = train_tiny(s.folder / "moving", s.both, more + Arguments{steps(8)});
    CHECK(count_of("the data differs from the checkpoint's", resumed.output) == 0);
    const MetricLines a = read_metrics(s.folder / "one"), b = read_metrics(s.folder / "moving");
    REQUIRE(a.steps.size() == 8);
    REQUIRE(b.steps.size() == 8);
    for (size_t i = 0; i < 8; ++i) CHECK(relatively_close(a.steps[i].loss, b.steps[i].loss, 1e-12));
    REQUIRE(a.validations.size() == b.validations.size());
    for (size_t i = 0; i < a.validations.size(); ++i) {
        CHECK(a.validations[i].tokens == b.validations[i].tokens);
        CHECK(relatively_close(a.validations[i].loss, b.validations[i].loss, 1e-12));
        // each source has one window, of as many labels
        REQUIRE(a.validations[i].losses.size() == 2);
        const double of_a = a.validations[i].losses.at("a"), of_b = a.validations[i].losses.at("b");
        CHECK(relatively_close(a.validations[i].loss, (of_a + of_b) / 2, 1e-12));
        CHECK(relatively_close(of_a, b.validations[i].losses.at("a"), 1e-12));
        CHECK(relatively_close(of_b, b.validations[i].losses.at("b"), 1e-12));
    }
    // changed weights count as changed data
    const Outcome changed = train_tiny(s.folder / "moving", s.both,
                                       more + Arguments{steps(9), "--training.dataset_weights=0.5,0.5"});
    CHECK(count_of("the data differs from the checkpoint's: some samples may be used twice or never "
                   "(training.dataset_weights was [0.7, 0.3], is [0.5, 0.5])",
                   changed.output) == 1);
    // and the weights matter
    train_tiny(s.folder / "other", s.both, more + Arguments{steps(8), "--training.dataset_weights=0.1,0.9"});
    const double other = read_metrics(s.folder / "other").losses()[7], same = a.losses()[7];
    CHECK(std::fabs(other - same) > 1e-6 * same);
}

TEST_CASE(
    "epochs of a blend count windows of all sources, and the start logs how often each source is read") {
    const Sources s;
    const Outcome run = train_tiny(s.folder / "out", s.both, blend + Arguments{steps(50)});
    // 200 samples: 140 from 9 windows, 60 from 150
    CHECK_THAT(run.output, Contains("50 steps = 15.56 epochs of " + (s.folder / "a.h5").string() +
                                    ", 0.40 epochs of " + (s.folder / "b.h5").string()));
    const MetricLines lines = read_metrics(s.folder / "out");
    REQUIRE(lines.steps.size() == 50);
    for (const StepLine& line : lines.steps) CHECK(line.epoch == 4 * double(line.step) / 159);
    const Outcome few = train_tiny(s.folder / "few", s.both, blend + Arguments{steps(3)});
    CHECK(count_of("steps = ", few.output) == 0);
    const Outcome one = train_tiny(s.folder / "one", s.folder / "a.h5", {steps(5)});
    CHECK_THAT(one.output, Contains("5 steps = 2.22 epochs of this data"));
}

TEST_CASE("token files without weights count by their size, and a source may be text") {
    const Sources s;
    const Outcome sizes = train_tiny(s.folder / "sizes", s.both, {steps(1)});
    CHECK_THAT(sizes.output, Contains("Data: 5.66 % of " + (s.folder / "a.h5").string()) &&
                                 Contains("; 94.34 % of " + (s.folder / "b.h5").string()));
    write_file(s.folder / "corpus/one.txt", sixty_lines());
    write_file(s.folder / "two.txt", sixty_lines() + sixty_lines());
    const auto in_folder = [&](const char* name) { return (s.folder / name).string(); };
    REQUIRE(run_coeus({"tokenizer", in_folder("two.txt"), "--vocab_size=270", "--output", in_folder("tok")})
                .exit_code == 0);
    REQUIRE(run_shell("gzip " + in_folder("corpus/one.txt")).exit_code == 0);
    const Arguments tokenizer = {"--model.hf_assets_path=" + in_folder("tok"), "--model.vocab_size=300",
                                 steps(2)};
    const std::string texts = in_folder("corpus") + "," + in_folder("two.txt");
    // without weights, texts are joined
    const Outcome joined = train_tiny(s.folder / "joined", texts, tokenizer, 2);
    CHECK_THAT(joined.output, Contains(" tokens in 2 documents, "));
    CHECK(count_of(" % of ", joined.output) == 0);
    const Outcome weighted =
        train_tiny(s.folder / "weighted", texts, tokenizer + Arguments{"--training.dataset_weights=1,3"}, 2);
    CHECK_THAT(weighted.output, Contains("Data: 25 % of ") && Contains("; 75 % of "));
    CHECK(count_of(" tokens in 1 document, ", weighted.output) >= 2);
    write_file(s.folder / "more/two.txt", sixty_lines());
    const std::string more_texts = texts + "," + in_folder("more/two.txt") + "," + in_folder("corpus");
    train_tiny(s.folder / "validated", texts,
               tokenizer + Arguments{"--validation.enable", "--validation.dataset_path=" + more_texts,
                                     "--validation.per_dataset"});
    const std::vector<ValidationLine> lines = read_metrics(s.folder / "validated").validations;
    REQUIRE_FALSE(lines.empty());
    std::vector<std::string> names;
    for (const auto& [name, loss] : lines[0].losses) names.push_back(name);
    CHECK(names == std::vector<std::string>{in_folder("corpus"), in_folder("corpus") + " (2)",
                                            in_folder("more/two.txt"), in_folder("two.txt")});
    // text and a token file are two sources
    const Outcome mixed = train_tiny(s.folder / "mixed", texts + "," + in_folder("a.h5"), tokenizer);
    CHECK(count_of(" % of ", mixed.output) == 2);
}

TEST_CASE("wrong sources and texts end the run with exit code 2") {
    const Sources s;
    const auto in_folder = [&](const char* name) { return (s.folder / name).string(); };
    write_file(s.folder / "two.txt", sixty_lines());
    REQUIRE(run_coeus({"tokenizer", in_folder("two.txt"), "--vocab_size=270", "--output", in_folder("tok")})
                .exit_code == 0);
    const auto check = [&](const std::string& data, const Arguments& more, const std::string& message,
                           int ranks = 0) {
        const Outcome run = run_coeus(
            tiny_run(
                s.folder / "out", data,
                Arguments{"--model.hf_assets_path=" + in_folder("tok"), "--model.vocab_size=300"} + more),
            ranks);
        INFO(run.output);
        CHECK(run.exit_code == 2);
        CHECK(count_of(" - error - " + message, run.output) == 1);
        CHECK(count_of(" - error - ", run.output) == 1);
    };
    check(s.both, {"--training.dataset_weights=1"},
          "training.dataset_weights = [1.0]: 1 weight for 2 paths in training.dataset_path; give one weight "
          "for each path",
          2);
    check(s.both, {"--training.dataset_weights=1,0"},
          "command line: training.dataset_weights = 1,0: must be greater than 0");
    check(in_folder("a.h5") + "," + in_folder("gone.h5"), {"--training.dataset_weights=1,1"},
          "training.dataset_path = \"" + in_folder("gone.h5") + "\": this file or folder does not exist", 2);
    write_token_file(s.folder / "short.h5", {.tokens = learnable_tokens(10)});
    check(in_folder("a.h5") + "," + in_folder("short.h5"), {"--training.dataset_weights=1,1"},
          in_folder("short.h5") + ": 10 tokens are fewer than one window of seq_len + 1 = 17", 2);
    write_token_file(s.folder / "ids.h5", {.tokens = learnable_tokens(100, 400)});
    check(in_folder("a.h5") + "," + in_folder("ids.h5"), {}, in_folder("ids.h5") + ": token ");

    write_file(s.folder / "cut.txt.gz", "");
    REQUIRE(run_shell("gzip -c " + in_folder("two.txt") + " | head -c 60 > " + in_folder("cut.txt.gz"))
                .exit_code == 0);
    check(in_folder("cut.txt.gz"), {}, in_folder("cut.txt.gz") + " is truncated: its gzip data is incomplete",
          2);
    write_file(s.folder / "not.txt.zst", "\xff no text");
    check(in_folder("not.txt.zst"), {},
          in_folder("not.txt.zst") + " is not zstd data, although its name says so");
    write_file(s.folder / "wide.txt", std::string("\xFF\xFEh\0i\0", 6));
    check(in_folder("wide.txt"), {},
          in_folder("wide.txt") + ": is UTF-16, according to its byte order mark; ");
    CHECK_FALSE(fs::exists(s.folder / "out/data/wide.h5"));

    // text that is not UTF-8 is reported once, and used
    std::string latin = sixty_lines();
    for (size_t i = 0; i < latin.size(); i += 50) latin[i] = '\xe9';
    write_file(s.folder / "latin.txt", latin);
    const Outcome run =
        train_tiny(s.folder / "latin", s.folder / "latin.txt",
                   {"--model.hf_assets_path=" + in_folder("tok"), "--model.vocab_size=300", steps(1)}, 2);
    CHECK(count_of("invalid bytes or sequences became U+FFFD: " + in_folder("latin.txt") +
                       " is not UTF-8, first at line 1, byte 1; it looks like Latin-1",
                   run.output) == 1);
}

TEST_CASE("datasets by name") {
    const Sources s;
    const auto run = [&](const Arguments& more) {
        Arguments arguments = tiny_run(s.folder / "out", "x", more);
        std::erase_if(arguments,
                      [](const std::string& a) { return a.find("dataset_path=") != std::string::npos; });
        return run_coeus(arguments, 0, {{"COEUS_DATASETS", s.folder.path().string()}}, s.folder.path());
    };
    const Outcome found =
        run({"--training.dataset=a", "--validation.enable", "--validation.dataset=b", steps(1)});
    INFO(found.output);
    CHECK(found.exit_code == 0);
    CHECK(count_of("training.dataset = \"a\" is " + (s.folder / "a.h5").string(), found.output) == 1);
    CHECK_THAT(found.output, Contains("; validation: 150 windows of " + (s.folder / "b.h5").string()));
    const Outcome gone = run({"--training.dataset=c4"});
    CHECK(gone.exit_code == 2);
    CHECK_THAT(
        gone.output,
        Contains("training.dataset_path: is not given, and training.dataset = \"c4\" was not found in "));
    CHECK_THAT(gone.output, Contains("made with `coeus tokenize INPUT --tokenizer FOLDER --output FILE.h5`"));
}
