// SPDX-License-Identifier: Apache-2.0
// The places that a run writes to, inside its folder and elsewhere, are made before it starts. Files that are
// already there are kept.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/event_file.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

struct Place {
    TemporaryFolder folder;
    fs::path data = folder / "tokens.h5", out = folder / "out";
    Place() { write_token_file(data, {.tokens = learnable_tokens(30 * 17)}); }

    void refuses(const Arguments& more, const std::string& message) const {
        const Outcome run = run_coeus(tiny_run(out, data, more), 2);
        INFO(run.output);
        CHECK(run.exit_code == 2);
        CHECK(count_of(" - error - " + message, run.output) == 1);
        CHECK(count_of(" - error - ", run.output) == 1);
        CHECK_FALSE(fs::exists(out / "metrics.jsonl"));
    }
};

}  // namespace

TEST_CASE(
    "relative paths are inside the run's folder, absolute ones are not, and nested folders are created") {
    const Place place;
    const auto run = [&](const std::string& root) {
        return Arguments{steps(2),
                         "--job.save_config_file=" + root + "a/b.toml",
                         "--checkpoint.enable",
                         "--checkpoint.folder=" + root + "saved/here",
                         "--metrics.enable_tensorboard",
                         "--metrics.save_tb_folder=" + root + "events/here",
                         "--profiling.enable_profiling",
                         "--profiling.profile_freq=2",
                         "--profiling.profiler_warmup=0",
                         "--profiling.save_traces_folder=" + root + "traces/here",
                         "--profiling.enable_memory_snapshot",
                         "--profiling.save_memory_snapshot_folder=" + root + "memory/here"};
    };
    const auto check = [&](const fs::path& root) {
        CHECK(read_file(root / "a/b.toml") == read_file(place.out / "deck.toml"));
        CHECK(fs::exists(root / "saved/here/step-00000002.h5"));
        CHECK(event_files(root / "events/here").size() == 1);
        CHECK(fs::exists(root / "traces/here/iteration_2/rank0_trace.json"));
        CHECK_FALSE(fs::is_empty(root / "memory/here"));
    };
    train_tiny(place.out, place.data, run(""));
    check(place.out);
    fs::remove_all(place.out);
    train_tiny(place.out, place.data, run((place.folder / "elsewhere/").string()));
    check(place.folder / "elsewhere");
    CHECK_FALSE(fs::exists(place.out / "saved"));
}

TEST_CASE("a path that cannot be written to ends the run before it starts") {
    const Place place;
    const std::string file = place.data.string();
    place.refuses({"--checkpoint.enable", "--checkpoint.folder=" + file + "/x"},
                  "checkpoint.folder = \"" + file + "/x\": " + file + " is a file; choose a folder");
    place.refuses({"--metrics.enable_tensorboard", "--metrics.save_tb_folder=/proc/coeus"},
                  "metrics.save_tb_folder: cannot create the folder /proc/coeus: ");
    place.refuses({"--profiling.enable_profiling", "--profiling.save_traces_folder=" + file},
                  "profiling.save_traces_folder = \"" + file + "\": ");
    place.refuses({"--profiling.enable_memory_snapshot", "--profiling.save_memory_snapshot_folder=" + file},
                  "profiling.save_memory_snapshot_folder = \"" + file + "\": ");
    place.refuses({"--job.save_config_file=" + file + "/b.toml"},
                  "job.save_config_file = \"" + file + "\": " + file + " is a file; choose a folder");
    place.refuses({"--job.save_config_file=log"},
                  "job.save_config_file = \"log\": " + (place.out / "log").string() +
                      " is a folder; give the name of a file");
    const Outcome in_file = run_coeus(tiny_run(place.data, place.data), 2);
    CHECK(in_file.exit_code == 2);
    CHECK_THAT(in_file.output,
               Contains("job.dump_folder = \"" + file + "\": " + file + " is a file; choose a folder"));
    // the folder of an output that is not requested is not checked
    train_tiny(place.out, place.data, {steps(1), "--metrics.save_tb_folder=/proc/coeus"});
}

TEST_CASE("a new run keeps the files of the run that was in its folder") {
    const Place place;
    const Arguments more = {"--metrics.enable_tensorboard", steps(3)};
    CHECK_FALSE(fs::exists(place.out));
    train_tiny(place.out, place.data, more + Arguments{"--optimizer.lr=1e-3"}, 2);
    const std::string first = read_file(place.out / "metrics.jsonl"),
                      deck = read_file(place.out / "deck.toml");
    const fs::path aside = place.out / "earlier_1";
    CHECK_FALSE(fs::exists(aside));

    const Outcome second = train_tiny(place.out, place.data, more + Arguments{"--optimizer.lr=2e-3"}, 2);
    CHECK(count_of(place.out.string() + " had files of an earlier run: its metrics were moved to " +
                       aside.string(),
                   second.output) == 1);
    CHECK(read_file(aside / "metrics.jsonl") == first);
    CHECK(read_file(aside / "deck.toml") == deck);
    CHECK(fs::exists(aside / "report.html"));
    CHECK(event_files(aside / "tb").size() == 1);
    CHECK(event_files(place.out / "tb").size() == 1);
    CHECK(read_metrics(place.out).steps.size() == 3);
    CHECK(read_metrics(place.out).steps[2].loss != read_metrics(aside).steps[2].loss);
    const Outcome report = run_coeus({"report", aside.string(), place.out.string()});
    INFO(report.output);
    CHECK(report.exit_code == 0);
    CHECK_THAT(report.output, Contains("0.001") && Contains("0.002"));

    // without a checkpoint, a start is a new run as well; a resumed run appends to its own files
    const Arguments saving = more + Arguments{"--checkpoint.enable"};
    CHECK_THAT(train_tiny(place.out, place.data, saving).output,
               Contains("moved to " + place.out.string() + "/earlier_2"));
    const Outcome resumed = train_tiny(place.out, place.data, saving + Arguments{steps(5)});
    CHECK_THAT(resumed.output, !Contains("earlier_"));
    CHECK_FALSE(fs::exists(place.out / "earlier_3"));
    CHECK(read_metrics(place.out).steps.size() == 5);
}

