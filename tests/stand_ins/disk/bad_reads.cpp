// SPDX-License-Identifier: Apache-2.0
// A library to preload into a run. A network file system fails now and then: one in COEUS_TEST_BAD_READS
// opens, reads and looks (stat, access) of a file fails, at random, with ESTALE, EIO, EINTR or (an open only)
// EMFILE. COEUS_TEST_BAD_READS_IN=TEXT: only of files whose path contains it. Must be set.
// COEUS_TEST_BAD_READS_SEED=N: chooses which calls fail. Ranks differ.
// COEUS_TEST_BAD_READS_ERROR=N: always with this value of errno.
// COEUS_TEST_BAD_READS_IF=FILE: only while this file exists.
// COEUS_TEST_BAD_READS_CALL=NAME: only calls of this function, "access" or "stat".
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <string_view>

namespace {

struct Options {
    const char *one_in = std::getenv("COEUS_TEST_BAD_READS"), *in = std::getenv("COEUS_TEST_BAD_READS_IN"),
               *seed = std::getenv("COEUS_TEST_BAD_READS_SEED"),
               *error = std::getenv("COEUS_TEST_BAD_READS_ERROR"),
               *condition = std::getenv("COEUS_TEST_BAD_READS_IF"),
               *call = std::getenv("COEUS_TEST_BAD_READS_CALL"),
               *rank = std::getenv("OMPI_COMM_WORLD_RANK") ? std::getenv("OMPI_COMM_WORLD_RANK")
                                                           : std::getenv("PMI_RANK");  // MPICH
};

uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// The errno of the next call; 0: it does not fail.
int failure_of(std::string_view path, bool opens, std::string_view call) {
    static const Options options;
    if (options.call && call != options.call) return 0;
    static std::atomic<uint64_t> calls = 0;
    if (!options.one_in || !options.in || path.find(options.in) == std::string_view::npos) return 0;
    if (options.condition && access(options.condition, F_OK) != 0) return 0;
    const uint64_t rank = options.rank ? uint64_t(std::atoll(options.rank)) : 0,
                   seed = options.seed ? uint64_t(std::atoll(options.seed)) : 0;
    const uint64_t drawn = mixed(mixed(mixed(seed) + rank) + calls++);
    if (drawn % uint64_t(std::atoll(options.one_in)) != 0) return 0;
    if (options.error) return std::atoi(options.error);
    constexpr int errors[] = {ESTALE, EIO, EINTR, EMFILE};
    return errors[(drawn >> 32) % (opens ? 4 : 3)];
}

std::string path_of(int descriptor) {
    char link[64], path[4096];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, path, sizeof path);
    return length > 0 ? std::string(path, size_t(length)) : "";
}

template <class Result, class... Arguments>
Result call(const char* name, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(dlsym(RTLD_NEXT, name))(arguments...);
}

bool fails(std::string_view path, bool opens, std::string_view call = "") {
    const int before = errno, failure = failure_of(path, opens, call);
    errno = failure ? failure : before;
    return failure != 0;
}

int open_by(const char* name, const char* path, int flags, mode_t mode) {
    if (fails(path, true)) return -1;
    using Open = int (*)(const char*, int, ...);
    return reinterpret_cast<Open>(dlsym(RTLD_NEXT, name))(path, flags, mode);
}
int open_at(const char* name, int folder, const char* path, int flags, mode_t mode) {
    if (fails(path, true)) return -1;
    using Open = int (*)(int, const char*, int, ...);
    return reinterpret_cast<Open>(dlsym(RTLD_NEXT, name))(folder, path, flags, mode);
}

}  // namespace

#define MODE_OF(last)                         \
    va_list rest;                             \
    va_start(rest, last);                     \
    const mode_t mode = va_arg(rest, mode_t); \
    va_end(rest)

extern "C" int open(const char* path, int flags, ...) {
    MODE_OF(flags);
    return open_by("open", path, flags, mode);
}
extern "C" int open64(const char* path, int flags, ...) {
    MODE_OF(flags);
    return open_by("open64", path, flags, mode);
}
extern "C" int openat(int folder, const char* path, int flags, ...) {
    MODE_OF(flags);
    return open_at("openat", folder, path, flags, mode);
}
extern "C" int openat64(int folder, const char* path, int flags, ...) {
    MODE_OF(flags);
    return open_at("openat64", folder, path, flags, mode);
}
extern "C" DIR* opendir(const char* path) {
    return fails(path, true) ? nullptr : call<DIR*>("opendir", path);
}
extern "C" int stat(const char* path, struct stat* status) noexcept {
    return fails(path, false, "stat") ? -1 : call<int>("stat", path, status);
}
extern "C" int access(const char* path, int how) noexcept {
    return fails(path, false, "access") ? -1 : call<int>("access", path, how);
}
extern "C" ssize_t read(int descriptor, void* to, size_t bytes) {
    return fails(path_of(descriptor), false) ? -1 : call<ssize_t>("read", descriptor, to, bytes);
}
extern "C" ssize_t pread(int descriptor, void* to, size_t bytes, off_t offset) {
    return fails(path_of(descriptor), false) ? -1 : call<ssize_t>("pread", descriptor, to, bytes, offset);
}
extern "C" ssize_t pread64(int descriptor, void* to, size_t bytes, off_t offset) {
    return fails(path_of(descriptor), false) ? -1 : call<ssize_t>("pread64", descriptor, to, bytes, offset);
}
