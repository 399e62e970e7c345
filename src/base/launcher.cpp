// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/launcher.hpp"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace coeus {

std::string launcher_name() {
    using namespace std::string_view_literals;
    static constexpr std::array known = {"mpirun"sv,  "mpiexec"sv, "orterun"sv,        "orted"sv,
                                         "prterun"sv, "prted"sv,   "hydra_pmi_proxy"sv};
    std::ifstream name(fmt::format("/proc/{}/comm", getppid()));
    std::string parent;
    std::getline(name, parent);
    return std::ranges::find(known, std::string_view(parent)) != known.end() ? parent : "";
}

bool is_one_of_mpiruns() {
    const char* const commands = std::getenv("OMPI_NUM_APP_CTX");  // several are separated by ":"
    return !launcher_name().empty() && (commands == nullptr || std::string_view(commands) == "1");
}

}  // namespace coeus
