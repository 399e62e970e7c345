// SPDX-License-Identifier: Apache-2.0
// A model that has memorised a text, and the texts that `coeus generate` writes with it.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const std::string sentence = "The dog sat on the mat, and the cat sat on the log.\n";

// Trained once for all cases of this file.
class Trained {
public:
    Trained() {
        std::string text;
        for (int i = 0; i < 60; ++i) text += sentence;
        write_file(folder_ / "text.txt", text);
        const Outcome tokenizer = run_coeus({"tokenizer", (folder_ / "text.txt").string(), "--vocab_size=270",
                                             "--output", tokens().string()});
        INFO(tokenizer.output);
        REQUIRE(tokenizer.exit_code == 0);
        train_tiny(run(), folder_ / "text.txt",
                   {"--model.hf_assets_path=" + tokens().string(), "--model.vocab_size=288", steps(60),
                    "--training.seq_len=32", "--metrics.log_freq=60", "--checkpoint.enable"});
        REQUIRE(read_metrics(run()).losses().back() < 0.5);
    }
    fs::path run() const { return folder_ / "run"; }
    fs::path tokens() const { return folder_ / "tokenizer"; }
    fs::path path(const std::string& name) const { return folder_ / name; }

private:
    TemporaryFolder folder_;
};

const Trained& trained() {
    static const Trained once;
    return once;
}

Outcome generate(const fs::path& checkpoint, const Arguments& more) {
    return run_coeus(Arguments{"generate", "--checkpoint", checkpoint.string()} + more);
}

std::string written(const Arguments& more, const fs::path& checkpoint = trained().run()) {
    const Outcome outcome = generate(checkpoint, more);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    return outcome.output;
}

void expect_error(const fs::path& checkpoint, const Arguments& more, const std::string& message) {
    const Outcome outcome = generate(checkpoint, more);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 2);
    CHECK(count_of(" - error - ", outcome.output) == 1);
    CHECK_THAT(outcome.output, Contains(message));
}

}  // namespace

TEST_CASE("a memorised text is written again") {
    const Arguments prompt = {"--prompt", "The dog sat"}, long_enough = {"--length=40"};
    const Arguments greedy = prompt + long_enough + Arguments{"--temperature=0"};
    const std::string text = written(greedy);
    CHECK_THAT(text, Catch::StartsWith(sentence));
    CHECK(written(greedy + Arguments{"--seed=9"}) == text);
    CHECK(written(prompt + long_enough + Arguments{"--temperature=1", "--top_k=1", "--seed=9"}) == text);
    CHECK(written(prompt + long_enough + Arguments{"--temperature=1", "--top_p=0.01"}) == text);
    // the text becomes longer than the context
    CHECK(written(greedy + Arguments{"--context=12"}).starts_with("The dog sat"));
    CHECK(written({"--prompt", sentence + sentence + "The dog", "--temperature=0", "--length=1",
                   "--context=200"}) == sentence + sentence + "The dog sat\n");
    // length counts tokens, and the prompt may be empty if there is a BOS
    CHECK(written(prompt + Arguments{"--length=1"}).size() <
          written(prompt + Arguments{"--length=2"}).size());
    CHECK(written({"--temperature=0", "--length=9"}).size() > 9);
}

TEST_CASE("the same seed gives the same text") {
    std::string forty;
    for (int i = 0; i < 40; ++i) forty += sentence.substr(size_t(i), 12) + "\n";
    write_file(trained().path("forty.txt"), forty);
    const Arguments all_forty = {"--prompts", trained().path("forty.txt").string(), "--dtype=float64",
                                 "--temperature=1", "--length=20"};
    CHECK(written(all_forty + Arguments{"--batch=40"}) == written(all_forty + Arguments{"--batch=1"}));
    const Arguments hot = {"--prompt=The", "--temperature=2.5", "--length=30"};
    const std::string text = written(hot + Arguments{"--seed=3"});
    CHECK(written(hot + Arguments{"--seed=3"}) == text);
    CHECK(written(hot + Arguments{"--seed=4"}) != text);
    CHECK(written(hot + Arguments{"--seed=3", "--threads=2"}) == text);
}

