// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime on the CPU, for tests.
// - Work that is given to a stream waits until the host waits for a stream, an event or the device. Then the
//   work of several streams runs in an order drawn from the seed of block.hpp, as late and as mixed as the
//   streams' order and the events allow, so that a missing event has visible effects.
// - Graphs are captured under the rules of CUDA's stream capture. Breaking a rule invalidates the capture.
// - Only such work can access device memory. If the host uses such an address, the process ends.
// - Events tell the time of a clock on which each kernel, copy or other piece of work takes a microsecond.
#pragma once

#include <cstddef>
#include <functional>

struct coeus_emulated_stream;
struct coeus_emulated_event;
struct coeus_emulated_graph;

namespace coeus::emulation {

/// Gives work to a stream. Without a stream (null), the work runs immediately. On the device's clock it takes
/// a microsecond, or as many as are given.
void give(coeus_emulated_stream* stream, size_t microseconds, std::function<void()> work);
inline void give(coeus_emulated_stream* stream, std::function<void()> work) {
    give(stream, 1, std::move(work));
}
/// Gives work that must wait for something outside this process: it can start when `ready` returns true, and
/// `ready` is called often.
void give_when(coeus_emulated_stream* stream, std::function<bool()> ready, std::function<void()> work);

/// Gives work that is different each time it runs. `begin` gives it to the stream now. During a capture,
/// `begin` is called at each launch of the graph instead, with the stream of that launch.
void give_anew(coeus_emulated_stream* stream, std::function<void(coeus_emulated_stream*)> begin);

/// With `some`, from now on some streams (drawn from the seed when they are made) run only if no other can
/// continue. Without, all run equally often.
void let_streams_starve(bool some);

/// The number of graph launches until now.
size_t graph_launches();

/// Sets the function that is called while the host waits and all work depends on something outside this
/// process: again and again with true, and with false once work has run. It may throw, which ends the wait.
void on_waiting(std::function<void(bool again)> told);

/// The compute capability that GPUs have which are opened from now on, 90 for 9.0; 90 at first.
inline int architecture = 90;

/// The CUDA versions that the driver knows and that the program was built with; 13.0 at first.
inline int driver_version = 13000, toolkit_version = 13000;

/// The flags that were last set for the GPU, and the number of events for which threads wait asleep, until
/// now.
inline unsigned device_flags = 0;
inline size_t events_with_sleep = 0;

/// Bytes of memory of a GPU, and how many of them the driver reports as free; all at first.
constexpr size_t all_memory = size_t(4) << 30;
inline size_t free_memory = all_memory;

/// Whether the program has kernels for this GPU; true at first.
void set_kernels_for_gpu(bool are_there);

/// A launch of a kernel: the address of its function, the threads of a block, and their dynamic shared
/// memory.
struct Launch {
    const void* kernel = nullptr;
    unsigned threads = 0;
    size_t shared_bytes = 0;
};
/// If set: is called for each launch of a kernel. With false the kernel does not run.
inline std::function<bool(const Launch&)> on_launch;

/// How often the host has waited for a stream, an event or the device.
size_t waits();

/// The number of GPUs, 1 at first.
void set_gpus(int count);
/// From now on there are no GPUs, since CUDA fails with this status.
void set_failure(int status);
/// Whether work that runs on the device finds device memory at this address. Only such work may ask.
bool is_device_memory(const void* address);

/// The number of allocations of device and pinned memory and of events made, until now.
size_t allocations();
/// Bytes of device memory that are in use, and how many of these libraries have taken; 0 at first.
size_t device_bytes();
inline size_t bytes_of_libraries = 0;

/// The priority of a stream: 0 the least, -5 the greatest.
int priority(const coeus_emulated_stream* stream);
/// The flags of the last graph that was instantiated.
inline unsigned long long graph_flags = 0;

}  // namespace coeus::emulation
