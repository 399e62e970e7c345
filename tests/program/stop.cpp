// SPDX-License-Identifier: Apache-2.0
// Runs that are asked to stop, by a signal at any moment or by the end of their time. They end with exit code
// 75, save if a step was complete, and the same command then continues to the results of an undisturbed run.
#include "coeus/base/stop_signals.hpp"
#include "coeus/io/checkpoint.hpp"
#include "program/random_moments.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"

#include <sys/types.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// What a run does when the signal arrives: in one run after a given number of operations (COEUS_FAULT), in
// others at a random moment.
struct Phase {
    const char* name;
    std::vector<std::string> moments;
    const char* says;  // the message of a run that is stopped there
    Arguments options = {};
    int global_batch = 4;
    const char* before = "";  // a line of the output: a random signal comes before it
};

std::vector<std::string> moments_of(const std::string& where, const std::vector<int>& after) {
    std::vector<std::string> all;
    for (const int count : after) all.push_back(fmt::format("signal {} after={}", where, count));
    return all;
}

const Arguments validating = {"--validation.enable", "--validation.freq=1",
                              "--validation.local_batch_size=1"};
const Phase phases[] = {
    {.name = "the start",
     .moments = moments_of("rank=1 step=0", {0, 5, 12, 20}),
     .says = "Stopped by SIGUSR1: before the first step; nothing was lost",
     .before = "Training starts"},
    {.name = "accumulation",
     // operations of the main thread, which asks 15 times in a step; and of the gathering thread, well inside
     // the step
     .moments =
         moments_of("rank=1 step=3", {0, 9}) + moments_of("rank=1 step=3 operation=all_gather", {60, 180}),
     .says = "Stopped at step 2 of 6 by SIGUSR1: saved",
     .global_batch = 64},
    {.name = "validation",
     // just before validation, as it reads, as it sums up, and between
     .moments =
         moments_of("rank=0 step=3", {5, 7, 8}) + moments_of("rank=0 step=3 operation=all_gather", {28}),
     .says = "Stopped at step 3 of 6 by SIGUSR1: saved",
     .options = validating},
    {.name = "saving",
     .moments = moments_of("rank=0 step=3 operation=write", {0, 1, 3, 5}),
     .says = "Stopped at step 3 of 6 by SIGUSR1: saved",
     .options = {"--checkpoint.interval=1"}},
    {.name = "saving beside",
     .moments = moments_of("rank=1 step=3 operation=write", {0, 1, 2, 3}),
     .says = "by SIGUSR1: saved",
     .options = {"--checkpoint.interval=1", "--checkpoint.async_mode=async"}},
};

// Sends a signal after so many lines of the output; mpirun forwards it. Steps are so slow that the signal
// comes before the last one.
Outcome run_signalled(int signal, int64_t lines, const Arguments& arguments, int ranks) {
    int64_t process = 0;
    return run_shell(
        coeus_line(arguments, ranks,
                   {{"COEUS_FAULT", fmt::format("slow rank=0 step=1 seconds={:.3f}", patience(0.01))}},
                   saying_who),
        [&](const std::string& line) {
            if (process == 0) process = process_said_in(line);
            if (lines-- == 0 && process > 0) kill(pid_t(process), signal);
        });
}

Arguments options_of(const Phase& phase, int64_t number_of_steps) {
    return Arguments{"--checkpoint.enable", "--training.dtype=float64", "--training.local_batch_size=2",
                     fmt::format("--training.global_batch_size={}", phase.global_batch),
                     steps(number_of_steps)} +
           phase.options;
}

void write_tokens(const fs::path& file) {
    write_token_file(file, {.tokens = learnable_tokens(80 * 17), .documents = {0, 600, 80 * 17}});
}

void check_whole_files(const fs::path& run) {
    for (const StepFile& file : list_checkpoints((run / "checkpoint").string()))
        CHECK(verify_checkpoint(file.path).empty());
}

// Equal in every bit, since the number of ranks is the same.
void check_same_lines(const fs::path& run, const fs::path& undisturbed) {
    const MetricLines a = read_metrics(run), b = read_metrics(undisturbed);
    CHECK(a.losses() == b.losses());
    REQUIRE(a.validations.size() == b.validations.size());
    for (size_t i = 0; i < a.validations.size(); ++i) {
        CHECK(a.validations[i].step == b.validations[i].step);
        CHECK(a.validations[i].loss == b.validations[i].loss);
    }
}

