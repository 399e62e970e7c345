// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/start_up.hpp"

#include "coeus/base/text.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

namespace coeus {

double StartUp::seconds_since_exec() {
    std::ifstream file("/proc/self/stat");
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    // the program's name, in brackets, may contain any character; field 22 is the start in ticks since boot
    const size_t name_end = all.rfind(')');
    if (name_end == std::string::npos) return 0;
    std::istringstream fields(all.substr(name_end + 1));
    std::string skipped;
    for (int field = 3; field < 22; ++field) fields >> skipped;
    double ticks = 0, up = 0;
    if (!(fields >> ticks) || !(std::ifstream("/proc/uptime") >> up)) return 0;
    return std::max(0.0, up - ticks / double(sysconf(_SC_CLK_TCK)));
}

void StartUp::add(const char* name, double seconds) {
    const auto known = std::ranges::find(phases_, name, &Phase::name);
    (known == phases_.end() ? phases_.emplace_back(Phase{name, 0}) : *known).seconds += seconds;
}

double StartUp::end() {
    if (seconds_ < 0) seconds_ = now_() - begun_;
    return seconds_;
}

std::string StartUp::text() const {
    std::vector<std::string> parts;
    double other = seconds_;
    for (const Phase& phase : phases_) {
        parts.push_back(fmt::format("{} {:.1f}", phase.name, phase.seconds));
        other -= phase.seconds;
    }
    parts.push_back(fmt::format("other {:.1f}", std::max(0.0, other)));
    return fmt::format("Start-up {:.1f} s: {}", seconds_, join(parts, ", "));
}

}  // namespace coeus
