// SPDX-License-Identifier: Apache-2.0
// Logging: chosen ranks write to the terminal, and every rank writes to its own file. spdlog is used
// only in log.cpp.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coeus::log {

enum class Level { debug, info, warn, error };

struct Options {
    int rank = 0;  ///< of this process
    /// Ranks whose lines are shown on the terminal. Lines begin with the rank's number unless only rank 0 is
    /// shown.
    std::vector<int> ranks = {0};
    std::string file;    ///< this rank's own file; empty: no file
    bool color = true;   ///< colours on a terminal; elsewhere there are never any
    bool quiet = false;  ///< only warnings and errors on the terminal
};

/// Sets up the log. Before the first call, everything in rank 0's process is written to the terminal.
void init(const Options& options);
/// From now on lines for the terminal go to stderr instead of stdout: the command's result is on stdout.
void use_stderr();
/// True if the descriptor (1: stdout, 2: stderr) is a terminal that a person sees.
bool is_terminal(int descriptor);
/// True if this process's lines are shown on the terminal.
bool on_terminal();
/// True if the terminal shows colours: stdout is a terminal, Options::color is set and NO_COLOR is not.
bool colored();
/// Flushes the log, and reports how many lines of the log file were lost.
void flush();

/// Control characters of the message are escaped: it may contain text of files.
void write(Level level, std::string_view message);
/// For a line that this program alone has made: its colours are shown on the terminal. The log file has none.
void write_colored(Level level, std::string_view line);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
/// Warnings and errors are shown from every rank.
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace coeus::log
