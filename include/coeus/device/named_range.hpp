// SPDX-License-Identifier: Apache-2.0
// NamedRange: what this thread does, for NVIDIA's profilers (NVTX), which show it beside the GPU's work.
#pragma once

#include <fmt/core.h>

#include <array>
#include <utility>

namespace coeus {

/// From its construction to its end, within those of the same thread that are open. Nothing where no profiler
/// listens, or without CUDA. Allocates nothing.
class NamedRange {
public:
    /// Names of up to 63 characters.
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
