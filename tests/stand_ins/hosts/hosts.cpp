// SPDX-License-Identifier: Apache-2.0
// Preloaded into a run: COEUS_TEST_RANKS_PER_HOST=2 puts ranks 0 and 1 on host0, 2 and 3 on host1, ... as far
// as the system's gethostname says, so that one machine plays several.
#include <cstdio>
#include <cstdlib>

extern "C" int gethostname(char* name, size_t length) noexcept {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = std::getenv("PMI_RANK");  // MPICH
    const char* ranks = std::getenv("COEUS_TEST_RANKS_PER_HOST");
    std::snprintf(name, length, "host%d", rank && ranks ? std::atoi(rank) / std::atoi(ranks) : 0);
    return 0;
}
