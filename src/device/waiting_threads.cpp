// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/waiting_threads.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace coeus {

void let_waiting_threads_sleep(char** arguments) {
    constexpr const char* looks = "GOMP_SPINCOUNT";
    if (std::getenv(looks) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
    setenv(looks, std::to_string(looks_before_sleep).c_str(), 1);
    execv("/proc/self/exe", arguments);
}

}  // namespace coeus
