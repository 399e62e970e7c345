// SPDX-License-Identifier: Apache-2.0
// Typical failures on clusters, injected into one rank of a run (COEUS_FAULT). The report names the rank and
// the cause, the run ends with exit code 3, and no process is left.
#include "coeus/comm/mpi.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/skip.hpp"

#include <csignal>
#include <functional>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

struct FaultyRun {
    // long enough for a rank that is merely slow
    const int64_t time_out = whole_patience(2);
    TemporaryFolder folder;
    Outcome outcome, done_meanwhile;

    // `ranks_per_host`: 0 means all on one host. `meanwhile` returns a shell command that is run after two
    // steps.
    FaultyRun(const std::string& fault, int ranks, const Arguments& more = {}, int ranks_per_host = 0,
              const std::function<std::string(const fs::path& folder)>& meanwhile = {}) {
        write_token_file(folder / "tokens.h5",
                         {.tokens = learnable_tokens(80 * 17), .documents = {0, 600, 80 * 17}});
        std::map<std::string, std::string> environment = {{"COEUS_FAULT", fault}};
        // mpirun waits so long after a death before it kills the other ranks, which report it in the meantime
        if (fault.starts_with("exit"))
            environment["OMPI_MCA_odls_base_sigkill_timeout"] = std::to_string(whole_patience(1));
        if (ranks_per_host > 0) {
            environment["LD_PRELOAD"] = paths::hosts();
            environment["COEUS_TEST_RANKS_PER_HOST"] = std::to_string(ranks_per_host);
        }
        const Arguments arguments =
            tiny_run(folder / "run", folder / "tokens.h5",
                     Arguments{"--training.local_batch_size=1",
                               fmt::format("--comm.train_timeout_seconds={}", time_out)} +
                         more);
        if (meanwhile) {
            const auto act = [&, two_steps = std::regex("step: *2 ")](const std::string& line) {
                if (!std::regex_search(line, two_steps)) return;
                done_meanwhile = run_shell(meanwhile(folder / "run"));
            };
            outcome = run_shell(
                coeus_line(arguments, ranks, environment, fmt::format("timeout {}", whole_patience(60))),
                act);
            UNSCOPED_INFO(done_meanwhile.output);
            CHECK(done_meanwhile.exit_code == 0);
        } else {
            outcome = run_coeus(arguments, ranks, environment);
        }
        UNSCOPED_INFO(outcome.output);
        CHECK(processes_left(folder / "run", patience(20)) == "");
    }

    // The folder of the run's only start, inside its folder of traces.
    fs::path meeting_place() const {
        fs::path place;
        for (const auto& entry : fs::directory_iterator(folder / "run/comm_traces"))
            if (entry.is_directory()) place = entry.path();
        return place;
    }

    void ended_with(const std::string& cause) const {
        // mpirun of MPICH kills the other ranks when the first one ends, and may return that as exit code
        if (MpiRuntime::library_version().starts_with("Open MPI"))
            CHECK(outcome.exit_code == 3);
        else
            CHECK((outcome.exit_code == 3 || outcome.exit_code == 9));
        CHECK_THAT(outcome.output, Contains("Likely cause: " + cause));
        CHECK(count_of("Likely cause", outcome.output) == 1);
        CHECK_THAT(read_file(folder / "run/comm_traces/report.txt"), Contains("Likely cause: " + cause));
    }

    // Detected by the time-out, at the first check after it; tests/unit/watchdog/time_out.cpp tests when that
    // is.
    void ended_by_time_out(const std::string& cause) const {
        ended_with(cause);
        std::smatch waited;
        REQUIRE(std::regex_search(outcome.output, waited, std::regex("has not ended after ([0-9.]+) s")));
        CHECK(std::stod(waited[1]) >= double(time_out));
    }
};

// Shell text that gives the process ids of the ranks.
std::string ranks_of(const fs::path& run) {
    return "$(pgrep -f '^" + paths::program() + " .*" + run.string() + "')";
}

const std::string rank_1 = "rank 1 \\(host [^)]*\\) ";

void check_cause(const FaultyRun& run, const std::string& cause) {
    CHECK(std::regex_search(run.outcome.output, std::regex("Likely cause: " + cause)));
}

}  // namespace

TEST_CASE("hangs: a rank that starts a collective and does not continue") {
    const FaultyRun run("hang_in_collective rank=1 step=3", 3);
    run.ended_by_time_out("rank 1 (host ");
    check_cause(
        run,
        rank_1 + "has entered the operation in which the others wait, but is held up there outside of MPI");
    CHECK_THAT(run.outcome.output, Contains("coeus::Communicator::all_reduce in coeus"));
}