void stop_by_chance(int rounds, uint64_t seed, const std::vector<int>& signals) {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    constexpr int count = int(std::size(phases));
    const std::vector<RandomMoment> moments = random_moments("moments of a signal", seed, rounds * count);
    int missed = 0;
    for (int p = 0; p < count; ++p) {
        std::vector<RandomMoment> of_phase = moments;
        std::erase_if(of_phase, [&](const RandomMoment& m) { return m.number % count != p; });
        if (of_phase.empty()) continue;
        const Phase& phase = phases[p];
        const Arguments options = options_of(phase, 60);
        const Outcome undisturbed = train_tiny(folder / "undisturbed", folder / "tokens.h5", options, 2);
        const std::string& all_lines = undisturbed.output;
        const size_t before = *phase.before ? all_lines.find(phase.before) : all_lines.size();
        REQUIRE(before != std::string::npos);
        const int lines = 1 + count_of("\n", all_lines.substr(0, before));
        const std::vector<double> losses = read_metrics(folder / "undisturbed").losses();
        for (const auto& [number, place] : of_phase) {
            const int round = number / count;
            const fs::path run = folder / "run";
            const Arguments arguments = tiny_run(run, folder / "tokens.h5", options);
            const auto moment = int64_t(lines * place);
            const int signal = signals[size_t(round) % signals.size()];
            const int ranks = (round + p) % 3;  // 0: without mpirun
            const Outcome first = run_signalled(signal, moment, arguments, ranks);
            CAPTURE(phase.name, round, moment, signal, ranks, first.output);
            // before main() a signal ends the process, like any other process
            const bool before_all = first.output.find("Stopp") == std::string::npos;
            const size_t answered = first.output.find(": stopping after this step"),
                         stopped = first.output.find("Stopped at step ");
            if (answered != std::string::npos) CHECK(answered < stopped);
            if (stopped != std::string::npos) {
                std::smatch at;
                const std::regex state(
                    "Stopped at step ([0-9]+) of 60 by [A-Z0-9]+: (saved|before the first step)");
                REQUIRE(std::regex_search(first.output, at, state));
                if (at[2] == "saved") CHECK(fs::exists(run / checkpoint_of(std::stoi(at[1]))));
            }
            missed += first.exit_code == 0;
            if (first.exit_code == 75) {
                CHECK_THAT(first.output, Contains("Stopped") && Contains(text_of(signal)));
            } else {
                // after Ctrl-C mpirun ends with its own exit code, and kills ranks that take longer than it
                // waits
                const bool by_mpirun = signal == SIGINT && ranks > 0 && first.exit_code == 1;
                CHECK((first.exit_code == 0 || by_mpirun || (before_all && first.exit_code == 128 + signal)));
            }
            REQUIRE(processes_left(run, patience(60)) == "");
            check_whole_files(run);
            const Outcome second = run_coeus(arguments, ranks);
            CAPTURE(second.output);
            REQUIRE(second.exit_code == 0);
            const std::vector<double> all = read_metrics(run).losses();
            REQUIRE(all.size() == losses.size());
            for (size_t i = 0; i < all.size(); ++i) CHECK(relatively_close(all[i], losses[i], 1e-10));
            fs::remove_all(run);
        }
        fs::remove_all(folder / "undisturbed");
    }
    count_missed(missed, int(moments.size()));
}

}  // namespace