TEST_CASE("prompts of a file are continued in order, in batches of any size") {
    write_file(trained().path("prompts.txt"), "The dog\n\nand the cat\nThe\non the\n");
    const std::string file = trained().path("prompts.txt").string();
    const Arguments greedy = {"--prompts", file, "--temperature=0", "--length=40", "--stop=."};
    const std::string text = written(greedy);
    CHECK_THAT(
        text, Catch::StartsWith("== 1\nThe dog sat on the mat, and the cat sat on the log\n== 2\nand the cat "
                                "sat on the log\n== 3\nThe dog "));
    for (const char* batch : {"--batch=1", "--batch=2", "--batch=16"})
        CHECK(written(greedy + Arguments{batch}) == text);
    const Arguments hot = {"--prompts", file, "--temperature=2", "--length=9", "--seed=4"};
    CHECK(written(hot + Arguments{"--batch=1"}) == written(hot + Arguments{"--batch=3", "--threads=2"}));

    const fs::path output = trained().path("out.jsonl");
    write_file(trained().path("prompts.jsonl"), R"({"text": "The dog"})"
                                                "\n"
                                                R"({"prompt": "The cat", "text": "ignored"})");
    written({"--prompts", trained().path("prompts.jsonl"), "--temperature=0", "--length=40", "--stop= mat",
             "--stop", "log", "--output", output});
    const std::string lines = read_file(output);
    INFO(lines);
    CHECK(count_of("\n", lines) == 2);
    expect_error(trained().run(), {"--output", output.string()},
                 "out.jsonl already exists; --force replaces it");
    written({"--prompt=The dog", "--length=1", "--output", output, "--force"});
    CHECK(count_of("\n", read_file(output)) == 1);
    CHECK_THAT(lines, Catch::StartsWith(
                          R"({"prompt":"The dog","text":" sat on the","finish":"stop","prompt_tokens":)"));
    CHECK_THAT(lines, Contains(R"({"prompt":"The cat","text":)"));
}

TEST_CASE("types, and texts as JSON lines") {
    const Arguments greedy = {"--prompt", "The dog sat", "--temperature=0", "--length=30", "--stop=."};
    const std::string text = written(greedy);
    for (const char* type : {"float32", "float64", "bfloat16"})
        CHECK(written(greedy + Arguments{"--dtype", type}) == text);
    const auto cache_of = [&](const char* type) {
        const std::string stats = written(greedy + Arguments{"--stats", "--dtype", type});
        const size_t at = stats.find("key/value cache") + 15;
        return std::stod(stats.substr(at, stats.find('B', at) - at));
    };
    CHECK(cache_of("float64") == 2 * cache_of("float32"));
    CHECK(cache_of("float32") == 2 * cache_of("bfloat16"));

    write_file(trained().path("lines.txt"), "The dog\nand the cat\nThe\n");
    const fs::path output = trained().path("lines.jsonl");
    const std::string lines = written({"--prompts", trained().path("lines.txt"), "--temperature=0",
                                       "--length=40", "--stop=.", "--json", "--output", output});
    CHECK(lines == read_file(output));
    CHECK(count_of("\n", lines) == 3);
    CHECK_THAT(lines,
               Catch::StartsWith(R"({"prompt":"The dog","text":" sat on the mat, and the cat sat on the )"
                                 R"(log","finish":"stop","prompt_tokens":)"));
}

TEST_CASE("ranks of mpirun write the same texts together, and rank 0 prints them") {
    write_file(trained().path("ranks.txt"), "The dog\nand the cat\nThe\non the\nThe cat\n");
    const Arguments all = {"--prompts",  trained().path("ranks.txt"), "--length=40",
                           "--seed=4",   "--dtype=float64",           "--stop=.",
                           "--threads=1"};
    const std::string text = written(all);
    const auto on_ranks = [&](const Arguments& more, int ranks) {
        return run_coeus(Arguments{"generate", "--checkpoint", trained().run().string()} + all + more, ranks);
    };
    const std::string degree = "--parallelism.";
    for (const char* axis : {"tensor_parallel_degree=2", "pipeline_parallel_degree=2",
                             "data_parallel_replicate_degree=2", "context_parallel_degree=2"}) {
        const Outcome outcome = on_ranks({degree + axis}, 2);
        CAPTURE(axis);
        CHECK(outcome.exit_code == 0);
        CHECK(outcome.output == text);
    }
    const fs::path output = trained().path("ranks.jsonl");
    const Outcome sharded = on_ranks({"--json", "--stats", "--output", output.string()}, 2);
    INFO(sharded.output);
    CHECK(sharded.exit_code == 0);
    CHECK_THAT(sharded.output, Contains(", dp_shard 2\n") && Contains("gathered weights"));
    std::istringstream lines(read_file(output));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) CHECK_THAT(sharded.output, Contains(line));
    CHECK(count == 5);

    const auto error = [&](const Arguments& more, const std::string& message, int ranks = 2) {
        const Outcome outcome = on_ranks(more, ranks);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 2);
        CHECK(count_of(" - error - ", outcome.output) == 1);
        CHECK_THAT(outcome.output, Contains(message));
    };
    error({degree + "tensor_parallel_degree=3"},
          "tensor_parallel_degree = 3: 2 ranks are not a multiple of 3; start 3 ranks");
    error({degree + "expert_parallel_degree=2"}, "has no experts; set it to 1");
    error({degree + "context_parallel_degree=4"},
          "context_parallel_degree = 4: must divide the heads that are exchanged "
          "(context_parallel_rotate_method = \"heads\", and generation), model.n_kv_heads / "
          "tensor_parallel_degree = 2; valid are 1, 2",
          4);
    error({"--output", trained().path("no/such/folder.jsonl").string()}, "cannot write: No such file");
}