TEST_CASE(
    "hangs: a rank that does not continue while it gathers weights, and the other ranks, which sleep in the "
    "meantime") {
    const FaultyRun run("hang_in_collective rank=1 step=3 operation=all_gather", 3);
    run.ended_by_time_out("rank 1 (host ");
    check_cause(
        run,
        rank_1 + "has entered the operation in which the others wait, but is held up there outside of MPI");
    CHECK_THAT(run.outcome.output, Contains("coeus::Communicator::all_gather in coeus"));
    CHECK(std::regex_search(run.outcome.output, std::regex("\n *0, 2 +all_gather .* s  rank 1\n")));
}

TEST_CASE("hangs: a rank that skips a collective") {
    const FaultyRun run("skip_collective rank=1 step=3", 3);
    run.ended_by_time_out("rank 1 (host ");
    CHECK_THAT(run.outcome.output, Contains("an operation was left out, or c"));
}

TEST_CASE("hangs: a rank that is slow") {
    const FaultyRun run("slow rank=2 step=3", 4,
                        {"--parallelism.pipeline_parallel_degree=2", "--training.local_batch_size=2"});
    run.ended_by_time_out("rank 2 (host ");
    CHECK_THAT(run.outcome.output, Contains(") has not reached the operation in which others wait: slower"));
    CHECK_THAT(run.outcome.output, Contains("coeus::Faults::at_step in coeus"));
    CHECK_THAT(run.outcome.output, Contains(fmt::format("comm.train_timeout_seconds = {})", run.time_out)));
    CHECK(fs::exists(run.meeting_place() / "rank_3.json"));
}

TEST_CASE("hangs: before the end of the first step the longer time-out counts") {
    const int64_t time_out = whole_patience(2);
    const FaultyRun run(fmt::format("slow rank=1 step=1 seconds={}", time_out + 1), 2,
                        {fmt::format("--comm.train_timeout_seconds={}", time_out),
                         fmt::format("--comm.init_timeout_seconds={}", 30 * time_out), steps(1)});
    CHECK(run.outcome.exit_code == 0);
    CHECK_THAT(run.outcome.output, !Contains("Likely cause"));
    CHECK_FALSE(fs::exists(run.folder / "run/comm_traces"));
}

TEST_CASE("hangs: a rank that waits for its data") {
    const FaultyRun run("slow_data rank=1 step=3", 3);
    run.ended_by_time_out("rank 1 (host ");
    check_cause(run, rank_1 + "is waiting for data");
}

TEST_CASE("hangs: a slow disk") {
    const bool beside = GENERATE(false, true);
    const FaultyRun run("slow_disk rank=1 step=3", 2,
                        {"--checkpoint.enable", "--checkpoint.interval=4", "--training.global_batch_size=2",
                         beside ? "--checkpoint.async_mode=async" : "--checkpoint.async_mode=disabled"});
    run.ended_by_time_out("rank 1 (host ");
    check_cause(run, rank_1 + "is held up by write \\([^)]*\\): a slow, full or unreachable disk");
    CHECK(std::regex_search(run.outcome.output, std::regex("step-00000004\\.h5\\.[0-9a-f]{16}\\.part")));
}

TEST_CASE("hangs: a full disk") {
    const FaultyRun run(
        "full_disk rank=1 step=3", 2,
        {"--checkpoint.enable", "--checkpoint.interval=4", "--checkpoint.async_mode=disabled"});
    CHECK(run.outcome.exit_code == 3);
    CHECK_THAT(run.outcome.output, Contains("step-00000004.h5 is not saved: rank 1: "));
    CHECK_THAT(run.outcome.output, Contains("No space left on device"));
}

TEST_CASE("hangs: a rank that is suspended") {
    const FaultyRun run("stop rank=0 step=3", 2);
    run.ended_with("rank 0 (host ");
    CHECK_THAT(run.outcome.output, Contains(") stopped: by SIGSTOP"));
}

namespace {

// After the death of a rank, mpirun of Open MPI leaves the other ranks some time to report it.
bool launcher_lets_others_report() {
    if (MpiRuntime::library_version().starts_with("Open MPI")) return true;
    skip("mpirun of MPICH kills all ranks at once if one dies, before any can report it");
    return false;
}

}  // namespace

TEST_CASE("hangs: a rank that ends without a message") {
    if (!launcher_lets_others_report()) return;
    const FaultyRun run("exit rank=1 step=3", 3);
    // mpirun gives the exit code of the process that ended first
    CHECK(run.outcome.exit_code != 0);
    CHECK_THAT(run.outcome.output, Contains(") has died.") || Contains("has died"));
    check_cause(run, rank_1 + "died: killed from outside");
}

