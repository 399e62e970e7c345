// SPDX-License-Identifier: Apache-2.0
// A second start in the folder of a run that is still alive; a start of the same job after it was requeued;
// and a run that lost its folder while it was suspended.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <functional>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

// Waits until a rank of the run suspends itself, then suspends all. Returns their process ids.
std::string suspended_ranks(const fs::path& run) {
    const std::string them = "pgrep -f '^" + paths::program() + " .*" + run.string() + "'",
                      one_is = "for rank in $(" + them +
                               "); do grep -q '^State:.T' /proc/$rank/status && exit 0; done; exit 1";
    wait_until("a rank suspends itself", [&] { return run_shell(one_is).exit_code == 0; });
    const Outcome all = run_shell("ranks=$(echo $(" + them + ")); kill -STOP $ranks && echo $ranks");
    REQUIRE(all.exit_code == 0);
    return all.output.substr(0, all.output.find('\n'));
}

// A run that is suspended after its second step until `meanwhile` has returned.
struct StoppedRun {
    TemporaryFolder folder;
    fs::path data = folder / "tokens.h5", out = folder / "run";
    Arguments arguments;
    Outcome outcome;

    StoppedRun(int ranks, const Arguments& more, const Environment& environment,
               const std::function<void(const StoppedRun&)>& meanwhile) {
        write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
        arguments = tiny_run(out, data, Arguments{"--checkpoint.enable", "--checkpoint.interval=1"} + more);
        const auto act = [&, two_steps = std::regex("step: *2 ")](const std::string& line) {
            if (!std::regex_search(line, two_steps)) return;
            // rank 0 suspends itself, then all ranks are suspended
            const std::string them = suspended_ranks(out);
            meanwhile(*this);
            CHECK(run_shell("kill -CONT " + them).exit_code == 0);
        };
        Environment all = environment;
        all["COEUS_FAULT"] = "stop rank=0 step=3";
        outcome =
            run_shell(coeus_line(arguments, ranks, all, fmt::format("timeout {}", whole_patience(100))), act);
    }
};

std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) all[fs::relative(entry, folder).string()] = read_file(entry);
    return all;
}

}  // namespace

TEST_CASE("owner: a second start is refused and changes nothing, and the first run continues") {
    const int ranks = GENERATE(0, 2);
    INFO(ranks << " ranks");
    const StoppedRun run(ranks, {}, {}, [&](const StoppedRun& first) {
        const auto before = contents(first.out);
        const auto refused = [&](const Arguments& more, const std::string& folder,
                                 const Environment& environment) {
            const Outcome second = run_coeus(first.arguments + more, ranks, environment);
            INFO(second.output);
            CHECK(second.exit_code == 2);
            CHECK(count_of(folder + " is used by another run, which is still alive: process ",
                           second.output) == 1);
            CHECK_THAT(second.output,
                       Contains(" on host ") && Contains(", since 20") && Contains("job.dump_folder"));
        };
        refused({"--optimizer.lr=5e-3"}, first.out.string(), {});
        refused({}, first.out.string(), {{"SLURM_JOB_ID", "12"}, {"SLURM_RESTART_COUNT", "1"}});
        CHECK(contents(first.out) == before);
        // the folder of checkpoints has its own owner
        refused({"--job.dump_folder=" + (first.folder.path() / "other").string(),
                 "--checkpoint.folder=" + (first.out / "checkpoint").string()},
                (first.out / "checkpoint").string(), {});
        CHECK_FALSE(fs::exists(first.folder.path() / "other/metrics.jsonl"));
        // commands that only read are not refused
        CHECK(run_coeus({"report", first.out.string()}).exit_code == 0);
    });
    INFO(run.outcome.output);
    CHECK(run.outcome.exit_code == 0);
    CHECK_THAT(run.outcome.output, Contains("Training completed at step 6"));
    CHECK(read_metrics(run.out).steps.size() == 6);
    CHECK_FALSE(fs::exists(run.out / ".owner"));
    CHECK_FALSE(fs::exists(run.out / "checkpoint/.owner"));
    // the folder is free again
    CHECK(run_coeus(run.arguments + Arguments{steps(7)}).exit_code == 0);
}

TEST_CASE("owner: a requeued start of the same job waits for the end of the earlier start") {
    std::string second;
    const StoppedRun run(0, {}, {{"SLURM_JOB_ID", "12"}}, [&](const StoppedRun& first) {
        second = first.folder / "second.log";
        const std::string line = coeus_line(first.arguments + Arguments{steps(8)}, 0,
                                            {{"SLURM_JOB_ID", "12"}, {"SLURM_RESTART_COUNT", "1"}});
        const Outcome waits =
            run_shell(fmt::format("({}; echo \"exit code $?\") >{} 2>&1 & until grep -q 'waiting for the end "
                                  "of an earlier start of this job' {}; do sleep 0.1; done",
                                  line, second, second));
        CHECK(waits.exit_code == 0);
    });
    INFO(run.outcome.output);
    CHECK(run.outcome.exit_code == 0);
    CHECK(run_shell(fmt::format("timeout {} sh -c 'until grep -q \"exit code\" {}; do sleep 0.1; done'",
                                whole_patience(60), second))
              .exit_code == 0);
    INFO(read_file(second));
    CHECK_THAT(read_file(second), Contains("Training completed at step 8") && Contains("exit code 0"));
    CHECK(read_metrics(run.out).steps.size() == 8);
}

