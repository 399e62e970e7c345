// SPDX-License-Identifier: Apache-2.0
// Runs Catch2 on every rank of an mpirun. Rank 0 prints its report; another rank does so only if it fails.
// The exit code is the worst of all ranks; it says "skipped" if everything was skipped on all ranks. A rank
// that leaves a case by an exception or a failed REQUIRE ends all ranks, since they would wait for it in
// their next collective. Cases use CHECK, so that a failure leaves the others to run.
#include "coeus/comm/communicator.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/device/memory.hpp"
#include "support/mpi_runtime.hpp"
#include "support/skip.hpp"
#include "support/support.hpp"

#include <iostream>
#include <sstream>

namespace {

// mpirun.sh counts a 1 of mpirun as success if mpirun says that it overlooked a rank
constexpr int left_code = 2;

const coeus::MpiRuntime* runtime = nullptr;

int run(int argc, char** argv) {
    coeus::MpiRuntime mpi(&argc, &argv);
    runtime = &mpi;
    coeus::test::resident_at_start = coeus::resident_bytes();
    std::ostringstream held;
    std::streambuf* terminal = std::cout.rdbuf();
    if (mpi.world_rank() != 0) std::cout.rdbuf(held.rdbuf());
    if (mpi.world_size() > 1)
        coeus::test::case_left = [&] {
            std::cout.rdbuf(terminal);
            if (mpi.world_rank() != 0) std::cout << "rank " << mpi.world_rank() << ":\n" << held.str();
            std::cout << "\nrank " << mpi.world_rank() << " has left this case, so all ranks end"
                      << std::endl;
            coeus::end_mpi_after_error(left_code, false);
        };
    const int code = coeus::test::run_cases(argc, argv);
    coeus::test::case_left = nullptr;
    const bool skipped = code == coeus::test::skipped_code;
    const int failed = skipped ? 0 : code;
    std::cout.rdbuf(terminal);
    if (mpi.world_rank() != 0 && failed)
        std::cout << "rank " << mpi.world_rank() << ":\n" << held.str() << std::flush;
    const coeus::Communicator world = coeus::Communicator::world("results of tests");
    const int64_t worst = world.all_reduce(int64_t(failed), coeus::Reduce::max);
    const bool all_skipped = world.all_reduce(int64_t(skipped ? 0 : 1), coeus::Reduce::max) == 0;
    return all_skipped ? coeus::test::skipped_code : int(worst);
}

const bool registered = (coeus::test::runner = run, true);

}  // namespace

const coeus::MpiRuntime& coeus::test::mpi_runtime() {
    return *runtime;
}
