// SPDX-License-Identifier: Apache-2.0
// coeus COMMAND ...: finds the command and runs it. Errors become one message and an exit code of
// base/error.hpp.
#include "coeus/apps/run_program.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/launcher.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/device/waiting_threads.hpp"
#include "command_line/help.hpp"
#include "commands.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace coeus::apps {

namespace {

// How long a failed rank waits until the others have failed too.
constexpr double patience_seconds = 10;

void print_overview() {
    std::puts("coeus: pre-trains large language models on HPC clusters\n\nusage: coeus COMMAND ...\n");
    for (const Command& command : commands()) std::printf("  %-10s %s\n", command.name, command.summary);
    std::puts(
        "\n  coeus help COMMAND            the flags of a command\n"
        "  coeus help options [WORD...]  the options of a deck; with words, those whose names contain one\n"
        "  coeus --version               version and build; also -V");
}

const Command& find(const std::string& name) {
    std::vector<std::string> names;
    for (const Command& command : commands()) {
        if (name == command.name) return command;
        names.push_back(command.name);
    }
    if (name == "-n" || name == "-np" || name == "--np")
        throw ConfigError("{}: ranks are started by mpirun: mpirun -n 2 coeus train DECK", name);
    if (name.starts_with('-'))
        throw ConfigError("{}: options follow a command: coeus COMMAND {}; commands: {}", name, name,
                          join(names, ", "));
    if (name.ends_with(".toml"))
        throw ConfigError("{}: a deck follows a command, such as: coeus train {}", name, name);
    const std::string near = nearest_name(name, names);
    throw ConfigError("unknown command '{}'{}; commands: {}", name,
                      near.empty() ? "" : "; did you mean '" + near + "'?", join(names, ", "));
}

// The number of this process among those that mpirun started, each with the same command; else 0.
int number_under_mpirun() {
    if (!is_one_of_mpiruns()) return 0;
    for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
        if (const char* number = std::getenv(variable)) return std::atoi(number);
    return 0;
}

}  // namespace

int run(const Arguments& arguments, char** argv) {
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") return print_overview(), 0;
    if (arguments[0] == "--version" || arguments[0] == "-V" || arguments[0] == "version")
        return std::printf("coeus %s (%s)\n", version(), build_description().c_str()), 0;
    if (arguments[0] == "help") {
        if (arguments.size() == 1) return print_overview(), 0;
        const auto about_decks = {"options", "option", "decks", "deck"};
        if (std::ranges::find(about_decks, arguments[1]) != about_decks.end())
            return help_options({arguments.begin() + 2, arguments.end()});
        if (arguments[1].starts_with("--")) return help_as(arguments[1]);
        return find(arguments[1]).help().print_help(), 0;
    }
    const Command& command = find(arguments[0]);
    if (command.needs_stdout) log::use_stderr();
    const Arguments rest(arguments.begin() + 1, arguments.end());
    for (const std::string& word : rest)
        if (word == "--help" || word == "-h") return command.help().print_help(), 0;
    // otherwise each process would do the same work and print the same
    if (!command.shares_work && number_under_mpirun() > 0) return 0;
    if (command.shares_work) let_waiting_threads_sleep(argv);
    const int code = command.run(rest);
    if (!command.needs_stdout) {
        std::fflush(stdout);
        std::clearerr(stdout);
    }
    return code;
}

// This message goes to stderr, since stdout cannot be written.
ExitCode flush_output() {
    errno = 0;
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return ExitCode::done;
    std::fprintf(stderr, "coeus: the output cannot be written: %s\n",
                 errno ? std::strerror(errno) : "a part of it is lost");
    return ExitCode::system;
}

}  // namespace coeus::apps

namespace coeus {

int run_program(int argc, char** argv) {
    return run_program(argc, argv, [] {});
}

int run_program(int argc, char** argv, FunctionRef<void()> set_up) {
    std::signal(SIGXFSZ, SIG_IGN);  // so that a file beyond `ulimit -f` is an error with a message (EFBIG)
    const apps::Arguments arguments(argv + 1, argv + argc);
    ExitCode code = ExitCode::done;
    std::string message;
    bool found_by_all = true;
    try {
        set_up();
        const int done = apps::run(arguments, argv);
        return done ? done : int(apps::flush_output());
    } catch (const ConfigError& error) {
        message = error.what();
        code = ExitCode::config;
    } catch (const NotFiniteError& error) {
        message = error.what();
        code = ExitCode::not_finite;
    } catch (const StoppedError& error) {
        message = error.what();
        code = ExitCode::stopped;
    } catch (const CollectiveError& error) {
        message = error.what();
        code = ExitCode::system;
    } catch (const std::filesystem::filesystem_error& error) {
        message = fmt::format("{}: {}", error.path1().string(), error.code().message());
        code = blames_path(error.code().value()) ? ExitCode::config : ExitCode::system;
        found_by_all = false;
    } catch (const std::exception& error) {
        message = text_of(error);
        code = ExitCode::system;
        found_by_all = false;
    }
    // An error that all ranks found is reported once. If only one rank found an error (a file that is
    // missing on its node), this rank reports it and ends the other ranks, which wait for it.
    const bool first = world_rank() == 0;
    std::fflush(stdout);  // what was printed before the error stays before it
    if (code == ExitCode::stopped) {
        if (!message.empty()) log::info("{}", message);
    } else if (first || !found_by_all) {
        log::error("{}", message);
    }
    if (found_by_all && !all_ranks_arrive(apps::patience_seconds)) {
        found_by_all = false;
        if (!first && code != ExitCode::stopped) log::error("{}", message);
    }
    log::flush();
    end_mpi_after_error(int(code), found_by_all);
    return int(code);
}

}  // namespace coeus
