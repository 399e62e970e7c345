// SPDX-License-Identifier: Apache-2.0
// A network file system whose opens and reads fail now and then, or for ever for one file. No run ends for it
// unless it cannot do without the file, and no loss differs.
#include "coeus/base/text.hpp"
#include "coeus/io/checkpoint.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"
#include "support/paths.hpp"

#include <algorithm>
#include <cerrno>
#include <regex>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

Environment failing(const std::string& one_in, const std::string& in, const Environment& more = {}) {
    Environment all = {{"LD_PRELOAD", paths::bad_reads()},
                       {"COEUS_TEST_BAD_READS", one_in},
                       {"COEUS_TEST_BAD_READS_IN", in}};
    all.insert(more.begin(), more.end());
    return all;
}

// Kinds of runs: how they save, and on how many ranks.
struct Kind {
    Arguments options;
    int ranks;
};
const Kind kinds_of_runs[] = {{{}, 0},
                              {{"--checkpoint.async_mode=async"}, 0},
                              {{"--checkpoint.files=2", "--validation.enable", "--validation.freq=100"}, 0},
                              {{"--checkpoint.async_mode=async", "--checkpoint.files=2"}, 2}};

Arguments saving(int64_t count) {
    return {"--checkpoint.enable",
            fmt::format("--checkpoint.interval={}", count / 4),
            "--checkpoint.keep_latest_k=2",
            "--metrics.enable_tensorboard",
            fmt::format("--lr_scheduler.total_steps={}", count),
            steps(count)};
}

fs::path parts_of(fs::path checkpoint) {
    return checkpoint.replace_extension(".parts");
}

// Runs of so many steps, of which those that `part` takes have reads that fail, once begun and once resumed.
template <class Takes>
void run_with_bad_reads(int runs, int64_t count, const Takes& takes) {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5";
    write_token_file(data, {.tokens = learnable_tokens(400 * 17), .documents = {0, 1000, 5000, 400 * 17}});
    std::map<size_t, MetricLines> undisturbed;
    for (int run = 0; run < runs; ++run) {
        if (!takes()) continue;
        const auto number = size_t(run) % std::size(kinds_of_runs);
        const Kind& kind = kinds_of_runs[number];
        const fs::path good = folder / fmt::format("good_{}", number), out = folder / "disturbed";
        const Arguments options = kind.options + saving(count);
        if (!undisturbed.contains(number)) {
            train_tiny(good, data, options, kind.ranks);
            undisturbed[number] = read_metrics(good);
        }
        const Environment bad =
            failing("8", folder.path().string(), {{"COEUS_TEST_BAD_READS_SEED", std::to_string(run)}});
        const Outcome first =
            run_coeus(tiny_run(out, data, options + Arguments{steps(count / 2)}), kind.ranks, bad);
        const Outcome last = run_coeus(tiny_run(out, data, options), kind.ranks, bad);
        INFO("run " << run << "\n" << first.output << last.output);
        REQUIRE(first.exit_code == 0);
        REQUIRE(last.exit_code == 0);
        CHECK(count_of("cannot be used: ", first.output + last.output) > 0);
        CHECK_THAT(first.output + last.output, !Contains(" lost") && !Contains("checkpoint skipped") &&
                                                   !Contains("was not written") && !Contains(" - error - "));
        const MetricLines metrics = read_metrics(out);
        CHECK(metrics.losses() == undisturbed[number].losses());
        CHECK(metrics.steps.size() == size_t(count));
        CHECK(metrics.validations.size() == undisturbed[number].validations.size());
        CHECK(verify_checkpoint((out / checkpoint_of(count)).string()).empty());
        if (!fs::exists(parts_of(good / checkpoint_of(count))))
            CHECK(differing_arrays(good / checkpoint_of(count), out / checkpoint_of(count)).empty());
        // a save that cannot read the folder removes nothing, so there may be more
        const std::vector<std::string> files = files_in(out / "checkpoint");
        for (const std::string& file : files_in(good / "checkpoint"))
            CHECK(std::ranges::find(files, file) != files.end());
        fs::remove_all(out);
    }
}

}  // namespace

