// SPDX-License-Identifier: Apache-2.0
// Memory: a source of memory. Buffer: the owner of a block of it. Also the memory use and limits of the
// process and the machine.
#pragma once

#include "coeus/device/tensor.hpp"

#include <cstddef>
#include <filesystem>
#include <string>

namespace coeus {

/// Memory of one kind: the host's, or a device's (device.hpp).
class Memory {
public:
    virtual ~Memory() = default;
    /// Allocates at least one byte, filled with zeros. `what` names the memory in errors. SystemError if
    /// there is not enough.
    virtual std::byte* take(int64_t bytes, const std::string& what) const = 0;
    virtual void give_back(std::byte* data, int64_t bytes) const = 0;
    /// True if the CPU can access its addresses.
    virtual bool is_host() const { return true; }
};

/// Host memory, with 2 MiB pages if the system provides them. Pages are touched when they are allocated: the
/// first touch is 20-50 times slower than later ones and must not happen in the training loop.
const Memory& host_memory();

/// An owned block of memory; can be moved, not copied.
class Buffer {
public:
    Buffer() = default;
    /// `what` names it in errors. `memory` must outlive it. SystemError if there is not enough memory.
    Buffer(int64_t bytes, std::string what, const Memory& memory = host_memory());
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;

    std::byte* data() const { return data_; }
    int64_t bytes() const { return bytes_; }
    const std::string& what() const { return what_; }
    const Memory& memory() const { return *memory_; }

private:
    const Memory* memory_ = &host_memory();
    std::byte* data_ = nullptr;
    int64_t bytes_ = 0;
    std::string what_;
};

/// Alignment in bytes of data that shares a buffer with other data: a cache line, and the widest vectors.
inline constexpr int64_t alignment = 64;
/// Bytes that data takes in a shared buffer.
constexpr int64_t padded_bytes(int64_t bytes) {
    return round_up(bytes, alignment);
}

/// A Buffer and the one dense tensor in it: for state and tests.
struct OwnedTensor {
    Buffer buffer;
    Tensor view;

    OwnedTensor() = default;
    OwnedTensor(Dtype dtype, const Shape& shape, const std::string& what = "tensor",
                const Memory& memory = host_memory())
        : buffer(shape.count() * size_of(dtype), what, memory), view(buffer.data(), dtype, shape) {}
    operator Tensor() const { return view; }
};

/// Resident memory of this process in bytes: now, and the most that it ever was.
int64_t resident_bytes();
int64_t peak_resident_bytes();
/// Bytes that this process may use: the limit of its cgroup or the machine's memory, whichever is less.
int64_t memory_limit_bytes();
/// The smallest limit of the memory cgroup that /proc/self/cgroup names and of those above it, for cgroup
/// versions 1 and 2. The largest int64 if there is no limit. Tests pass another folder as `root`.
int64_t cgroup_memory_limit(const std::filesystem::path& root = "/");

}  // namespace coeus
