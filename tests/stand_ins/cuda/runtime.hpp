// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime on the CPU, for tests. What is given to a stream waits until the host asks for a stream, an
// event or the device to be finished; until then work of several streams runs in an order drawn from the seed
// of block.hpp, as late and as shuffled as the streams' order and the events allow, so that a missing event
// shows. Graphs are recorded with the rules of CUDA's stream capture; what breaks them makes a recording
// void. Device memory cannot be read or written but by such work: the host that follows its address ends
// there. Events tell time by a clock of which each kernel, copy or other work takes a microsecond.
#pragma once

#include <cstddef>
#include <functional>

struct coeus_emulated_stream;
struct coeus_emulated_event;
struct coeus_emulated_graph;

namespace coeus::emulation {

/// Work of a stream; of none (null): runs at once.
void give(coeus_emulated_stream* stream, std::function<void()> work);
/// Work that others outside this process may hold up: it begins when `ready` says so, which is asked often.
void give_when(coeus_emulated_stream* stream, std::function<bool()> ready, std::function<void()> work);

/// Work that is not the same twice: `begin` gives it to the stream, now, or where that is recorded each time
/// the graph is launched, with the stream that it has then.
void give_anew(coeus_emulated_stream* stream, std::function<void(coeus_emulated_stream*)> begin);

/// From now on some streams come only when no other can go on, as the seed draws it when they are made; or
/// each as often as others.
void let_streams_starve(bool some);

/// Launches of graphs until now.
size_t graph_launches();

/// Who is told, from now on, that the host waits and nothing can run but what others outside hold up: `again`
/// and again; false when work has run. It may throw, out of the wait.
void on_waiting(std::function<void(bool again)> told);

/// Whether the program was built for the GPU; it was at first.
void set_kernels_for_gpu(bool are_there);

/// Times that the host asked for a stream, an event or the device to be finished.
size_t waits();

/// GPUs that there are, 1 at first; with none there is "no driver".
void set_gpus(int count);
/// Allocations of device or pinned memory, and events that were made, until now.
size_t allocations();

}  // namespace coeus::emulation
