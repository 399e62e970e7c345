// SPDX-License-Identifier: Apache-2.0
// NamedRange: names what this thread does for NVIDIA's profilers (NVTX), which show it next to the GPU's
// work.
#pragma once

#include <fmt/core.h>

#include <array>
#include <utility>

namespace coeus {

/// A range from construction to destruction, nested in the open ranges of the same thread. Does nothing if no
/// profiler listens, or without CUDA. Does not allocate.
class NamedRange {
public:
    /// The name has up to 63 characters; longer ones are cut.
    template <class... Args>
    explicit NamedRange(fmt::format_string<Args...> format, Args&&... args) : silent_(silences_ > 0) {
        if (silent_) return;
        std::array<char, 64> name = {};
        fmt::format_to_n(name.data(), name.size() - 1, format, std::forward<Args>(args)...);
        begin(name.data());
    }
    ~NamedRange() {
        if (!silent_) end();
    }
    /// While it lives, this thread's new ranges do nothing: for ranges that would not be nested.
    class [[nodiscard]] Silence {
    public:
        Silence() { ++silences_; }
        ~Silence() { --silences_; }
        Silence(const Silence&) = delete;
        Silence& operator=(const Silence&) = delete;
    };
    NamedRange(const NamedRange&) = delete;
    NamedRange& operator=(const NamedRange&) = delete;

private:
    static void begin(const char* name);
    static void end();
    static inline thread_local int silences_ = 0;
    bool silent_;
};

}  // namespace coeus
