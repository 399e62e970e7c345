// SPDX-License-Identifier: Apache-2.0
// Preloaded into a run, it lets one machine play several, as far as the system's calls say.
// COEUS_TEST_RANKS_PER_HOST=2: ranks 0 and 1 are on host0, 2 and 3 on host1, and so on.
// COEUS_TEST_HOST=name: the hosts are name0, name1, and so on.
// COEUS_TEST_NO_LOCKS=1: their file system has no locks.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

extern "C" int gethostname(char* name, size_t length) noexcept {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = std::getenv("PMI_RANK");  // MPICH
    const char* ranks = std::getenv("COEUS_TEST_RANKS_PER_HOST");
    const char* host = std::getenv("COEUS_TEST_HOST");
    std::snprintf(name, length, "%s%d", host ? host : "host",
                  rank && ranks ? std::atoi(rank) / std::atoi(ranks) : 0);
    return 0;
}

extern "C" int flock(int descriptor, int operation) noexcept {
    if (std::getenv("COEUS_TEST_NO_LOCKS")) return errno = ENOLCK, -1;
    using Flock = int (*)(int, int);
    return reinterpret_cast<Flock>(dlsym(RTLD_NEXT, "flock"))(descriptor, operation);
}
