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
#include <limits>
#include <utility>

namespace coeus {

namespace {

class HostMemory : public Memory {
public:
    std::byte* take(int64_t bytes, const std::string& what) const override {
        void* memory =
            mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            throw SystemError(
                fmt::format("cannot get {} for {}: {}", bytes_text(double(bytes)), what, errno_text(errno)));
        madvise(memory, size_t(bytes), MADV_HUGEPAGE);  // only advice: without it there are small pages
        auto* const data = static_cast<std::byte*>(memory);
        // first touched by the threads that will use it: faster, and in the memory of their own NUMA nodes
        constexpr int64_t piece = int64_t(2) << 20;
#pragma omp parallel for schedule(static) if (bytes >= 16 * piece)
        for (int64_t first = 0; first < bytes; first += piece)
            std::memset(data + first, 0, size_t(std::min(piece, bytes - first)));
        return data;
    }
    void give_back(std::byte* data, int64_t bytes) const override {
        munmap(data, size_t(bytes));
    }
};

}  // namespace

const Memory& host_memory() {
    static const HostMemory memory;
    return memory;
}

Buffer::Buffer(int64_t bytes, std::string what, const Memory& memory)
    : memory_(&memory), bytes_(bytes), what_(std::move(what)) {
    require(bytes >= 0, "a buffer of negative size");
    if (bytes > 0) data_ = memory.take(bytes, what_);
}

Buffer::~Buffer() {
    if (data_) memory_->give_back(data_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      what_(std::move(other.what_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
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

int64_t cgroup_memory_limit(const std::filesystem::path& root) {
    namespace fs = std::filesystem;
    int64_t limit = std::numeric_limits<int64_t>::max();
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // "0::/job" (2) or "9:memory:/job" (1)
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool version2 = controllers.empty();
        if (!version2 && (',' + controllers + ',').find(",memory,") == std::string::npos) continue;
        const fs::path top = root / (version2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
        const char* file = version2 ? "memory.max" : "memory.limit_in_bytes";
        for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
             group = group.parent_path()) {
            int64_t value = 0;  // "max" (no limit) does not parse and is ignored
            if (std::ifstream in(top / group / file); in >> value) limit = std::min(limit, value);
            if (group.empty()) break;
        }
    }
    return limit;
}

int64_t memory_limit_bytes() {
    return std::min(int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE), cgroup_memory_limit());
}

}  // namespace coeus
