// SPDX-License-Identifier: Apache-2.0
// Included before each file by Clang 14 and clang-tidy 14. It provides two things that GCC 12's headers
// expect of a compiler: __malloc__ with an argument (omp.h), and __builtin_source_location, without which
// there is no std::source_location.
#pragma once

#ifdef __clang__
#define __malloc__(...) __malloc__  // NOLINT(bugprone-reserved-identifier): the header's name
#endif

#include <source_location>

#if defined(__clang__) && !__has_builtin(__builtin_source_location)
namespace std {

struct source_location {
    static constexpr source_location current(const char* file = __builtin_FILE(),
                                             unsigned line = __builtin_LINE(),
                                             const char* function = __builtin_FUNCTION()) noexcept {
        source_location here;
        here.file_ = file;
        here.function_ = function;
        here.line_ = line;
        return here;
    }
    constexpr const char* file_name() const noexcept { return file_; }
    constexpr const char* function_name() const noexcept { return function_; }
    constexpr unsigned line() const noexcept { return line_; }
    constexpr unsigned column() const noexcept { return 0; }

private:
    const char* file_ = "";
    const char* function_ = "";
    unsigned line_ = 0;
};

}  // namespace std
#endif