TEST_CASE(
    "a run that is asked to stop saves its last complete step, and continues from there to the same bits") {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    Part part("moments of a stop", 1, {.check_all = 1, .short_list = 2});
    for (const Phase& phase : phases) {
        CHECK(phase.moments.size() == 4);
        const Arguments options = options_of(phase, 6);
        const fs::path undisturbed = folder / "undisturbed", run = folder / "run";
        train_tiny(undisturbed, folder / "tokens.h5", options, 2);
        for (const std::string& moment : phase.moments) {
            if (!part.takes_next()) continue;
            CAPTURE(phase.name, moment);
            const Outcome first =
                run_coeus(tiny_run(run, folder / "tokens.h5", options), 2, {{"COEUS_FAULT", moment}});
            CAPTURE(first.output);
            CHECK(first.exit_code == 75);
            CHECK_THAT(first.output, Contains(phase.says));
            check_whole_files(run);
            const Outcome second = train_tiny(run, folder / "tokens.h5", options, 2);
            const bool goes_on = std::string(phase.says).starts_with("Stopped by") ||
                                 count_of("Resuming from", second.output) == 1;
            CHECK(goes_on);
            check_same_lines(run, undisturbed);
            fs::remove_all(run);
        }
        fs::remove_all(undisturbed);
    }
}

TEST_CASE("a run that is asked to stop while it tokenizes continues there") {
    const TemporaryFolder folder, tokenizer;
    std::string text;
    for (int i = 0; i < 4000; ++i) text += fmt::format("the cat number {} sat on the mat\n", i * i);
    write_file(folder / "text.txt", text);
    const Outcome trained = run_coeus({"tokenizer", (folder / "text.txt").string(), "--vocab_size=300",
                                       "--output=" + tokenizer.path().string()});
    INFO(trained.output);
    REQUIRE(trained.exit_code == 0);
    const Arguments more = {"--model.vocab_size=300", "--checkpoint.enable",
                            "--model.hf_assets_path=" + tokenizer.path().string()};
    train_tiny(folder / "undisturbed", folder / "text.txt", more, 2);
    for (const std::string& moment : moments_of("rank=0 step=0 operation=write", {0, 1})) {
        const fs::path run = folder / "run";
        const Outcome first =
            run_coeus(tiny_run(run, folder / "text.txt", more), 2, {{"COEUS_FAULT", moment}});
        CAPTURE(moment, first.output);
        CHECK(first.exit_code == 75);
        CHECK_THAT(first.output, Contains("Stopped by SIGUSR1: the tokens so far are saved"));
        const Outcome second = train_tiny(run, folder / "text.txt", more, 2);
        CHECK_THAT(second.output, Contains("resuming an interrupted run"));
        check_same_lines(run, folder / "undisturbed");
        fs::remove_all(run);
    }
}

TEST_CASE("Ctrl-C, a closed terminal and a limit on processor time end a run like SIGTERM") {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    const std::regex two_steps("step: *2 ");
    for (const int signal : {SIGINT, SIGHUP, SIGXCPU, SIGTERM}) {
        const fs::path run = folder / text_of(signal);
        const Arguments arguments = tiny_run(run, folder / "tokens.h5",
                                             {"--checkpoint.enable", "--checkpoint.interval=1000000",
                                              "--checkpoint.last_save_model_only=false", steps(1'000'000)});
        int64_t process = 0;
        const Outcome outcome =
            run_shell(coeus_line(arguments, 0, {}, saying_who), [&](const std::string& line) {
                if (process == 0) process = process_said_in(line);
                if (process > 0 && std::regex_search(line, two_steps)) kill(pid_t(process), signal);
            });
        CAPTURE(text_of(signal), outcome.output);
        CHECK(outcome.exit_code == 75);
        CHECK(count_of("coeus: " + text_of(signal) +
                           ": stopping after this step; a second signal ends the run at once, unsaved",
                       outcome.output) == 1);
        std::smatch at;
        const std::regex stopped("Stopped at step ([0-9]+) of 1000000 by " + text_of(signal) + ": saved");
        REQUIRE(std::regex_search(outcome.output, at, stopped));
        CHECK(fs::exists(run / checkpoint_of(std::stoi(at[1]))));
    }
}

TEST_CASE("a signal to mpirun is answered once, with its name, before the run stops") {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    const Arguments arguments =
        tiny_run(folder / "run", folder / "tokens.h5", {"--checkpoint.enable", steps(1'000'000)});
    const std::regex two_steps("step: *2 ");
    int64_t process = 0;
    const Outcome run = run_shell(coeus_line(arguments, 2, {}, saying_who), [&](const std::string& line) {
        if (process == 0) process = process_said_in(line);
        if (process > 0 && std::regex_search(line, two_steps)) kill(pid_t(process), SIGUSR1);
    });
    INFO(run.output);
    const size_t stopped = run.output.find("Stopped at step ");
    REQUIRE(stopped != std::string::npos);
    CHECK_THAT(run.output.substr(stopped), Contains("by SIGUSR1: saved"));
    // silent if the other rank had the signal first and all stop already
    const int answers = count_of(": stopping after this step", run.output);
    CHECK(answers <= 1);
    if (answers == 1) {
        CHECK(run.output.find("coeus: SIGUSR1 from mp") < stopped);
        CHECK(run.output.find(": stopping after this step") < stopped);
    }
}