TEST_CASE("bad reads: one in eight opens and reads fails, and no run ends and no loss differs") {
    Part part("bad reads", 1, {.check_all = 10, .short_list = 200});
    run_with_bad_reads(200, 200, [&] { return part.takes_next(); });
}

TEST_CASE("soak: 200 runs with bad reads have the losses of undisturbed runs", "[.soak]") {
    run_with_bad_reads(200, 200, [] { return true; });
}

TEST_CASE("bad reads: a patience must be a number") {
    for (const char* patience : {"abc", "5min", "nan", "-1", "86401", ""}) {
        const Outcome run = run_coeus({"info", "."}, 0, {{"COEUS_READ_PATIENCE", patience}});
        INFO(run.output);
        CHECK(run.exit_code == 2);
        CHECK_THAT(run.output,
                   Contains(fmt::format(
                       "COEUS_READ_PATIENCE = {}: must be a number of seconds from 0 to 86400", patience)));
    }
}

TEST_CASE("bad reads: a run continues without the files that it can do without") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", out = folder / "run";
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    struct Case {
        const char *in, *says;
        int error;
    };
    const auto [in, says, error] = GENERATE(
        Case{"run/.owner", R"(run/\.owner cannot be read: Stale file handle\. No other run has the folder)",
             ESTALE},
        Case{"checkpoint/.owner", R"(checkpoint/\.owner cannot be read: Input/output error\. No other run)",
             EIO},
        Case{"run/.owner", R"(run/\.owner cannot be read: Permission denied\. No other run has the folder)",
             EACCES},
        Case{"run/.owner", R"(run/\.owner cannot be read: Too many open files\. No other run has the f)",
             EMFILE},
        Case{"run/goodput.jsonl", "goodput", EIO});
    // from the first checkpoint on, and for ever
    const Outcome run = run_coeus(
        tiny_run(out, data,
                 {"--checkpoint.enable", "--checkpoint.interval=1", "--checkpoint.folder=checkpoint"}),
        0,
        failing("1", in,
                {{"COEUS_TEST_BAD_READS_ERROR", std::to_string(error)},
                 {"COEUS_READ_PATIENCE", "0.01"},
                 {"COEUS_TEST_BAD_READS_IF", (out / checkpoint_of(1)).string()}}));
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK(std::regex_search(run.output, std::regex(says)));
    CHECK(count_of("No other run has the folder", run.output) <= 1);
    CHECK(fs::exists(out / checkpoint_of(6)));
}

TEST_CASE("bad reads: a file that a run cannot do without is named after the patience has ended") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", out = folder / "run";
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    const Outcome run = run_coeus(tiny_run(out, data, {"--checkpoint.enable", "--checkpoint.interval=1"}), 0,
                                  failing("1", "data.h5",
                                          {{"COEUS_TEST_BAD_READS_ERROR", std::to_string(ESTALE)},
                                           {"COEUS_READ_PATIENCE", "0.01"},
                                           {"COEUS_TEST_BAD_READS_IF", (out / checkpoint_of(1)).string()}}));
    INFO(run.output);
    CHECK(run.exit_code == 3);
    CHECK(count_of(data.string() + " cannot be used: Stale file handle. Trying again, for at most 0.01 s",
                   run.output) == 1);
    CHECK_THAT(run.output, Contains("error - " + data.string() + " cannot be read: Stale file handle"));
}

