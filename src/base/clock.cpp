// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/clock.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <thread>

namespace coeus {

void sleep_seconds(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::string duration_text(double seconds) {
    if (!(seconds >= 0) || seconds > 1e9) return "?";
    const int64_t s = std::llround(seconds);
    if (s < 60) return fmt::format("{} s", s);
    if (s < 3600) return fmt::format("{} m {:02} s", s / 60, s % 60);
    if (s < 86400) return fmt::format("{} h {:02} m", s / 3600, s % 3600 / 60);
    return fmt::format("{} d {:02} h", s / 86400, s % 86400 / 3600);
}

}  // namespace coeus
