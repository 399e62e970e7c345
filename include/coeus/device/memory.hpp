// SPDX-License-Identifier: Apache-2.0
// Memory: where it is taken from. Buffer: its only owner. What the process and the machine have.
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
    /// At least one byte, zero-filled. `what` names it in errors: SystemError where there is not that much.
    virtual std::byte* take(int64_t bytes, const std::string& what) const = 0;
    virtual void give_back(std::byte* data, int64_t bytes) const = 0;
    /// The CPU may follow its addresses.
    virtual bool is_host() const { return true; }
};

/// 2 MiB pages where the system gives them, touched once when they are taken (a first touch is 20-50 times
/// slower than a later one; it must not happen in the training loop).
const Memory& host_memory();

/// A move-only block of memory.
class Buffer {
public:
    Buffer() = default;
    /// `what` names it in errors. The memory outlives it. SystemError when there is not that much.
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

/// Of what shares a buffer with others: a cache line, and the widest vectors.
inline constexpr int64_t alignment = 64;
/// What it takes there.
constexpr int64_t padded_bytes(int64_t bytes) {
    return round_up(bytes, alignment);
}

/// A Buffer with its one dense tensor: for state and tests.
struct OwnedTensor {
    Buffer buffer;
    Tensor view;

    OwnedTensor() = default;
    OwnedTensor(Dtype dtype, const Shape& shape, const std::string& what = "tensor",
                const Memory& memory = host_memory())
        : buffer(shape.count() * size_of(dtype), what, memory), view(buffer.data(), dtype, shape) {}
    operator Tensor() const { return view; }
};

/// Bytes of this process that are resident now, and the most that ever were.
int64_t resident_bytes();
int64_t peak_resident_bytes();
/// Bytes this process may use: its cgroup's limit or the machine's memory, whichever is less.
int64_t memory_limit_bytes();
/// The least limit of the memory cgroup that /proc/self/cgroup names and of those above it, versions 1 and 2;
/// the largest int64 where there is none. `root` stands for "/" in tests.
int64_t cgroup_memory_limit(const std::filesystem::path& root = "/");

}  // namespace coeus