TEST_CASE("most first lines of a file of prompts, or its name, decide whether it is JSON lines") {
    write_file(trained().path("brace.txt"), "\xEF\xBB\xBF{\"prompt\": \"The\"}\n{ The dog\n");
    write_file(trained().path("objects.txt"), "{\"prompt\": \"The dog\"}\n{\"prompt\": \"the cat\"}\n");
    CHECK_THAT(written({"--prompts", trained().path("objects.txt"), "--temperature=0", "--length=1"}),
               Contains("objects.txt is JSON Lines, although the name does not end in .jsonl") &&
                   Contains("== 1\nThe dog") && Contains("== 2\nthe cat"));
    const std::string plain =
        written({"--prompts", trained().path("brace.txt"), "--temperature=0", "--length=1"});
    CHECK_THAT(plain, Catch::StartsWith("== 1\n{\"prompt\": \"The\"}") && Contains("== 2\n{ The dog"));
    for (const char* name : {"brace.jsonl", "brace.ndjson", "brace.json"}) {
        write_file(trained().path(name), "{\"prompt\": \"The dog\"}\n\n{\"prompt\": \"the cat\"}\n");
        CHECK_THAT(written({"--prompts", trained().path(name), "--temperature=0", "--length=1"}),
                   Catch::StartsWith("== 1\nThe dog") && Contains("== 2\nthe cat"));
    }
}

TEST_CASE("stop texts, EOS and the statistics") {
    const Arguments greedy = {"--prompt", "The dog sat", "--temperature=0", "--length=30"};
    CHECK(written(greedy + Arguments{"--stop", ", and"}) == "The dog sat on the mat\n");
    CHECK(written(greedy + Arguments{"--stop", ", and", "--stop=on"}) == "The dog sat \n");
    const Arguments hot = {"--prompt=The", "--temperature=3", "--length=200", "--seed=1"};
    CHECK(written(hot + Arguments{"--ignore_eos"}).size() >= written(hot).size());
    CHECK_THAT(written(greedy + Arguments{"--stats"}),
               Contains("30 tokens in ") && Contains("tokens/s") && Contains("key/value cache"));
}

TEST_CASE("a checkpoint can be named in several ways") {
    const Arguments greedy = {"--prompt", "The dog sat", "--temperature=0", "--length=20"};
    const std::string text = written(greedy);
    CHECK(written(greedy, trained().run() / "checkpoint") == text);
    CHECK(written(greedy, trained().run() / checkpoint_of(60)) == text);
    CHECK(written(greedy, trained().run() / "checkpoint/model-00000060.h5") == text);
    CHECK(written(greedy + Arguments{"--tokenizer", trained().tokens()}) == text);
    // another name for checkpoint.folder
    const TemporaryFolder renamed;
    fs::copy(trained().run(), renamed.path(), fs::copy_options::recursive);
    fs::rename(renamed / "checkpoint", renamed / "states");
    CHECK(written(greedy, renamed.path()) == text);
    const Outcome info = run_coeus({"info", renamed.path().string()});
    INFO(info.output);
    CHECK(info.exit_code == 0);
    CHECK_THAT(info.output, Contains("states/step-00000060.h5"));
    // as in a folder that a user made: only the model
    const TemporaryFolder alone;
    fs::copy_file(trained().run() / "checkpoint/model-00000060.h5", alone / "model-00000060.h5");
    CHECK(written(greedy, alone.path()) == text);
}