TEST_CASE("bad reads: commands wait for their files") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", out = folder / "run", text = folder / "text";
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    train_tiny(out, data, {"--checkpoint.enable", steps(2)});
    for (const char* name : {"a.txt", "b.jsonl", "below/c.txt"}) {
        fs::create_directories((text / name).parent_path());
        write_file(text / name, "{\"text\": \"some words\"}\n");
    }
    const std::string tokenizer = folder / "tokenizer", checkpoint = out / checkpoint_of(2);
    REQUIRE(run_coeus({"tokenizer", text / "a.txt", "--vocab_size=260", "--output", tokenizer}).exit_code ==
            0);
    struct Case {
        Arguments command;
        const char* says;
    };
    const Case cases[] = {
        {{"info", out}, "step-00000002.h5"},
        {{"info", checkpoint}, "step"},
        {{"report", out, "--force", "--output", folder / "page.html"}, "page.html"},
        {{"tokenize", text, "--force", "--tokenizer", tokenizer, "--output", folder / "text.h5"},
         "3 documents"},
        {{"convert", out, folder / "weights.h5", "--force", "--only=model"}, "weights.h5"}};
    for (const auto& [command, says] : cases) {
        int64_t waits = 0;
        for (int seed = 0; seed < 8; ++seed) {  // each makes other calls fail
            const Outcome run = run_coeus(command, 0,
                                          failing("4", folder.path().string(),
                                                  {{"COEUS_READ_PATIENCE", "60"},
                                                   {"COEUS_TEST_BAD_READS_SEED", std::to_string(seed)}}));
            INFO(join(command, " ") << "\n" << run.output);
            CHECK(run.exit_code == 0);
            CHECK_THAT(run.output, Contains(says));
            waits += count_of("Trying again, for at most 60 s", run.output);
        }
        CHECK(waits > 0);
    }
}

TEST_CASE("bad reads: what cannot be looked at does not count as absent") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", out = folder / "run";
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    train_tiny(out, data, {"--checkpoint.enable", steps(2)});
    const auto run_without = [&](const fs::path& file, const Arguments& command) {
        return run_coeus(
            command, 0,
            failing("1", file.string(),
                    {{"COEUS_TEST_BAD_READS_ERROR", std::to_string(EIO)}, {"COEUS_READ_PATIENCE", "0.01"}}));
    };
    SECTION("a file or a folder that a command would replace") {
        const fs::path target = folder / GENERATE("weights.h5", "hub");
        REQUIRE(run_coeus({"convert", out, target}).exit_code == 0);
        const std::vector<std::string> before = files_in(folder.path());
        const Outcome run = run_without(target, {"convert", out, target});
        INFO(run.output);
        CHECK(run.exit_code == 3);
        CHECK_THAT(run.output, Contains(target.string() + " cannot be"));
        CHECK(files_in(folder.path()) == before);
    }
    SECTION("the checkpoints of a run") {
        const fs::path checkpoints = out / "checkpoint";
        const Arguments options = tiny_run(out, data, {"--checkpoint.enable"});
        Arguments question = {"info"};
        question.insert(question.end(), options.begin() + 1, options.end());
        question.emplace_back("--newest_step");
        CHECK_THAT(run_coeus(question).output, Contains("2\n"));
        const Outcome asked = run_without(checkpoints, question);
        INFO(asked.output);
        CHECK(asked.exit_code == 3);
        CHECK_THAT(asked.output, Contains(checkpoints.string() + " cannot be listed: Input/output error"));
        const Outcome dry = run_without(checkpoints, options + Arguments{"--dry_run"});
        INFO(dry.output);
        CHECK_THAT(dry.output, Contains("cannot be listed: Input/output error (on this host)"));
    }
    SECTION("what a dry run looks for") {
        const std::string weights = (folder / "weights.h5").string();
        write_file(weights, "");
        const Outcome run = run_without(
            weights, tiny_run(out, data, {"--dry_run", "--checkpoint.initial_load_path=" + weights}));
        INFO(run.output);
        CHECK_THAT(
            run.output,
            Contains(fmt::format(
                "checkpoint.initial_load_path = \"{0}\": {0} cannot be read: Input/output error", weights)));
    }
    SECTION("a folder that this user may write to") {
        const std::string log = (out / "log").string();
        const Outcome run = run_coeus(tiny_run(out, data, {"--checkpoint.enable"}), 0,
                                      failing("1", log,
                                              {{"COEUS_TEST_BAD_READS_ERROR", std::to_string(EIO)},
                                               {"COEUS_TEST_BAD_READS_CALL", "access"},
                                               {"COEUS_READ_PATIENCE", "0.01"}}));
        INFO(run.output);
        CHECK(run.exit_code == 3);
        CHECK_THAT(run.output,
                   Contains(fmt::format("job.dump_folder: cannot write to {}: Input/output error", log)));
    }
    SECTION("a renamed checkpoint keeps its parts") {
        const Arguments options = {"--checkpoint.enable", "--checkpoint.interval=1", "--checkpoint.files=2",
                                   "--checkpoint.keep_latest_k=2"};
        const fs::path parts_run = folder / "parts", best = parts_run / "checkpoint/best.h5",
                       newest = parts_run / checkpoint_of(2);
        train_tiny(parts_run, data, options + Arguments{steps(2)});
        fs::rename(newest, best);
        fs::copy_file(best, newest);
        const Outcome run = run_without(best, tiny_run(parts_run, data, options + Arguments{steps(5)}));
        INFO(run.output);
        CHECK(run.exit_code == 0);
        CHECK(verify_checkpoint(best.string()).empty());
        CHECK_FALSE(fs::exists(newest));
    }
}

