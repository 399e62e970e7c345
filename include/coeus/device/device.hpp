// SPDX-License-Identifier: Apache-2.0
// Device: this host or one of its GPUs, where a run's tensors are and its kernels run. Queue: work that is
// done in the order of submission; asynchronous on a GPU (a CUDA stream), immediate on the host. Graph:
// recorded work (a CUDA graph).
#pragma once

#include "coeus/device/memory.hpp"

#include <memory>
#include <string>

namespace coeus {

/// The kind of kernels. Known before a device is opened, for planning.
enum class Backend : uint8_t { cpu, cuda };

/// Which of the queues' kernels a GPU begins first. Those of communication, which take few multiprocessors,
/// would otherwise wait until all blocks of a large product have begun.
enum class Priority : uint8_t { normal, high };

/// Recorded work that one call submits again. It refers to the memory that it was recorded with.
class Graph {
public:
    virtual ~Graph() = default;
    /// How many pieces of work it has: kernels, copies, operations between GPUs.
    virtual int64_t nodes() const { return 0; }
};

class Event;

/// An ordered queue of work, owned by an Exec. Errors of the device are thrown as SystemError by whichever
/// call detects them first.
class Queue {
public:
    virtual ~Queue() = default;
    /// True if work is done when the call that submits it returns; then there are no points to wait for and
    /// no graphs. True for the host's queue, false for those of GPUs.
    virtual bool is_synchronous() const = 0;
    /// Copies between the device and the host, or within one of them. Asynchronous, unless host memory is not
    /// from the device's staging(). Both addresses may be the same.
    virtual void copy(void* to, const void* from, int64_t bytes) = 0;
    /// Blocks until all submitted work is done.
    virtual void finish() = 0;
    /// Returns a point in the queue after all submitted work. Waiting for a point of long ago may wait for a
    /// later one: work that marks many points records events of its own instead.
    virtual int64_t mark() = 0;
    /// Blocks until all work before this point is done.
    virtual void finish(int64_t point) = 0;
    /// Makes work that is submitted from now on wait for a point of another queue of the same device.
    virtual void wait_for(const Queue& other, int64_t point) = 0;
    /// The same for an event of the device, as it was last recorded; for nothing if it never was.
    virtual void wait_for(const Event& event) = 0;
    /// Begins to record a graph: work of this queue, and of queues that wait for it, is recorded and not
    /// done. Until end_recording(), no device memory may be allocated, no queue of the recording may be
    /// finished or wait for a point from before the recording, and this queue must in the end wait for all
    /// others.
    virtual void begin_recording() = 0;
    virtual std::unique_ptr<Graph> end_recording() = 0;
    virtual void give(const Graph& graph) = 0;
    virtual bool is_recording() const = 0;
    /// Must be called once in each thread that submits work, except the one that made the device.
    virtual void enter_thread() const = 0;
    /// The queue's handle for the device's own libraries (a cudaStream_t).
    virtual void* native() const = 0;
};

/// A point in a queue's work for which other queues can wait, and which any thread can query.
class Event {
public:
    virtual ~Event() = default;
    /// Places the event after all work submitted to a queue of its device.
    virtual void record(const Queue& queue) = 0;
    /// True if the device has reached the event, or if it was never recorded.
    virtual bool passed() const = 0;
};

/// A point in a queue's work that records the time at which the device reached it.
class TimedEvent {
public:
    virtual ~TimedEvent() = default;
    /// Places the event after all work submitted to a queue of its device.
    virtual void record(const Queue& queue) = 0;
    /// Seconds from an earlier event of the device to this one; blocks until both have passed. Both must have
    /// been recorded.
    virtual double seconds_since(const TimedEvent& earlier) const = 0;
};

class Device {
public:
    virtual ~Device() = default;
    virtual Backend backend() const = 0;
    /// "NVIDIA H100 80GB HBM3"; for the host, the name of its processor.
    virtual const std::string& name() const = 0;
    virtual const Memory& memory() const = 0;
    /// Host memory from which copies are asynchronous: pinned memory for a GPU.
    virtual const Memory& staging() const = 0;
    virtual std::unique_ptr<Queue> make_queue(Priority priority) const = 0;
    /// Never null.
    virtual std::unique_ptr<Event> make_event() const = 0;
    /// Null if the device's queues are synchronous.
    virtual std::unique_ptr<TimedEvent> make_timed_event() const { return nullptr; }
    /// Copies between the device and the host, or within one of them, after all work submitted before. Blocks
    /// until it is done: not for the training loop.
    virtual void copy(void* to, const void* from, int64_t bytes) const = 0;
    /// Bytes of memory() that the process may use.
    virtual int64_t memory_bytes() const = 0;
    /// The most bytes of memory() that were ever allocated at a time.
    virtual int64_t peak_bytes() const = 0;
    /// Bytes of a GPU's memory that were free when it was opened and are not now, also those that libraries
    /// took, or other processes; 0 for the host.
    virtual int64_t taken_bytes() const { return 0; }
    /// Address on the PCI bus, "0000:1b:00.0"; empty for the host.
    virtual std::string bus_id() const { return {}; }
    /// Compute capability of a GPU, 90 for 9.0; 0 for the host.
    virtual int architecture() const { return 0; }
    /// Number of multiprocessors of a GPU; 0 for the host.
    virtual int multiprocessors() const { return 0; }
    /// True if the program was built for older GPUs only, so that the driver compiles its kernels (PTX) when
    /// they are first used, and keeps them for later runs.
    virtual bool compiles_kernels() const { return false; }