TEST_CASE("generate reports what is wrong") {
    const Trained& all = trained();
    expect_error(all.path("nowhere"), {},
                 all.path("nowhere").string() + ": this file or folder does not exist");
    fs::create_directories(all.path("empty"));
    expect_error(all.path("empty"), {},
                 all.path("empty").string() + " has no checkpoint (step-*.h5 or model-*.h5)");
    expect_error(all.path("text.txt"), {}, "text.txt is not an HDF5 file");
    write_token_file(all.path("tokens.h5"), {.tokens = {1, 2, 3}});
    expect_error(all.path("tokens.h5"), {}, "tokens.h5 is an HDF5 file, but not a checkpoint of Coeus");
    expect_error(all.run(), {"--tokenizer", all.path("empty")}, "no tokenizer in this folder");
    expect_error(all.run(), {"--temprature=1"},
                 "coeus generate: unknown option --temprature; did you mean --temperature?");
    expect_error(all.run(), {"--temperature=-1"},
                 "--temperature must be a number from 0 to 100, but is \"-1\"");
    expect_error(all.run(), {"--top_p=0"}, "--top_p must be a number from 1e-06 to 1, but is \"0\"");
    expect_error(all.run(), {"--top_k=few"},
                 "--top_k must be a whole number of at least 0 and at most 2147483647, but is \"few\"");
    expect_error(all.run(), {"--length=0"}, "--length must be a whole number of at least 1");
    expect_error(all.run(), {"--context=99999999"},
                 "--context must be a whole number of at least 0 and at most 131072");
    expect_error(all.run(), {"The dog"}, "coeus generate: unexpected argument 'The dog'");
    expect_error(all.run(), {"--batch=0"}, "--batch must be a whole number of at least 1, but is \"0\"");
    expect_error(all.run(), {"--device=gpu"},
                 "--device must be one of auto, cuda, cpu, but is \"gpu\"; did you mean cuda?");
    expect_error(all.run(), {"--dtype=float16"},
                 "--dtype must be one of float32, bfloat16, float64, but is \"float16\"; did you mean ");
    expect_error(all.run(), {"--dtype=float64", "--device=cuda"},
                 "--dtype=float64: works only on CPUs; set --device=cpu, or --dtype=float32");
    expect_error(all.run(), {"--parallelism.tensor_parallel_degree=2"},
                 "tensor_parallel_degree = 2: 1 rank is not a multiple of 2; start 2 ranks");
    expect_error(all.run(), {"--parallelism.pipeline_parallel_degree=0"},
                 "--parallelism.pipeline_parallel_degree must be a whole number of at least 1");
    expect_error(all.run(), {"--parallelism.tensor_parallel=2"},
                 "coeus generate: unknown option --parallelism.tensor_parallel; did you mean "
                 "--parallelism.tensor_parallel_degree?");
    expect_error(all.run(), {"--device=cuda"}, "--device=cuda: ");  // without CUDA, or without a driver
    expect_error(all.run(), {"--prompt=a", "--prompts", all.path("text.txt")},
                 "coeus generate: --prompt and --prompts cannot be used together");
    expect_error(all.run(), {"--prompts", all.path("no.txt")}, "no.txt: this file does not exist");
    write_file(all.path("blank.txt"), " \n\n");
    expect_error(all.run(), {"--prompts", all.path("blank.txt")},
                 "blank.txt contains no prompts: every line is empty");
    write_file(all.path("wide.txt"), std::string("\xFF\xFET\0h\0e\0", 8));
    expect_error(all.run(), {"--prompts", all.path("wide.txt")},
                 "wide.txt: is UTF-16, according to its byte order mark; convert it with iconv");
    write_file(all.path("table.parquet"), "PAR1\1\2\3");
    expect_error(all.run(), {"--prompts", all.path("table.parquet")}, "table.parquet prompt > FILE.jsonl");
    write_file(all.path("latin.txt"), "The\n\ncaf\xe9\n");
    expect_error(all.run(), {"--prompts", all.path("latin.txt")}, "latin.txt is not UTF-8");
    expect_error(all.run(), {"--prompt=\xff"}, "--prompt is not UTF-8 at byte 1");
    write_file(all.path("array.json"), "[{\"prompt\": \"a\"}]\n");
    expect_error(all.run(), {"--prompts", all.path("array.json")},
                 "array.json: is an array or an object over several lines; each line must be an object with "
                 "\"prompt\" or \"text\"");
    write_file(all.path("bad.jsonl"), "{\"prompt\": \"a\"}\n{\"prompt\": }\n");
    expect_error(all.run(), {"--prompts", all.path("bad.jsonl")}, "bad.jsonl, line 2");
    std::string long_line = "The dog";
    for (int i = 0; i < 30; ++i) long_line += " and the cat";
    write_file(all.path("long.txt"), "The\n\n" + long_line + "\n");
    expect_error(all.run(), {"--prompts", all.path("long.txt"), "--context=20"},
                 "long.txt, line 3: the prompt has ");
    expect_error(all.run(), {"--prompt", "The dog sat on the mat", "--context=3"},
                 "tokens, but the context has only 3: shorten it, or set --context=");
    expect_error(all.run(), {"--stop="}, "--stop needs a value");
    expect_error(all.run(), {"--stop=\xff"}, "the tokenizer cannot represent this text");
    expect_error(all.run(), {"--output", all.path("no/such/folder.jsonl")},
                 "folder.jsonl: cannot write: No such file or directory");
    expect_error(all.run(), {"--output", all.path("empty"), "--force"},
                 "empty: cannot write: Is a directory");
    // a file of texts stays as it is if the run is not possible
    write_file(all.path("earlier.jsonl"), "earlier\n");
    expect_error(all.run(), {"--stop=\xff", "--output", all.path("earlier.jsonl"), "--force"},
                 "the tokenizer cannot represent this text");
    CHECK(read_file(all.path("earlier.jsonl")) == "earlier\n");
    expect_error(all.run(), {"--stop=\xff", "--output", all.path("later.jsonl")},
                 "the tokenizer cannot represent this text");
    CHECK_FALSE(fs::exists(all.path("later.jsonl")));
    const std::string prompts = all.path("text.txt").string();
    for (const fs::path& read :
         {all.path("text.txt"), all.run() / checkpoint_of(60), all.tokens() / "tokenizer.json"}) {
        const std::string before = read_file(read);
        expect_error(all.run(), {"--prompts", prompts, "--output", read, "--force"},
                     read == all.path("text.txt")
                         ? "coeus generate: --prompts and --output name the same file, "
                         : "coeus generate: --output " + read.string() + " would replace ");
        CHECK(read_file(read) == before);
    }
    write_file(all.path("run.toml"), "[job]\ndump_folder = \"the/run\"\n");
    const Outcome of_deck = run_coeus({"generate", "--checkpoint", all.path("run.toml"), "--prompt", ""});
    CHECK(of_deck.exit_code == 2);
    CHECK_THAT(of_deck.output,
               Contains("run.toml is a deck, not weights; give the folder of its run: the/run"));
    const Outcome none = run_coeus({"generate"});
    CHECK(none.exit_code == 2);
    CHECK_THAT(none.output, Contains("coeus generate needs --checkpoint; see coeus help generate"));
    const Outcome help = run_coeus({"help", "generate"});
    CHECK(help.exit_code == 0);
    CHECK_THAT(help.output, Contains("--top_p P") && Contains("(default 0.8)"));
    // a tokenizer with more tokens than the model
    std::string text;
    for (int i = 0; i < 300; ++i) text += fmt::format("word{} of {} ", i * 7919 % 1000, i * 104729 % 1000);
    write_file(all.path("words.txt"), text);
    REQUIRE(run_coeus({"tokenizer", all.path("words.txt"), "--vocab_size=289", "--output", all.path("large")})
                .exit_code == 0);
    expect_error(all.run(), {"--tokenizer", all.path("large")},
                 "has 289 tokens, but the model's vocabulary only 288");
}

TEST_CASE("generate refuses one file for several tasks of srun that do not divide the work") {
    const fs::path output = trained().path("tasks.jsonl");
    const auto task = [&](int tasks) {
        return run_shell(
            fmt::format("env SLURM_STEP_NUM_TASKS={} '{}' generate --checkpoint "
                        "'{}' --length=2 --output '{}' < /dev/null",
                        tasks, paths::program(), trained().run().string(), output.string()));
    };
    const Outcome first = task(8);
    CHECK(first.exit_code == 2);
    CHECK_THAT(first.output,
               Contains("tasks.jsonl: srun started 8 tasks, and each would write all texts into this file; "
                        "let them divide the texts with --parallelism.data_parallel_shard_degree=8"));
    CHECK_FALSE(fs::exists(output));
    CHECK(task(1).exit_code == 0);
    CHECK(fs::exists(output));
}
