// SPDX-License-Identifier: Apache-2.0
// Runs that save every step are killed at random moments: a single process, one of two ranks or both (also
// if they divide the experts), or mpirun. The same command then resumes from an intact checkpoint that is not
// older than the last one reported, and ends with the results of an undisturbed run.
#include "coeus/base/clock.hpp"
#include "coeus/io/checkpoint.hpp"
#include "program/random_moments.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <regex>
#include <thread>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

enum class Victim { process, rank_0, rank_1, both_ranks, mpirun };
constexpr int victims = 5;

std::string quoted(const Arguments& arguments) {
    std::string line;
    for (const std::string& argument : arguments) line += " '" + argument + "'";
    return line;
}

// The shell command of a run whose victims print their process ids.
std::string line_of(Victim victim, const Arguments& arguments) {
    const std::string run = paths::program() + quoted(arguments), said = saying_who + " ",
                      mpirun = paths::mpirun() + " ";
    // mpirun of Open MPI 4.1 itself sometimes never returns if its ranks die as they start (seen once in 200)
    const std::string patient = fmt::format("timeout --signal=KILL {} {}", whole_patience(120), mpirun);
    switch (victim) {
        case Victim::process: return said + run;
        case Victim::mpirun: return said + mpirun + "-n 2 " + run;
        case Victim::rank_0: return patient + "-n 1 " + said + run + " : -n 1 " + run;
        case Victim::both_ranks: return patient + "-n 2 " + said + run;
        case Victim::rank_1: return patient + "-n 1 " + run + " : -n 1 " + said + run;
    }
    return "";
}

// A moment in a run: after so many lines of its output, plus a fraction of the usual time of a line.
struct Moment {
    int lines;
    double rest;
};

// A run whose victims are killed at that moment, or as soon as there are any.
Outcome run_killed(Victim victim, const Moment& moment, double seconds_of_line, const Arguments& arguments) {
    const size_t wanted = victim == Victim::both_ranks ? 2 : 1;
    std::vector<int64_t> victims_alive;
    int lines = 0;
    return run_shell(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 "
        "XDG_CACHE_HOME='" +
            paths::cache() + "'; " + line_of(victim, arguments) + " < /dev/null",
        [&, is_done = false](const std::string& line) mutable {
            if (const int64_t process = process_said_in(line)) victims_alive.push_back(process);
            if (is_done || lines++ < moment.lines || victims_alive.size() < wanted) return;
            is_done = true;
            // a random delay: nothing depends on its length
            std::this_thread::sleep_for(std::chrono::duration<double>(moment.rest * seconds_of_line));
            for (const int64_t process : victims_alive) kill(pid_t(process), SIGKILL);
        });
}

// The largest step in "Saved .../step-00000012.h5" lines, or 0 if there is none.
int64_t last_saved(const std::string& output) {
    static const std::regex saved("Saved \\S*step-([0-9]+)\\.h5");
    int64_t last = 0;
    for (std::sregex_iterator at(output.begin(), output.end(), saved), end; at != end; ++at)
        last = std::max<int64_t>(last, std::stoll((*at)[1]));
    return last;
}

// `more`: options of all runs. Victims are the `first` one and those after it.
void campaign(int rounds, uint64_t seed, const Arguments& more = {}, Victim first = Victim::process) {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(80 * 17), .documents = {0, 600, 80 * 17}});
    const Arguments saving = {
        "--checkpoint.enable",           "--checkpoint.interval=1",  "--training.global_batch_size=4",
        "--training.local_batch_size=2", "--training.dtype=float64", steps(40)};
    const int kinds = victims - int(first);
    const Timer timer;
    const Outcome undisturbed = train_tiny(folder / "undisturbed", folder / "tokens.h5", saving + more, 2);
    const auto lines = double(lines_of(undisturbed.output).size());
    const double seconds_of_line = timer.seconds() / lines;
    const std::vector<double> losses = read_metrics(folder / "undisturbed").losses();
    const std::vector<RandomMoment> moments = random_moments("moments of a crash", seed, rounds);
    int missed = 0;
    for (const auto& [round, part] : moments) {
        const auto victim = Victim(int(first) + round % kinds);
        const char* mode = round / kinds % 2 ? "async" : "disabled";
        const int files = (round + round / (2 * kinds)) % 2 ? 3 : 1;
        const fs::path run = folder / std::to_string(round);
        const Arguments arguments = tiny_run(run, folder / "tokens.h5",
                                             saving +
                                                 Arguments{std::string("--checkpoint.async_mode=") + mode,
                                                           fmt::format("--checkpoint.files={}", files)} +
                                                 more);
        const double place = lines * part;
        const Moment moment = {int(place), place - std::floor(place)};
        const Outcome killed = run_killed(victim, moment, seconds_of_line, arguments);
        // no process of the run may be left when it is started again
        REQUIRE(processes_left(run, patience(60)) == "");
        const Outcome resumed = run_coeus(arguments, 2);
        CAPTURE(round, mode, files, place, killed.output, resumed.output);
        missed += killed.exit_code == 0;
        REQUIRE(resumed.exit_code == 0);
        if (const int64_t saved = last_saved(killed.output); saved > 0 && saved < 40) {
            std::smatch from;
            REQUIRE(
                std::regex_search(resumed.output, from, std::regex("Resuming from \\S*step-([0-9]+)\\.h5")));
            CHECK(std::stoll(from[1]) >= saved);
        }
        CHECK_FALSE(resumed.output.find("checkpoint skipped") != std::string::npos);
        for (const StepFile& file : list_checkpoints(run / "checkpoint"))
            CHECK(verify_checkpoint(file.path).empty());
        CHECK(verify_checkpoint(run / "checkpoint/model-00000040.h5").empty());
        const std::vector<double> all = read_metrics(run).losses();
        REQUIRE(all.size() == losses.size());
        for (size_t i = 0; i < all.size(); ++i) CHECK(relatively_close(all[i], losses[i], 1e-10));
        fs::remove_all(run);
    }
    count_missed(missed, int(moments.size()));  // some are after the end
}

Arguments experts_on_two_ranks() {
    return tiny_experts + Arguments{"--parallelism.expert_parallel_degree=2"};
}

}  // namespace

TEST_CASE("a run that is killed at any moment resumes from the last checkpoint that it reported") {
    campaign(2 * victims, 1);
}

TEST_CASE("a run with experts on two ranks that is killed at any moment resumes") {
    campaign(3, 3, experts_on_two_ranks() + Arguments{"--checkpoint.async_mode=async"}, Victim::rank_0);
}

TEST_CASE("soak: runs with experts on two ranks killed at 20 moments resume", "[.soak]") {
    campaign(20, 4, experts_on_two_ranks(), Victim::rank_0);
}

TEST_CASE("soak: runs killed at 200 moments resume", "[.soak]") {
    campaign(200, 2);
}
