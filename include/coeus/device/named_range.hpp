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
    explicit NamedRange(fmt::format_string<Args...> format, Args&&... args) {
        std::array<char, 64> name = {};
        fmt::format_to_n(name.data(), name.size() - 1, format, std::forward<Args>(args)...);
        begin(name.data());
    }
    ~NamedRange() { end(); }
    NamedRange(const NamedRange&) = delete;
    NamedRange& operator=(const NamedRange&) = delete;

private:
    static void begin(const char* name);
    static void end();
};

}  // namespace coeus
