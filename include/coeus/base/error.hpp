// SPDX-License-Identifier: Apache-2.0
// The three kinds of error, and the exit codes a user sees.
//   ConfigError: the deck, command line or data is wrong, found before any work; the user can fix it (exit 2)
//   SystemError: MPI, CUDA, HDF5, a file; carries the call, the reason and the place (exit 3)
//   LogicError:  a contract between our own parts is broken, thrown by require() (exit 3)
#pragma once

#include <fmt/core.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace coeus {

/// Exit codes of the program; scripts rely on them.
enum class ExitCode : int { done = 0, config = 2, system = 3, not_finite = 4, stopped = 75 };

/// The user can fix it. The message names key, value, rule and the nearest valid choice.
class ConfigError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
    template <class... Args>
    explicit ConfigError(fmt::format_string<Args...> format, Args&&... args)
        : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

/// An operating system or library call failed.
class SystemError : public std::runtime_error {
public:
    explicit SystemError(const std::string& what,
                         std::source_location where = std::source_location::current());

protected:
    struct NoPlace {};  ///< the text names the place already
    SystemError(const std::string& what, NoPlace) : std::runtime_error(what) {}
};

/// A SystemError of one rank that all ranks have learned of: they end in order, and rank 0 reports it.
class CollectiveError : public SystemError {
public:
    explicit CollectiveError(const std::string& what) : SystemError(what, NoPlace{}) {}
};

/// A loss or gradient norm that is not finite; no optimizer step was taken (exit 4).
class NotFiniteError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The program was asked to end, by a signal or the end of its time, and what it did is in order (exit 75:
/// the same line goes on from there). An empty text: it was said.
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

/// Text of errno for messages: "No space left on device".
std::string errno_text(int code);

/// Always-on check of a contract between our own parts; throws LogicError with the caller's place.
inline void require(bool condition, const char* what,
                    std::source_location where = std::source_location::current()) {
    if (!condition) [[unlikely]]
        throw LogicError(what, where);
}

}  // namespace coeus
