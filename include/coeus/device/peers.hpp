// SPDX-License-Identifier: Apache-2.0
// Peers: what lets the GPUs of several processes of a host write into each other's memory: names of memory
// by which other processes open it, and numbers in it that queues write and wait for.
#pragma once

#include "coeus/device/device.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace coeus {

/// Names a GPU's memory for other processes of its host (a cudaIpcMemHandle_t).
using MemoryName = std::array<std::byte, 64>;

/// All SystemErrors have the reason, for messages.
class Peers {
public:
    virtual ~Peers() = default;
    /// `memory` is the beginning of memory that the device's memory() has given. SystemError if others cannot
    /// open it.
    virtual MemoryName name_of(std::byte* memory) const = 0;
    /// Opens another process's memory, and returns the address here. SystemError if it cannot be opened.
    virtual std::byte* open(const MemoryName& name) const = 0;
    /// Must be called before the other process frees it.
    virtual void close(std::byte* opened) const = 0;
    /// Work of a queue: writes a number, after everything that the queue did before is visible to all GPUs.
    virtual void write(Queue& queue, uint32_t* to, uint32_t number) const = 0;
    /// Work of a queue: later work waits until the number is there.
    virtual void wait(Queue& queue, const uint32_t* at, uint32_t number) const = 0;
};

/// Memory that others open should be whole blocks of so many bytes, since they open what else is in a block.
inline constexpr int64_t shared_block = int64_t(2) << 20;

/// Those of a GPU that open_gpu() has made. SystemError if its driver lacks what they need.
std::unique_ptr<Peers> peers_of(const Device& gpu);

}  // namespace coeus
