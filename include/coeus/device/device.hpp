// SPDX-License-Identifier: Apache-2.0
// Device: where the tensors of a run are and its kernels run, this host or one of its GPUs. Queue: work of a
// GPU in the order in which it was given; the host's does its work at once. Graph: such work, recorded.
#pragma once

#include "coeus/device/memory.hpp"

#include <memory>
#include <string>

namespace coeus {

/// Whose kernels: known before there is a device, for planning.
enum class Backend : uint8_t { cpu, cuda };

/// Work that was recorded, to be given again by one call; it refers to the memory it was recorded with.
class Graph {
public:
    virtual ~Graph() = default;
};

/// Owned by an Exec. Errors of the device come as SystemError from whichever call meets them first.
class Queue {
public:
    virtual ~Queue() = default;
    /// What is given is done when the call returns: there are no points to wait for and no graphs. The host's
    /// queue is, GPUs' are not.
    virtual bool is_synchronous() const = 0;
    /// Between the device and the host, or within one. Returns at once, except where host memory is not the
    /// device's staging(). Both addresses may be the same.
    virtual void copy(void* to, const void* from, int64_t bytes) = 0;
    /// Returns when all that was given is done.
    virtual void finish() = 0;
    /// A point after all that was given; a later one may stand for one of long ago.
    virtual int64_t mark() = 0;
    /// Returns when all before this point is done.
    virtual void finish(int64_t point) = 0;
    /// What is given from now on begins after a point of another queue of the device.
    virtual void wait_for(const Queue& other, int64_t point) = 0;
    /// From now on work is recorded and not done: of this queue, and of those that begin after it. Until the
    /// end nothing is taken from the device's memory, no queue of the recording is finished, none of them
    /// begins after work from before, and each is waited for.
    virtual void begin_recording() = 0;
    virtual std::unique_ptr<Graph> end_recording() = 0;
    virtual void give(const Graph& graph) = 0;
    virtual bool is_recording() const = 0;
    /// Once in each thread, other than that which made the device, that gives it work.
    virtual void enter_thread() const = 0;
    /// As the device's own libraries call it.
    virtual void* native() const = 0;
};

/// A place in a queue's work that any thread can ask about.
class Event {
public:
    virtual ~Event() = default;
    /// Behind all that was given to a queue of its device.
    virtual void record(const Queue& queue) = 0;
    /// The device has come there; true where it was not recorded, and where that cannot be told.
    virtual bool passed() const = 0;
};

/// A place in a queue's work that tells when the device came there.
class TimedEvent {
public:
    virtual ~TimedEvent() = default;
    /// Behind all that was given to a queue of its device.
    virtual void record(const Queue& queue) = 0;
    /// From another one of the device to this; returns when both have passed. Both were recorded.
    virtual double seconds_since(const TimedEvent& earlier) const = 0;
};

class Device {
public:
    virtual ~Device() = default;
    virtual Backend backend() const = 0;
    /// "NVIDIA H100 80GB HBM3"; of the host: its processor's.
    virtual const std::string& name() const = 0;
    virtual const Memory& memory() const = 0;
    /// Of the host, from where copies run beside other work.
    virtual const Memory& staging() const = 0;
    virtual std::unique_ptr<Queue> make_queue() const = 0;
    /// Null where queues are synchronous.
    virtual std::unique_ptr<Event> make_event() const { return nullptr; }
    virtual std::unique_ptr<TimedEvent> make_timed_event() const { return nullptr; }
    /// Between the device and the host, or within one; all work given before it is done first. Returns when
    /// it is done: not for the training loop.
    virtual void copy(void* to, const void* from, int64_t bytes) const = 0;
    /// Bytes of memory() that the process may use.
    virtual int64_t memory_bytes() const = 0;
    /// Most bytes of memory() that were ever taken at a time.
    virtual int64_t peak_bytes() const = 0;
    /// Of the PCI bus: "0000:1b:00.0"; empty for the host.
    virtual std::string bus_id() const { return {}; }

    bool is_host() const { return backend() == Backend::cpu; }
};

const Device& host_device();

/// GPUs that this process sees; 0 where there is no driver, or the program was built without CUDA.
int visible_gpus();
/// Why there are none, in words.
std::string why_no_gpu();
bool built_with_cuda();
/// One of them. It must outlive what is taken from it. SystemError where it cannot be used.
std::unique_ptr<Device> open_gpu(int number);

}  // namespace coeus