TEST_CASE("hangs: a rank that crashes") {
    if (!launcher_lets_others_report()) return;
    const std::string kind = GENERATE("crash", "abort");
    const FaultyRun run(kind + " rank=2 step=3", 3);
    run.ended_with("rank 2 (host ");
    CHECK_THAT(run.outcome.output,
               Contains(kind == "crash" ? ") crashed: segmentation fault (signal 11" : ") crashed: aborted"));
    CHECK_THAT(run.outcome.output, Contains("coeus::Trainer::run in coeus"));
}

TEST_CASE("hangs: an error of one rank") {
    const FaultyRun run("error rank=1 step=3", 3);
    run.ended_with("rank 1 (host ");
    check_cause(run, rank_1 + "failed: an error on purpose");
}

TEST_CASE("hangs: ranks on several hosts inform each other through files") {
    const int ranks_per_host = GENERATE(1, 2);
    const auto faulty = [&](const char* fault) { return FaultyRun(fault, 4, {}, ranks_per_host); };
    const std::string rank_2 = fmt::format("rank 2 (host host{}", 2 / ranks_per_host);
    CAPTURE(ranks_per_host);
    {
        const FaultyRun run = faulty("hang_in_collective rank=2 step=3");
        run.ended_by_time_out(rank_2);
        CHECK_THAT(run.outcome.output, Contains("but is held up there outside of MPI"));
        CHECK_THAT(run.outcome.output, Contains("coeus::Communicator::all_reduce in coeus"));
    }
    {
        const FaultyRun run = faulty("slow rank=2 step=3");
        run.ended_by_time_out(rank_2);
        CHECK_THAT(run.outcome.output,
                   Contains(") has not reached the operation in which others wait: slower"));
    }
    {
        const FaultyRun run = faulty("crash rank=2 step=3");
        run.ended_with(rank_2);
        CHECK_THAT(run.outcome.output, Contains(") crashed: segmentation fault (signal 11"));
    }
    {
        const FaultyRun run = faulty("error rank=2 step=3");
        run.ended_with(rank_2);
        CHECK_THAT(run.outcome.output, Contains(") failed: an error on purpose"));
    }
    {
        // the only rank on its host: the others can only notice that it is silent
        const FaultyRun run = faulty("stop rank=2 step=3");
        run.ended_by_time_out(rank_2);
        CHECK_THAT(run.outcome.output,
                   Contains(ranks_per_host == 1 ? "did not answer" : ") stopped: by SIGSTOP"));
    }
}

TEST_CASE("hangs: with a single rank, a crash is reported too") {
    const FaultyRun run("crash rank=0 step=3", 0);
    run.ended_with("rank 0 (host ");
}

TEST_CASE("hangs: a flipped bit changes the run from that step on") {
    const Arguments more = {"--training.dtype=float64"};
    const FaultyRun whole("", 2, more), flipped("bit_flip rank=1 step=3 tensor=norm.weight element=31 bit=62",
                                                2, more + Arguments{"--training.steps=6"});
    CHECK(whole.outcome.exit_code == 0);
    const std::vector<double> losses = read_metrics(whole.folder / "run").losses(),
                              others = read_metrics(flipped.folder / "run").losses();
    CHECK_THAT(flipped.outcome.output, Contains("flipped bit 62 of element 31 of norm.weight"));
    REQUIRE(losses.size() == 6);
    REQUIRE(others.size() >= 2);
    CHECK(others[0] == losses[0]);
    CHECK(others[1] == losses[1]);
    CHECK((others.size() == 2 || others[2] != losses[2]));
}

TEST_CASE("hangs: a flipped bit in a replica is found and named, and optionally undone") {
    const Arguments replicas = {"--parallelism.data_parallel_replicate_degree=3",
                                "--guards.compare_replicas_interval=2", steps(8)};
    const char* const fault = "bit_flip rank=2 step=5 tensor=layers.1.attention.wq.weight element=31 bit=20";
    const FaultyRun stopped(fault, 3, replicas);
    CHECK(stopped.outcome.exit_code == 3);
    CHECK_THAT(
        stopped.outcome.output,
        Contains("step 6: replicas differ: the weights of layers.1.attention.wq.weight of rank 2 (host ") &&
            Contains("differ from those of the 2 other replicas. Memory or arithmetic failed there"));
    CHECK_THAT(stopped.outcome.output, !Contains("Likely cause"));
    const Arguments rewinds = {"--guards.on_mismatch=rewind", "--guards.snapshot_interval=4"};
    const FaultyRun whole("", 3, replicas), undone(fault, 3, replicas + rewinds);
    CHECK(undone.outcome.exit_code == 0);
    CHECK_THAT(undone.outcome.output, Contains("The run rewinds to the snapshot of step 4 and repeats"));
    CHECK(read_metrics(undone.folder / "run").losses() == read_metrics(whole.folder / "run").losses());
    const std::vector<EventLine> events = read_metrics(undone.folder / "run").events;
    REQUIRE(events.size() == 1);
    CHECK(events[0].event == "replicas_differ");
    CHECK(events[0].step == 5);
}

