// SPDX-License-Identifier: Apache-2.0
// coeus info --build: compiler, flags and libraries of the build, and the MPI library that is found now.
#include "../built_with.hpp"
#include "coeus/base/version.hpp"
#include "coeus/comm/mpi.hpp"
#include "kinds.hpp"

namespace coeus::apps {

void show_build() {
    print("coeus {}\n", version());
    for (const auto& [name, text] : built_with()) info_line(name, text);
    info_line("MPI found here", MpiRuntime::library_version());
}

}  // namespace coeus::apps
