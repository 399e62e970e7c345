// SPDX-License-Identifier: Apache-2.0
// Decks and command lines as a user gives them: what the program reports about mistakes, and its exit codes.
#include "coeus/comm/mpi.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

void expect_config_error(const Outcome& outcome, const std::string& message) {
    CHECK_THAT(outcome.output, Contains(message));
    CHECK(outcome.exit_code == 2);
}

}  // namespace

TEST_CASE("a wrong command line ends with exit code 2 and a message") {
    expect_config_error(run_coeus({"train", "--training.stepz=1"}),
                        "command line: unknown option --training.stepz; did you mean --training.steps?");
    expect_config_error(run_coeus({"train", "--training.seq_len=0"}),
                        "training.seq_len = 0: must be at least 1; the nearest valid value is 1");
    expect_config_error(run_coeus({"train", "absent.toml"}),
                        "absent.toml: cannot be read: No such file or directory");
    expect_config_error(run_coeus({"train"}), "no deck is given; usage: coeus train DECK ");
    expect_config_error(run_coeus({"train", "--training.steps=1"}), "training.dataset_path: is not given");
    expect_config_error(run_coeus({"train", "--device=gpu"}),
                        "device = gpu: must be one of auto, cpu, cuda; did you mean cuda?");
    expect_config_error(
        run_coeus({"train", "--loss.loss_fn=MSELoss"}),
        "loss.loss_fn = MSELoss: it is the loss of models that make images; a language model has "
        "none; remove it");
}

TEST_CASE("a wrong deck ends with exit code 2 and names the line") {
    const TemporaryFolder folder;
    write_file(folder / "deck.toml", "[training]\nsteps = \"many\"\n");
    expect_config_error(run_coeus({"train", "deck.toml"}, 0, {}, folder.path()),
                        "deck.toml:2:1: training.steps = \"many\": must be a whole number");
    write_file(folder / "deck.toml", "[training\nsteps = 3\n");
    expect_config_error(run_coeus({"train", "deck.toml"}, 0, {}, folder.path()), "not valid TOML");
    write_file(folder / "deck.toml", "include = \"deck.toml\"\n");
    expect_config_error(run_coeus({"train", "deck.toml"}, 0, {}, folder.path()),
                        "a deck cannot include itself: deck.toml includes deck.toml");
    write_file(folder / "deck.toml", "[log]\nranks = [0]\n");
    expect_config_error(run_coeus({"train", "deck.toml"}, 0, {{"LOG_RANK", "first"}}, folder.path()),
                        // the deck takes precedence over the environment
                        "training.dataset_path: is not given");
}

TEST_CASE("several ranks report a mistake once") {
    const Outcome outcome = run_coeus({"train", "--training.stepz=1"}, 3);
    CHECK(outcome.exit_code == 2);
    CHECK(count_of("unknown option --training.stepz", outcome.output) == 1);
}