TEST_CASE("a run whose output is no longer read trains to its end") {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    const std::string train = coeus_line(tiny_run(folder / "run", folder / "tokens.h5", {steps(6)}));
    // the reader ends after one line; the run's exit code is written to a file
    const Outcome outcome =
        run_shell("{ " + train + "; echo $? > '" + (folder / "code").string() + "'; } | head -n 1");
    INFO(outcome.output);
    CHECK(read_file(folder / "code") == "0\n");
    CHECK(read_metrics(folder / "run").losses().size() == 6);
}

TEST_CASE("a limit on the size of files ends a run before its first step, with a message") {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    // 10 MB per file: MPI itself needs 4 MB, the checkpoint has 34 MB
    const auto limited = [&](const char* files) {
        return run_shell("ulimit -f 20000; " +
                         coeus_line(tiny_run(folder / "run", folder / "tokens.h5",
                                             {"--checkpoint.enable", "--model.dim=512", steps(6), files})));
    };
    const Outcome outcome = limited("--checkpoint.files=1");
    INFO(outcome.output);
    CHECK(outcome.exit_code == 3);
    CHECK_THAT(outcome.output, Contains("there is no room for a checkpoint of ") &&
                                   Contains("File too large") && Contains("`ulimit -f`") &&
                                   !Contains("step:  1"));
    CHECK(files_in(folder / "run/checkpoint").empty());
    const Outcome in_parts = limited("--checkpoint.files=8");
    CHECK(in_parts.exit_code == 0);
}

TEST_CASE("output that cannot be written is an error") {
    if (!fs::exists("/dev/full")) return;
    for (const Arguments& command : std::vector<Arguments>{{"help"}, {"help", "options"}, {"--version"}}) {
        CAPTURE(command);
        const Outcome outcome = run_shell(coeus_line(command) + " > /dev/full");
        CHECK(outcome.exit_code == 3);
        CHECK_THAT(outcome.output, Contains("coeus: the output cannot be written: "));
    }
    CHECK(run_shell(coeus_line({"--version"})).exit_code == 0);
}

TEST_CASE("a run whose job ends before it can save says so, and keeps the last checkpoint") {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    // far away at first; after the first save, too close for another one
    const fs::path end = folder / "end";
    const auto job_ends_in = [&](int64_t seconds) {
        write_file(end, fmt::format("{}\n", int64_t(std::time(nullptr)) + seconds));
    };
    job_ends_in(86400);
    write_file(folder / "squeue", "#!/bin/sh\nread -r end < '" + end.string() + "' && echo $end\n");
    fs::permissions(folder / "squeue", fs::perms::owner_all);
    const fs::path run = folder / "run";
    // a first save of several seconds
    const std::string before = "PATH='" + folder.path().string() +
                               "':$PATH SLURM_JOB_ID=17 COEUS_FAULT='slow_disk rank=0 step=1 seconds=0.02' " +
                               saying_who;
    const Arguments arguments = tiny_run(
        run, folder / "tokens.h5",
        {"--checkpoint.enable", "--checkpoint.interval=1000000", "--checkpoint.enable_first_step_checkpoint",
         "--checkpoint.walltime_margin=0", "--checkpoint.last_save_model_only=false", steps(1'000'000)});
    int64_t process = 0;
    const std::regex two_steps("step: *2 ");
    const Outcome outcome = run_shell(coeus_line(arguments, 0, {}, before), [&](const std::string& line) {
        if (process == 0) process = process_said_in(line);
        // one step after the save
        if (process == 0 || !std::regex_search(line, two_steps)) return;
        job_ends_in(1);
        kill(pid_t(process), SIGUSR1);
    });
    INFO(outcome.output);
    CHECK(outcome.exit_code == 75);
    CHECK(count_of(": not saved, since the job ends in ", outcome.output) == 1);
    CHECK_THAT(outcome.output,
               Contains("The same command resumes from " + (run / checkpoint_of(1)).string()));
    CHECK(list_checkpoints((run / "checkpoint").string()).size() == 1);
}

