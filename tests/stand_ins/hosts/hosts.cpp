// SPDX-License-Identifier: Apache-2.0
// A library to preload into a run. One machine appears to be several, as far as system calls tell.
// COEUS_TEST_RANKS_PER_HOST=2: ranks 0 and 1 are on host0, 2 and 3 on host1, and so on.
// COEUS_TEST_HOST=name: the hosts are name0, name1, and so on.
// COEUS_TEST_NO_LOCKS=1: their file system has no locks.
// COEUS_TEST_STOP_AT=NAME: rank 0 suspends itself once, when it opens a file whose path ends with NAME
// and the file COEUS_TEST_STOP_IF exists.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string_view>

namespace {

const char* own_rank() {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    return rank ? rank : std::getenv("PMI_RANK");  // MPICH
}

void stop_if_asked(const char* path) {
    static bool has_stopped = false;
    if (const char* rank = own_rank(); rank && std::atoi(rank) != 0) return;
    const char *name = std::getenv("COEUS_TEST_STOP_AT"), *condition = std::getenv("COEUS_TEST_STOP_IF");
    if (has_stopped || !name || !condition || !std::string_view(path).ends_with(name)) return;
    if (access(condition, F_OK) != 0) return;
    has_stopped = true;
    raise(SIGSTOP);
}

int open_by(const char* function, const char* path, int flags, mode_t mode) {
    stop_if_asked(path);
    using Open = int (*)(const char*, int, ...);
    return reinterpret_cast<Open>(dlsym(RTLD_NEXT, function))(path, flags, mode);
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return open_by("open", path, flags, mode);
}
extern "C" int open64(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return open_by("open64", path, flags, mode);
}

extern "C" int gethostname(char* name, size_t length) noexcept {
    const char* rank = own_rank();
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
