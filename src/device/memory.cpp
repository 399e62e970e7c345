// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/memory.hpp"

#include "coeus/base/text.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace coeus {

Buffer::Buffer(int64_t bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {
    require(bytes >= 0, "a buffer of negative size");
    if (bytes == 0) return;
    void* memory = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        throw SystemError(
            fmt::format("cannot get {} for {}: {}", bytes_text(double(bytes)), what_, errno_text(errno)));
    madvise(memory, size_t(bytes), MADV_HUGEPAGE);  // advice: without it the buffer works with small pages
    std::memset(memory, 0, size_t(bytes));
    data_ = static_cast<std::byte*>(memory);
}

Buffer::~Buffer() {
    if (data_) munmap(data_, size_t(bytes_));
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      what_(std::move(other.what_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(what_, other.what_);
    return *this;
}

int64_t resident_bytes() {
    int64_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

int64_t peak_resident_bytes() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return int64_t(usage.ru_maxrss) * 1024;
}

int64_t memory_limit_bytes() {
    int64_t limit = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        int64_t value = 0;  // "max" leaves the stream failed
        if (std::ifstream in(file); in >> value) limit = std::min(limit, value);
    }
    return limit;
}

}  // namespace coeus