TEST_CASE("Slurm tasks that MPI does not see end the run before it starts") {
    const std::vector<std::string> run = {"train", "--training.dataset_path=tokens.h5"};
    const std::string missing =
        MpiRuntime::library_version().starts_with("Open MPI") ? "PMIx is missing" : "PMI2 is missing";
    expect_config_error(run_coeus(run, 0, {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_NTASKS", "4"}}),
                        "Slurm started 4 tasks, but each sees an MPI world of one rank: " + missing);
    expect_config_error(run_coeus(run, 0, {{"SLURM_NTASKS", "4"}}), "Slurm gives this job 4 tasks");
    // a dry run needs no ranks
    CHECK(run_coeus({"train", "--dry_run", "--ranks=8", "--model.name=llama3", "--model.flavor=debugmodel"},
                    0, {{"SLURM_NTASKS", "4"}})
              .exit_code == 0);
}

TEST_CASE("processes that torchrun starts do not train alone") {
    const std::vector<std::string> run = {"train", "--training.dataset_path=tokens.h5"};
    expect_config_error(run_coeus(run, 0, {{"RANK", "0"}, {"WORLD_SIZE", "4"}}),
                        "started 4 processes, but MPI sees one rank: each of them would train alone");
    // one process, and a variable that another program may set
    expect_config_error(run_coeus(run, 0, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "tokens.h5");
    expect_config_error(run_coeus(run, 0, {{"WORLD_SIZE", "4"}}), "tokens.h5");
}

TEST_CASE("a command that does not run on ranks prints once under mpirun") {
    const std::vector<std::string> words = {"schedule", "--name=1F1B", "--pp=2", "--microbatches=4"};
    const Outcome alone = run_coeus(words), twice = run_coeus(words, 2);
    CAPTURE(alone.output, twice.output);
    CHECK(twice.exit_code == 0);
    CHECK(count_of("frames alive", alone.output) == 1);
    CHECK(count_of("frames alive", twice.output) == 1);
}

TEST_CASE("a dry run logs as little as its deck asks for") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
    const std::string data = "--training.dataset_path=" + (folder / "tokens.h5").string(),
                      length = "--training.seq_len=16";
    const Outcome loud = run_coeus({"train", "--dry_run", "--log.ranks=1", "--ranks=2", data, length});
    CHECK(loud.exit_code == 0);
    CHECK(count_of("info - Dry run: deck and mesh are valid; nothing was run", loud.output) == 1);
    const Outcome quiet = run_coeus({"train", "--dry_run", "--quiet", data, length});
    CHECK(quiet.exit_code == 0);
    CHECK(quiet.output.empty());
    expect_config_error(run_coeus({"train", "--dry_run", "--quiet", "--training.seq_len=0"}),
                        "training.seq_len = 0");
}

TEST_CASE("a dry run counts the reasons for which a run would be refused") {
    const Outcome one = run_coeus({"train", "--dry_run", "--quiet", "--training.dataset_path=no/such.h5"});
    INFO(one.output);
    CHECK(one.exit_code == 0);
    CHECK(count_of("warning - training.dataset_path = \"no/such.h5\"", one.output) == 1);
    CHECK(count_of("warning - Dry run: deck and mesh are valid, but a run would be refused (1 reason above); "
                   "nothing was run",
                   one.output) == 1);
    const Outcome two = run_coeus({"train", "--dry_run", "--quiet", "--loss.loss_fn=MSELoss"});
    INFO(two.output);
    CHECK(two.exit_code == 2);
    CHECK(count_of("(a real run refuses this)", two.output) == 1);
    CHECK(count_of("(a run needs it)", two.output) == 1);
    CHECK(count_of("a run would be refused (2 reasons above)", two.output) == 1);
}

TEST_CASE("with memory_estimation.enable a run plans and does not train") {
    const TemporaryFolder folder;
    const Outcome run =
        run_coeus(tiny_run(folder / "out", folder / "absent.h5", {"--memory_estimation.enable"}), 2);
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.output, Contains("this is a dry run") && Contains("memory plan per rank") &&
                               Contains("nothing was run"));
    CHECK_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_CASE("the version has three spellings") {
    const Outcome version = run_coeus({"--version"});
    CHECK(version.exit_code == 0);
    CHECK(version.output.starts_with("coeus "));
    for (const char* spelling : {"-V", "version"}) CHECK(run_coeus({spelling}).output == version.output);
}

TEST_CASE("help of the options") {
    const Outcome help = run_coeus({"help", "options"});
    CHECK(help.exit_code == 0);
    for (const char* word : {"option", "deck", "decks"})
        CHECK(run_coeus({"help", word}).output == help.output);
    CHECK_THAT(help.output, Contains("[training]") && Contains("--training.seq_len=2048"));
    const Outcome markdown = run_coeus({"help", "options", "--markdown"});
    CHECK(markdown.exit_code == 0);
    CHECK(markdown.output == read_file(std::filesystem::path(paths::source()) / "doc/decks.md"));
    expect_config_error(run_coeus({"help", "options", "--html"}),
                        "coeus help options: --html cannot be used here");
    const Outcome some = run_coeus({"help", "options", "shuffle", "optimizer.lr"});
    CHECK(some.exit_code == 0);
    CHECK(some.output.starts_with("[optimizer]\n  --optimizer.lr="));
    CHECK_THAT(some.output, Contains("--training.shuffle") && !Contains("--training.steps"));
    expect_config_error(run_coeus({"help", "options", "shufle"}),
                        "unknown option shufle; did you mean training.shuffle?");
}
