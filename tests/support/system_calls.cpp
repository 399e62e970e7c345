// SPDX-License-Identifier: Apache-2.0
// In programs that use SystemCalls, the linker uses the functions below instead of the C library's.
#include "support/system_calls.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>

namespace coeus::test {

namespace {

std::atomic<SystemCalls*> noting = nullptr;
std::mutex noted_mutex;
std::vector<std::string> noted_calls;
std::atomic<int> writes = 0;

std::string file_of(int descriptor) {
    std::error_code gone;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), gone)
        .filename()
        .string();
}

void note(const char* call, const std::string& file) {
    if (noting == nullptr) return;
    const std::lock_guard lock(noted_mutex);
    noted_calls.push_back(std::string(call) + " " + file);
}

}  // namespace

SystemCalls::SystemCalls() {
    noted_calls.clear();
    noting = this;
}
SystemCalls::~SystemCalls() {
    noting = nullptr;
}
std::vector<std::string> SystemCalls::noted() const {
    const std::lock_guard lock(noted_mutex);
    return noted_calls;
}

}  // namespace coeus::test

using coeus::test::SystemCalls;

extern "C" ssize_t pwrite(int descriptor, const void* from, size_t bytes, off_t offset) {
    if (const SystemCalls* calls = coeus::test::noting) {
        coeus::test::note("pwrite", coeus::test::file_of(descriptor));
        if (calls->interrupts && coeus::test::writes++ % 2 == 0) {
            errno = EINTR;
            return -1;
        }
        bytes = std::min(bytes, size_t(calls->most_bytes));
    }
    return syscall(SYS_pwrite64, descriptor, from, bytes, offset);
}

extern "C" ssize_t pread(int descriptor, void* to, size_t bytes, off_t offset) {
    if (SystemCalls* calls = coeus::test::noting;
        calls && calls->read_error != 0 && calls->good_reads-- <= 0 && calls->failing_reads-- > 0) {
        errno = calls->read_error;
        return -1;
    }
    return syscall(SYS_pread64, descriptor, to, bytes, offset);
}

extern "C" int stat(const char* path, struct stat* status) noexcept {
    if (SystemCalls* calls = coeus::test::noting; calls && calls->failing_looks > 0) {
        --calls->failing_looks;
        errno = calls->look_error;
        return -1;
    }
    return fstatat(AT_FDCWD, path, status, 0);
}

extern "C" int fsync(int descriptor) {
    coeus::test::note("fsync", coeus::test::file_of(descriptor));
    return int(syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
    coeus::test::note("rename", std::filesystem::path(to).filename().string());
    return int(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
