// SPDX-License-Identifier: Apache-2.0
// A second start in the folder of a run that is still there, a start of the same job that was queued again,
// and a run that was suspended and has lost its folder.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <functional>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

// A run that is stopped after its second step, until `meanwhile` has been done.
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
            // rank 0 stops itself; then all are stopped
            const std::string ranks_of_it = "pgrep -f '^" COEUS_PROGRAM " .*" + out.string() + "'";
            const Outcome stopped =
                run_shell("ranks=$(" + ranks_of_it +
                          "); for i in $(seq 1000); do cat /proc/$(echo $ranks | sed 's:  *:/status "
                          "/proc/:g')/status | grep -q '^State:.T' && break; "
                          "sleep 0.05; done; kill -STOP $ranks; echo $ranks");
            REQUIRE(stopped.exit_code == 0);
            const std::string them = stopped.output.substr(0, stopped.output.find('\n'));
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

TEST_CASE("owner: a second start is refused and changes nothing, the first run continues") {
    const int ranks = GENERATE(0, 2);
    INFO(ranks << " ranks");
    const StoppedRun run(ranks, {}, {}, [&](const StoppedRun& first) {
        const auto before = contents(first.out);
        const auto refused = [&](const Arguments& more, const std::string& folder,
                                 const Environment& environment) {
            const Outcome second = run_coeus(first.arguments + more, ranks, environment);
            INFO(second.output);
            CHECK(second.exit_code == 2);
            CHECK(count_of(folder + " belongs to a run that is still there: process ", second.output) == 1);
            CHECK_THAT(second.output,
                       Contains(" on host ") && Contains(", since 20") && Contains("job.dump_folder"));
        };
        refused({"--optimizer.lr=5e-3"}, first.out.string(), {});
        refused({}, first.out.string(), {{"SLURM_JOB_ID", "12"}, {"SLURM_RESTART_COUNT", "1"}});
        CHECK(contents(first.out) == before);
        // the folder of checkpoints has an owner of its own
        refused({"--job.dump_folder=" + (first.folder.path() / "other").string(),
                 "--checkpoint.folder=" + (first.out / "checkpoint").string()},
                (first.out / "checkpoint").string(), {});
        CHECK_FALSE(fs::exists(first.folder.path() / "other/metrics.jsonl"));
        // who only reads is not refused
        CHECK(run_coeus({"report", first.out.string()}).exit_code == 0);
    });
    INFO(run.outcome.output);
    CHECK(run.outcome.exit_code == 0);
    CHECK_THAT(run.outcome.output, Contains("Training completed at step 6"));
    CHECK(read_metrics(run.out).steps.size() == 6);
    CHECK_FALSE(fs::exists(run.out / ".owner"));
    CHECK_FALSE(fs::exists(run.out / "checkpoint/.owner"));
    // its folder is free again
    CHECK(run_coeus(run.arguments + Arguments{steps(7)}).exit_code == 0);
}

TEST_CASE("owner: a start of the same job that was queued again waits for the end of the earlier one") {
    std::string second;
    const StoppedRun run(0, {}, {{"SLURM_JOB_ID", "12"}}, [&](const StoppedRun& first) {
        second = first.folder / "second.log";
        const std::string line = coeus_line(first.arguments + Arguments{steps(8)}, 0,
                                            {{"SLURM_JOB_ID", "12"}, {"SLURM_RESTART_COUNT", "1"}});
        const Outcome waits = run_shell(
            fmt::format("({}; echo \"exit code $?\") >{} 2>&1 & until grep -q 'waits for the end of an "
                        "earlier start of this job' {}; do sleep 0.1; done",
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

TEST_CASE("owner: a run that was suspended and has lost its folder ends with 3 and touches nothing") {
    const int ranks = GENERATE(0, 2);
    INFO(ranks << " ranks");
    std::map<std::string, std::string> left;
    const TemporaryFolder job;
    const StoppedRun run(ranks, {"--checkpoint.async_mode=disabled"}, {{"COEUS_DONE_FILE", job / "done"}},
                         [&](const StoppedRun& suspended) {
                             // as if it had been resumed elsewhere meanwhile
                             for (const char* owner : {".owner", "checkpoint/.owner"}) {
                                 std::string note = read_file(suspended.out / owner);
                                 note.replace(note.find("\"id\":\"") + 6, 16, "0123456789abcdef");
                                 write_file(suspended.out / owner, note);
                             }
                             // the owner of a folder is looked at again after 5 s without a look
                             CHECK(run_shell("sleep 6").exit_code == 0);
                             left = contents(suspended.out);
                         });
    INFO(run.outcome.output);
    CHECK(run.outcome.exit_code == 3);
    CHECK_THAT(run.outcome.output, Contains("this run has lost its folder " + run.out.string()) &&
                                       Contains("it writes nothing more"));
    CHECK_THAT(run.outcome.output, !Contains("Training completed"));
    CHECK(read_file(job / "done") == "lost_folder\n");
    for (const auto& [file, content] : contents(run.out)) {
        // logs and the watchdog's report say how it ended
        if (file.starts_with("log/") || file.starts_with("comm_traces/")) continue;
        INFO(file);
        REQUIRE(left.contains(file));
        CHECK(content == left[file]);
    }
}

TEST_CASE("owner: a run on a file system without locks owns its folder, trains and resumes") {
    const int ranks = GENERATE(0, 2);
    INFO(ranks << " ranks");
    const Environment no_locks = {{"LD_PRELOAD", COEUS_HOSTS}, {"COEUS_TEST_NO_LOCKS", "1"}};
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
