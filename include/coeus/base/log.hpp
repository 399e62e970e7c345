// SPDX-License-Identifier: Apache-2.0
// Logging: chosen ranks write to the terminal, every rank to its own file. spdlog stays in log.cpp.
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
    std::vector<int> ranks = {
        0};              ///< whose lines go to the terminal, with their numbers unless only rank 0's
    std::string file;    ///< this rank's own file; empty: none
    bool color = true;   ///< colour on a terminal (never elsewhere)
    bool quiet = false;  ///< only warnings and errors on the terminal
};

/// Sets up the sinks. Before the first call everything of rank 0's process goes to the terminal.
void init(const Options& options);
/// True where the descriptor (1: stdout, 2: stderr) is a terminal that a person looks at.
bool is_terminal(int descriptor);
/// True where this process's lines appear on the terminal.
bool on_terminal();
/// True where the terminal shows colour: stdout is a tty, colour is on and NO_COLOR is not set.
bool colored();
/// Says too how many lines of the log file are lost.
void flush();

void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
/// A warning is shown from any rank.
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
    write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace coeus::log