TEST_CASE("hangs: an invalid fault is refused") {
    const FaultyRun unknown("explode rank=0", 0), word("slow rank=x", 0);
    CHECK(unknown.outcome.exit_code == 2);
    CHECK_THAT(unknown.outcome.output, Contains("unknown fault explode; choose one of hang_in_collective"));
    CHECK(word.outcome.exit_code == 2);
    CHECK_THAT(word.outcome.output, Contains("\"rank=x\" is not rank=, step="));
}

TEST_CASE("hangs: a job that is suspended longer than the time-out continues when it is resumed") {
    // longer than anything but the suspension
    const int64_t time_out = whole_patience(2);
    const FaultyRun run(fmt::format("slow rank=1 step=2 seconds={:.2f}", 0.25 * double(time_out)), 2,
                        {steps(8), fmt::format("--comm.train_timeout_seconds={}", time_out)}, 0,
                        [&](const fs::path& folder) {
                            return fmt::format("ranks={}; kill -STOP $ranks && sleep {} && kill -CONT $ranks",
                                               ranks_of(folder), time_out + 3);
                        });
    CHECK(run.outcome.exit_code == 0);
    CHECK_THAT(run.outcome.output, Contains("Training completed at step 8") && !Contains("Likely cause"));
}

TEST_CASE("hangs: the report does not wait for a folder that does not respond") {
    // opening a pipe for reading blocks until something writes to it
    const FaultyRun run("slow rank=1 step=3", 2, {steps(8)}, 0, [](const fs::path& folder) {
        return "cd " + folder.string() + "/comm_traces/*; rm events && mkfifo events";
    });
    CHECK(run.outcome.exit_code == 3);
    CHECK(count_of("Likely cause", run.outcome.output) == 1);
    check_cause(run, rank_1 + "has not reached the operation in which others wait");
}

TEST_CASE("hangs: an event that a vanished host began does not block the next event") {
    const FaultyRun run("slow rank=1 step=3", 2, {steps(8)}, 0, [](const fs::path& folder) {
        return "cd " + folder.string() + "/comm_traces/*; touch event_1";
    });
    run.ended_with("rank 1 (host ");
    check_cause(run, rank_1 + "has not reached the operation in which others wait");
    CHECK(read_file(run.meeting_place() / "events") == "2 ends\n2 over\n");
}

TEST_CASE("hangs: a run is not ended by a crash of another run with the same folder of traces") {
    const TemporaryFolder traces;
    const std::string shared = "--comm.save_traces_folder=" + traces.path().string();
    Outcome crashed;
    const FaultyRun healthy(
        // the watchdog of the healthy run checks the folder once a second
        fmt::format("slow rank=1 step=3 seconds={:.2f}", patience(3)), 2,
        {fmt::format("--comm.train_timeout_seconds={}", whole_patience(100)), steps(4), shared}, 0,
        [&](const fs::path&) {
            const TemporaryFolder folder;
            write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
            crashed = run_coeus(tiny_run(folder / "run", folder / "tokens.h5", {shared}), 2,
                                {{"COEUS_FAULT", "crash rank=1 step=2"}});
            return "true";
        });
    CHECK_THAT(crashed.output, Contains("Likely cause"));
    CHECK(healthy.outcome.exit_code == 0);
    CHECK_THAT(healthy.outcome.output, Contains("Training completed at step 4") && !Contains("Likely cause"));
}

TEST_CASE("hangs: a user asks for a report with SIGQUIT, and the run continues") {
    // rank 1 pauses in step 3 until the report is written
    const FaultyRun run(fmt::format("slow rank=1 step=3 seconds={:.2f}", patience(2)), 2,
                        {fmt::format("--comm.train_timeout_seconds={}", whole_patience(100)), steps(4)}, 0,
                        [](const fs::path& folder) { return "kill -QUIT " + ranks_of(folder); });
    CHECK(run.outcome.exit_code == 0);
    CHECK(count_of("asked for by SIGQUIT", run.outcome.output) == 1);
    CHECK_THAT(run.outcome.output, Contains("Training completed at step 4"));
}
