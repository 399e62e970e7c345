// SPDX-License-Identifier: Apache-2.0
// The kinds of error, and the exit codes of the program.
// - ConfigError: the deck, the command line or the data is wrong. The user can fix it (exit 2).
// - SystemError: a call of MPI, CUDA, HDF5 or the file system failed. The message has the call, the reason
//   and the source line (exit 3).
// - NotFiniteError: the loss or the gradient norm is not finite (exit 4).
// - StoppedError: the program was asked to stop and did so (exit 75).
// - LogicError: a contract between parts of Coeus is broken. require() throws it (exit 3).
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace coeus {

/// Exit codes of the program; scripts rely on them.
enum class ExitCode : int { done = 0, config = 2, system = 3, not_finite = 4, stopped = 75 };

/// An error that the user can fix. The message names the key, the value, the rule and the nearest valid
/// choice.
class ConfigError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
    template <class... Args>
    explicit ConfigError(fmt::format_string<Args...> format, Args&&... args)
        : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

/// A call of the operating system or of a library failed.
class SystemError : public std::runtime_error {
public:
    explicit SystemError(const std::string& what,
                         std::source_location where = std::source_location::current());

protected:
    struct NoPlace {};  ///< for messages that already name the source line
    SystemError(const std::string& what, NoPlace) : std::runtime_error(what) {}
};

/// A SystemError of one rank that all ranks know of. They all end in order, and rank 0 reports it.
class CollectiveError : public SystemError {
public:
    explicit CollectiveError(const std::string& what) : SystemError(what, NoPlace{}) {}
};

/// The loss or the gradient norm is not finite; no optimizer step was taken (exit 4).
class NotFiniteError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The program was asked to stop, by a signal or by the end of its time, and has left its work in order (exit
/// 75: the same command resumes it). The text is empty if the reason was already logged.
class StoppedError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A broken contract between parts of Coeus: a bug, not a user's mistake.
class LogicError : public std::logic_error {
public:
    explicit LogicError(const std::string& what,
                        std::source_location where = std::source_location::current());
};

/// The text of an errno value for messages: "No space left on device".
std::string errno_text(int code);

/// Checks a contract between parts of Coeus, in release builds too. Throws LogicError with the caller's
/// source line.
inline void require(bool condition, const char* what,
                    std::source_location where = std::source_location::current()) {
    if (!condition) [[unlikely]]
        throw LogicError(what, where);
}

}  // namespace coeus
