// SPDX-License-Identifier: Apache-2.0
// Runs Catch2 on every rank of an mpirun: rank 0 reports, another rank only where it fails; the exit code is
// the worst of all ranks. A case must use CHECK around collectives, or ranks wait for one that left.
#include "coeus/comm/mpi.hpp"
#include "coeus/device/memory.hpp"
#include "support/support.hpp"

#include <iostream>
#include <sstream>

namespace {

int run(int argc, char** argv) {
    coeus::MpiRuntime mpi(&argc, &argv);
    coeus::test::resident_at_start = coeus::resident_bytes();
    std::ostringstream held;
    std::streambuf* terminal = std::cout.rdbuf();
    if (mpi.world_rank() != 0) std::cout.rdbuf(held.rdbuf());
    const int failed = coeus::test::run_cases(argc, argv);
    std::cout.rdbuf(terminal);
    if (mpi.world_rank() != 0 && failed)
        std::cout << "rank " << mpi.world_rank() << ":\n" << held.str() << std::flush;
    return mpi.max_over_world(failed);
}

const bool registered = (coeus::test::runner = run, true);

}  // namespace
