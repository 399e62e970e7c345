// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/waiting_threads.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <elf.h>
#include <link.h>
#include <span>
#include <string>

namespace coeus {

namespace {

// True if the program was started as an argument of the dynamic loader ("ld.so coeus"): then /proc/self/exe
// is the loader. It names a loader, but the system has not loaded one beside it. A static program names none.
bool loader_was_started() {
    bool names_loader = false;
    const auto look = [](dl_phdr_info* program, size_t, void* found) {
        *static_cast<bool*>(found) =
            std::ranges::any_of(std::span(program->dlpi_phdr, program->dlpi_phnum),
                                [](const auto& header) { return header.p_type == PT_INTERP; });
        return 1;  // the program is the first one
    };
    dl_iterate_phdr(look, &names_loader);
    return names_loader && getauxval(AT_BASE) == 0;
}

}  // namespace

void let_waiting_threads_sleep(char** arguments) {
    constexpr const char* looks = "GOMP_SPINCOUNT";
    if (std::getenv(looks) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
    if (loader_was_started()) return;
    setenv(looks, std::to_string(looks_before_sleep).c_str(), 1);
    execv("/proc/self/exe", arguments);
}

}  // namespace coeus