TEST_CASE(
    "a folder in the place of a checkpoint ends a run with exit code 2: the same run would fail again") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", out = folder / "run", in_the_way = out / checkpoint_of(1);
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    fs::create_directories(in_the_way);
    const std::string mode = GENERATE("disabled", "async");
    const Outcome run = run_coeus(tiny_run(
        out, data, {"--checkpoint.enable", "--checkpoint.interval=1", "--checkpoint.async_mode=" + mode}));
    INFO(run.output);
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.output, Contains(in_the_way.string() + " is not saved: ") &&
                               Contains(": Is a directory") && Contains("; there is no earlier checkpoint"));
    CHECK(fs::is_directory(in_the_way));
}

TEST_CASE("bad reads: links planted in a run's folder are not followed") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", out = folder / "run", victim = folder / "victim";
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    const std::string content = "somebody's work";
    const Arguments arguments = tiny_run(out, data, {"--checkpoint.enable", steps(2)});
    const auto plant = [&](const fs::path& link) {
        write_file(victim, content);
        fs::create_directories((out / link).parent_path());
        fs::create_symlink(victim, out / link);
    };
    SECTION("files that are appended to") {
        for (const char* link : {"log/rank_0.log", "goodput.jsonl"}) {
            plant(link);
            const Outcome run = run_coeus(arguments);
            INFO(run.output);
            CHECK(run.exit_code == 2);
            CHECK_THAT(run.output,
                       Contains(fmt::format("cannot write {}: it is a symbolic link, and a run does not "
                                            "follow a link to one of its files. Remove it",
                                            (out / link).string())));
            CHECK(read_file(victim) == content);
            fs::remove(out / link);
        }
    }
    SECTION("files that are replaced") {
        const char* links[] = {"metrics.jsonl.part", "deck.toml", "deck.toml.part", "report.html",
                               "report.html.part"};
        for (const char* link : links) plant(link);
        const Outcome run = run_coeus(arguments);
        INFO(run.output);
        CHECK(run.exit_code == 0);
        CHECK(read_file(victim) == content);
        for (const char* file : {"metrics.jsonl", "deck.toml", "report.html"})
            CHECK(fs::symlink_status(out / file).type() == fs::file_type::regular);
    }
    SECTION("folders may be links") {
        const fs::path scratch = folder / "scratch";
        for (const char* name : {"run", "checkpoint"}) fs::create_directories(scratch / name);
        fs::create_symlink(scratch / "run", out);
        fs::create_symlink(scratch / "checkpoint", out / "checkpoint");
        const Outcome run = run_coeus(arguments);
        INFO(run.output);
        CHECK(run.exit_code == 0);
        CHECK(fs::exists(scratch / "checkpoint/step-00000002.h5"));
        CHECK(fs::exists(scratch / "run/metrics.jsonl"));
    }
}