TEST_CASE(
    "if a start is killed while it moves an earlier run's files aside, the next start completes the move") {
    const Place place;
    const Arguments more = {"--metrics.enable_tensorboard", steps(2)};
    train_tiny(place.out, place.data, more);
    const std::string first = read_file(place.out / "metrics.jsonl");
    const fs::path begun = place.out / "earlier.part", aside = place.out / "earlier_1";
    const bool metrics_moved = GENERATE(false, true);
    INFO("metrics.jsonl was moved: " << metrics_moved);
    fs::create_directory(begun);
    for (const char* name : {"goodput.jsonl", "deck.toml", "tb"}) fs::rename(place.out / name, begun / name);
    if (metrics_moved) fs::rename(place.out / "metrics.jsonl", begun / "metrics.jsonl");

    const Outcome next = train_tiny(place.out, place.data, more);
    CHECK(count_of("its metrics were moved to " + aside.string(), next.output) == 1);
    CHECK(read_file(aside / "metrics.jsonl") == first);
    for (const char* name : {"goodput.jsonl", "deck.toml", "tb"}) CHECK(fs::exists(aside / name));
    CHECK_FALSE(fs::exists(begun));
    CHECK_FALSE(fs::exists(place.out / "earlier_2"));
    CHECK(event_files(place.out / "tb").size() == 1);
}

TEST_CASE("a finished run's folder is refused to another deck, and the same deck has nothing left to do") {
    const Place place;
    const Arguments more = {"--checkpoint.enable", steps(2)};
    train_tiny(place.out, place.data, more, 2);
    const std::string metrics = read_file(place.out / "metrics.jsonl");
    CHECK_THAT(train_tiny(place.out, place.data, more, 2).output, Contains("already at step 2"));
    const Outcome other =
        run_coeus(tiny_run(place.out, place.data, more + Arguments{"--optimizer.lr=5e-3"}), 2);
    INFO(other.output);
    CHECK(other.exit_code == 2);
    CHECK(count_of(place.out.string() +
                       " contains a finished run (step 2) with a different deck: optimizer.lr was ",
                   other.output) == 1);
    const std::string advice = "--job.dump_folder=\"" + place.out.string() + "/{optimizer.lr}\"";
    CHECK_THAT(other.output, Contains(advice) && Contains("training.steps"));
    CHECK(read_file(place.out / "metrics.jsonl") == metrics);
    // both remedies
    train_tiny(place.out.string() + "/{optimizer.lr}", place.data, more + Arguments{"--optimizer.lr=5e-3"});
    CHECK(fs::exists(place.out / "0.005/metrics.jsonl"));
    CHECK_THAT(train_tiny(place.out, place.data, more + Arguments{"--optimizer.lr=5e-3", steps(3)}, 2).output,
               Contains("the rate may jump") && Contains("Training completed at step 3"));
}

TEST_CASE("a run resumes in a folder whose name has a line break") {
    const Place place;
    const fs::path odd = place.folder / "two\nlines";
    train_tiny(odd, place.data, {steps(2), "--checkpoint.enable"});
    const Outcome resumed = train_tiny(odd, place.data, {steps(3), "--checkpoint.enable"});
    CHECK_THAT(resumed.output, Contains("Resuming from ") && Contains("Training completed at step 3"));
}

TEST_CASE("a dry run prints and writes the effective deck, and names where values were given") {
    const Place place;
    write_file(place.folder / "my.toml", "[optimizer]\nweight_decay = 0.2\n");
    const Outcome run =
        run_coeus(tiny_run(place.out, place.data,
                           {(place.folder / "my.toml").string(), "--dry_run", "--job.print_config",
                            "--job.save_config_file=saved.toml", "--training.steps=3"}));
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.output,
               Contains("\nsteps = 3  # command line\n") &&
                   Contains("\nweight_decay = 0.2  # " + (place.folder / "my.toml").string() + ":2:1\n") &&
                   Contains("\nbeta1 = 0.9\n"));
    CHECK_THAT(read_file(place.out / "saved.toml"), Contains("\nsteps = 3\n"));
    const Outcome again =
        run_coeus(tiny_run(place.out, place.data, {"--dry_run", "--job.save_config_file=saved.toml"}));
    CHECK(again.exit_code == 2);
    CHECK_THAT(again.output, Contains("saved.toml already exists, and a dry run does not replace files"));
    CHECK_THAT(read_file(place.out / "saved.toml"), Contains("\nsteps = 3\n"));
    write_file(place.folder / "text.txt", "text");
    const Outcome no_tokenizer =
        run_coeus(tiny_run(place.out, place.folder / "text.txt", {"--dry_run", "--strict"}), 0, {},
                  place.folder.path());
    CHECK(no_tokenizer.exit_code == 2);
    CHECK_THAT(no_tokenizer.output, Contains("a run needs it to tokenize text"));
}