TEST_CASE(
    "owner: a run that lost its folder while it was suspended ends with exit code 3 and changes nothing") {
    // a run that saves each step checks its owner's note before each save, any other now and then
    const auto [ranks, interval] = GENERATE(table<int, int>({{0, 1}, {2, 1}, {2, 100}}));
    INFO(ranks << " ranks, a checkpoint every " << interval << " steps");
    std::map<std::string, std::string> left;
    const TemporaryFolder job;
    const bool waits = interval > 1;
    const StoppedRun run(
        ranks, {"--checkpoint.async_mode=disabled", fmt::format("--checkpoint.interval={}", interval)},
        {{"COEUS_DONE_FILE", job / "done"}}, [&](const StoppedRun& suspended) {
            // as if the run had been resumed elsewhere in the meantime
            for (const char* owner : {".owner", "checkpoint/.owner"}) {
                std::string note = read_file(suspended.out / owner);
                note.replace(note.find("\"id\":\"") + 6, 16, "0123456789abcdef");
                write_file(suspended.out / owner, note);
            }
            // it checks again if the last check was 5 s ago: more is never wrong
            if (waits) CHECK(run_shell("sleep 6").exit_code == 0);
            left = contents(suspended.out);
        });
    INFO(run.outcome.output);
    CHECK(run.outcome.exit_code == 3);
    CHECK_THAT(run.outcome.output, Contains("this run has lost its folder " + run.out.string()) &&
                                       Contains("it ends without writing to it"));
    // what can still be kept, and what is lost
    CHECK_THAT(
        run.outcome.output,
        Contains(waits ? "Nothing of this run is saved"
                       : "Its last checkpoint is " + (run.out / checkpoint_of(2)).string() +
                             ": copy it elsewhere if you want to keep it, since the other run may remove it. "
                             "1 later step is not saved"));
    CHECK_THAT(run.outcome.output, !Contains("Training completed"));
    CHECK(read_file(job / "done") == "lost_folder\n");
    for (const auto& [file, content] : contents(run.out)) {
        // logs and the watchdog's report tell how the run ended
        if (file.starts_with("log/") || file.starts_with("comm_traces/")) continue;
        INFO(file);
        REQUIRE(left.contains(file));
        CHECK(content == left[file]);
    }
}

TEST_CASE("owner: a start that loses its folder while it loads a checkpoint changes nothing") {
    const int ranks = GENERATE(0, 2);
    INFO(ranks << " ranks");
    const TemporaryFolder folder;
    const fs::path out = folder / "run", log = folder / "log";
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
    const Arguments arguments =
        tiny_run(out, folder / "tokens.h5", {"--checkpoint.enable", "--checkpoint.interval=1"});
    REQUIRE(run_coeus(arguments + Arguments{steps(2)}, ranks).exit_code == 0);
    // the second start has other options, so that its deck.toml would differ
    const std::string line = coeus_line(arguments + Arguments{steps(4)}, ranks,
                                        {{"LD_PRELOAD", paths::hosts()},
                                         {"COEUS_TEST_STOP_AT", "step-00000002.h5"},
                                         {"COEUS_TEST_STOP_IF", (out / "checkpoint/.owner").string()}},
                                        fmt::format("timeout {}", whole_patience(100)));
    CHECK(run_shell(fmt::format("({}; echo \"exit code $?\") >{} 2>&1 & :", line, log.string())).exit_code ==
          0);
    const std::string ranks_of_it = suspended_ranks(out);
    INFO(read_file(log));
    for (const char* owner : {".owner", "checkpoint/.owner"}) {
        std::string note = read_file(out / owner);
        note.replace(note.find("\"id\":\"") + 6, 16, "0123456789abcdef");
        write_file(out / owner, note);
    }
    const auto left = contents(out);
    const Outcome ended = run_shell(
        fmt::format("kill -CONT {}; timeout {} sh -c 'until grep -q \"^exit code\" {}; do sleep 0.1; done'",
                    ranks_of_it, whole_patience(60), log.string()));
    REQUIRE(ended.exit_code == 0);
    CHECK_THAT(read_file(log), Contains("this run has lost its folder " + out.string()) &&
                                   Contains("\nexit code 3\n") && !Contains("Training starts"));
    for (const auto& [file, content] : contents(out)) {
        if (file.starts_with("log/") || file.starts_with("comm_traces/")) continue;
        INFO(file);
        REQUIRE(left.contains(file));
        CHECK(content == left.at(file));
    }
}

TEST_CASE("owner: a run on a file system without locks owns its folder, trains and resumes") {
    const int ranks = GENERATE(0, 2);
    INFO(ranks << " ranks");
    const Environment no_locks = {{"LD_PRELOAD", paths::hosts()}, {"COEUS_TEST_NO_LOCKS", "1"}};
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
    const Arguments arguments =
        tiny_run(folder / "run", folder / "tokens.h5",
                 {"--checkpoint.enable", "--checkpoint.interval=1", "--checkpoint.files=2"});
    for (const int64_t last : {3, 6}) {
        const Outcome run = run_coeus(arguments + Arguments{steps(last)}, ranks, no_locks);
        INFO(run.output);
        CHECK(run.exit_code == 0);
        CHECK_THAT(run.output, Contains(fmt::format("Training completed at step {}", last)));
    }
    CHECK(read_metrics(folder / "run").steps.size() == 6);
    CHECK_FALSE(fs::exists(folder / "run/.owner"));
}