    bool is_host() const { return backend() == Backend::cpu; }
};

const Device& host_device();

/// Notified of how the queues of a planned device wait for each other.
class QueueObserver {
public:
    virtual ~QueueObserver() = default;
    /// Returns the point of a queue after all work submitted so far.
    virtual int64_t mark(const Queue& queue) = 0;
    /// Work that `queue` gets from now on waits for a point of another queue.
    virtual void wait(const Queue& queue, const Queue& other, int64_t point) = 0;
};

/// A tensor of the host, or a copy of it in the memory of another device. Not for the training loop.
OwnedTensor moved_to(const Device& device, OwnedTensor tensor);

/// A device for planning runs, whose kernels are those of a table that computes nothing. Its memory is
/// addresses that nothing may access. Its queues are asynchronous, as those of a GPU, but copy nothing,
/// record no graphs, and are always finished. Its staging memory is real. The observer must outlive it.
std::unique_ptr<Device> make_planned_device(Backend backend, int architecture, QueueObserver& observer);

/// Number of GPUs that this process sees; 0 if CUDA cannot be used, or if the program was built without it.
int visible_gpus();
/// The reason why there are none, for messages.
std::string why_no_gpu();
/// True if CUDA cannot be used at all: its driver is missing, too old or broken. False if the driver works
/// but shows no GPU, and if the program was built without CUDA.
bool cuda_fails();
bool built_with_cuda();
/// Versions of CUDA, 12090 for 12.9.
struct CudaVersions {
    int driver = 0;   ///< the newest that the driver knows; 0: there is no driver
    int toolkit = 0;  ///< with which the program was built; 0: without CUDA
};
CudaVersions cuda_versions();
/// The bus_id() of a visible GPU, without opening it.
std::string gpu_bus_id(int number);
/// How a thread waits for a GPU: by looking at it all the time, or asleep, which takes longer to notice the
/// end and leaves the core to others.
enum class Waiting : uint8_t { awake, asleep };
struct GpuOptions {
    Waiting waiting = Waiting::awake;
    bool priorities = true;  ///< false: queues of high priority have a normal one
};
/// Opens a GPU by its number. The device must outlive everything that is made from it. SystemError if it
/// cannot be used.
std::unique_ptr<Device> open_gpu(int number, const GpuOptions& options = {});

}  // namespace coeus