TEST_CASE("a run that is asked to stop right after its start does not save again what it has loaded") {
    const TemporaryFolder folder;
    write_tokens(folder / "tokens.h5");
    const Arguments options = {"--checkpoint.enable"};
    train_tiny(folder / "run", folder / "tokens.h5", options + Arguments{steps(3)});
    const Outcome outcome =
        run_coeus(tiny_run(folder / "run", folder / "tokens.h5", options + Arguments{steps(9)}), 0,
                  {{"COEUS_FAULT", "signal rank=0 step=4"}});
    INFO(outcome.output);
    CHECK(outcome.exit_code == 75);
    CHECK_THAT(outcome.output, Contains("Stopped at step 3 of 9 by SIGUSR1: saved") && !Contains("Saved "));
}

TEST_CASE("a run that is asked to stop at a random moment saves, or loses nothing, and continues") {
    stop_by_chance(1, 1, {SIGUSR1});
}

TEST_CASE("Ctrl-C at a random moment, with and without mpirun, saves or loses nothing") {
    stop_by_chance(1, 3, {SIGINT});
}

TEST_CASE("soak: runs asked to stop at 200 moments continue", "[.soak]") {
    stop_by_chance(40, 2, {SIGUSR1, SIGUSR2});
}

TEST_CASE("soak: runs asked to stop by 100 Ctrl-C continue", "[.soak]") {
    stop_by_chance(20, 4, {SIGINT});
}

TEST_CASE("a run ends before its time is over") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17), .documents = {0, 80 * 17}});
    const auto arguments_of = [&](int64_t seconds, int64_t margin) {
        return tiny_run(folder / "run", folder / "tokens.h5",
                        {"--checkpoint.enable", steps(1'000'000), "--checkpoint.interval=1000000",
                         "--metrics.log_freq=1000",
                         fmt::format("--training.max_wall_time={:02}:{:02}", seconds / 60, seconds % 60),
                         fmt::format("--checkpoint.walltime_margin={}", margin)});
    };
    // doubled until it is more than a start needs on this machine
    int64_t seconds = 2;
    Outcome out;
    do {
        seconds *= 2;
        REQUIRE(seconds < 2000);
        out = run_coeus(arguments_of(seconds, 1), 2);
        CAPTURE(out.output);
        REQUIRE(out.exit_code == 75);
        CHECK_THAT(out.output, Contains("by the end of the job's time"));
    } while (count_of(": before the first step", out.output) > 0);
    CAPTURE(out.output);
    CHECK_THAT(out.output, Contains("by the end of the job's time: saved. The same command resumes from"));
    CHECK(list_checkpoints((folder / "run/checkpoint").string()).size() == 1);
    SECTION("which is already over") {
        const Outcome again = run_coeus(arguments_of(seconds, seconds + 60), 2);
        CAPTURE(again.output);
        CHECK(again.exit_code == 75);
        CHECK_THAT(again.output, Contains("Stopped by the end of the job's time: before the first step"));
    }
    SECTION("by Slurm's answer") {
        // squeue answers with an end in one second, as after the signal of a preemption
        std::ofstream(folder / "squeue") << "#!/bin/sh\nexpr $(date +%s) + 1\n";
        fs::permissions(folder / "squeue", fs::perms::owner_all);
        const Arguments slurm_run =
            tiny_run(folder / "slurm", folder / "tokens.h5", {"--checkpoint.enable", steps(1'000'000)});
        const Outcome told = run_shell(coeus_line(slurm_run, 0, {},
                                                  fmt::format("PATH='{}':$PATH SLURM_JOB_ID=17 timeout {}",
                                                              folder.path().string(), whole_patience(60))));
        CAPTURE(told.output);
        CHECK(told.exit_code == 75);
        CHECK_THAT(told.output, Contains("by the end of the job's time"));
    }
}
