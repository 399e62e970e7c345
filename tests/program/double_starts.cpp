// SPDX-License-Identifier: Apache-2.0
// A second start in a run's folder at random moments: by a stranger, by the run's own job after Slurm
// requeued it, or while the first run is suspended. It happens on a file system with locks, and on one
// without (then the second start is on another host). One of the two starts is refused or waits; no line of
// the metrics and no checkpoint is lost.
#include "coeus/file/json.hpp"
#include "coeus/io/checkpoint.hpp"
#include "program/random_moments.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <sys/types.h>

#include <csignal>
#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

enum class Second { stranger, queued_again, while_suspended };
constexpr const char* kind_names[] = {"a stranger", "queued again", "while suspended"};

constexpr int64_t all_steps = 20;

Environment environment_of(bool locks, const char* host, const char* job, const char* restart) {
    Environment all = {{"SLURM_JOB_ID", job}, {"SLURM_RESTART_COUNT", restart}};
    if (!locks)
        all.insert({{"LD_PRELOAD", paths::hosts()}, {"COEUS_TEST_NO_LOCKS", "1"}, {"COEUS_TEST_HOST", host}});
    return all;
}

// Sends a signal to the processes that the run has now.
void signal_all(const std::string& processes, int signal) {
    std::istringstream in(processes);
    for (int64_t process = 0; in >> process;) kill(pid_t(process), signal);
}

bool is_refused(const Outcome& outcome) {
    return outcome.exit_code == 2 &&
           outcome.output.find(" is used by another run, which is still alive: process ") !=
               std::string::npos;
}

bool has_lost(const Outcome& outcome) {
    return outcome.exit_code == 3 &&
           outcome.output.find("this run has lost its folder ") != std::string::npos;
}

// A first start and, after so many lines of its output, a second one.
struct Round {
    Second kind;
    bool locks;
    int ranks;  // 0: without mpirun
    int lines;
    Outcome first = {}, second = {};

    void run(const Arguments& arguments, const fs::path& folder) {
        const char* job = kind == Second::queued_again ? "12" : "13";
        Environment environment = environment_of(locks, "first", "12", "0");
        // steps are slow enough that the second start finds the first run alive; without locks, after it has
        // touched its file again
        environment["COEUS_FAULT"] = fmt::format("slow rank=0 step=1 seconds={}", locks ? 0.1 : 0.4);
        int64_t process = 0;
        bool is_done = false;
        first =
            run_shell(coeus_line(arguments, ranks, environment, saying_who), [&](const std::string& line) {
                if (process == 0) process = process_said_in(line);
                if (is_done || lines-- > 0) return;
                is_done = true;
                std::string suspended;
                if (kind == Second::while_suspended) {
                    suspended = processes_left(folder, 0);
                    signal_all(suspended, SIGSTOP);
                }
                second =
                    run_shell(coeus_line(arguments, ranks, environment_of(locks, "second", job, "1")),
                              [&](const std::string& of_second) {
                                  // as Slurm does before it requeues a job
                                  if (of_second.find("waiting for the end of an earlier start of this job") !=
                                      std::string::npos)
                                      kill(pid_t(process), SIGUSR1);
                              });
                signal_all(suspended, SIGCONT);
            });
    }

    // Whether both ended correctly. If the first run had ended or had not begun yet, nobody is refused.
    bool ends_well() const {
        const bool both = first.exit_code == 0 && second.exit_code == 0;
        switch (kind) {
            case Second::stranger:
                return both || (first.exit_code == 0 && is_refused(second)) ||
                       (is_refused(first) && second.exit_code == 0);
            case Second::queued_again:
                return both || ((first.exit_code == 75 || is_refused(first)) && second.exit_code == 0);
            case Second::while_suspended:
                if (locks) return both || (first.exit_code == 0 && is_refused(second));
                return both || (has_lost(first) && second.exit_code == 0);
        }
        return false;
    }
    // Whether the second start found the first run alive.
    bool has_met() const {
        return is_refused(first) || is_refused(second) || has_lost(first) || first.exit_code == 75;
    }
};

void double_starts(int rounds, uint64_t seed) {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(80 * 17), .documents = {0, 600, 80 * 17}});
    const Arguments saving = {"--checkpoint.enable",
                              "--checkpoint.interval=1",
                              "--checkpoint.keep_latest_k=0",
                              "--training.global_batch_size=4",
                              "--training.local_batch_size=2",
                              "--training.dtype=float64",
                              steps(all_steps)};
    const Outcome undisturbed = train_tiny(folder / "undisturbed", folder / "tokens.h5", saving);
    const std::vector<double> losses = read_metrics(folder / "undisturbed").losses();
    const int lines = count_of("\n", undisturbed.output);
    const std::vector<RandomMoment> moments = random_moments("moments of a second start", seed, rounds);
    int missed = 0;
    for (const auto& [i, place] : moments) {
        const fs::path run = folder / "run";
        const char* mode = i / 12 % 2 ? "async" : "disabled";
        const Arguments arguments = tiny_run(
            run, folder / "tokens.h5", saving + Arguments{std::string("--checkpoint.async_mode=") + mode});
        Round round = {.kind = Second(i % 3),
                       .locks = i / 3 % 2 == 0,
                       .ranks = (i + i / 6) % 2 ? 2 : 0,
                       .lines = 1 + int(lines / 2 * place)};
        const int moment = round.lines;
        round.run(arguments, run);
        CAPTURE(i, kind_names[int(round.kind)], round.locks, round.ranks, mode, moment);
        CAPTURE(round.first.exit_code, round.first.output, round.second.exit_code, round.second.output);
        REQUIRE(processes_left(run, patience(60)) == "");
        CHECK(round.ends_well());
        missed += !round.has_met();
        const std::vector<double> all = read_metrics(run).losses();
        REQUIRE(all.size() == losses.size());
        for (size_t k = 0; k < all.size(); ++k) CHECK(relatively_close(all[k], losses[k], 1e-10));
        // without locks, a run leaves word for one that may only be suspended
        const auto left = [](const fs::path& file) {
            return fs::exists(file) &&
                   JsonDocument::parse(read_file(file), file.string()).root().boolean("ended", false);
        };
        std::vector<std::string> files = files_in(run / "checkpoint");
        if (!round.locks && left(run / "checkpoint/.owner")) std::erase(files, ".owner");
        CHECK(files == files_in(folder / "undisturbed/checkpoint"));
        for (const StepFile& file : list_checkpoints((run / "checkpoint").string()))
            CHECK(verify_checkpoint(file.path).empty());
        for (const auto& entry : fs::recursive_directory_iterator(run)) {
            CAPTURE(entry.path());
            CHECK(entry.path().extension() != ".part");
            CHECK((entry.path().filename() != ".owner" || (!round.locks && left(entry.path()))));
        }
        fs::remove_all(run);
    }
    // on a slow machine, a run may already have ended when the second start checks
    count_missed(missed, int(moments.size()));
}

}  // namespace

TEST_CASE("owner: second starts at random moments lose nothing") {
    double_starts(6, 1);
}

TEST_CASE("soak: 200 second starts, with locks and without, lose nothing", "[.soak]") {
    double_starts(200, 2);
}
