// SPDX-License-Identifier: Apache-2.0
// What the tests of a GPU ask of it beside Coeus' own interfaces. They are built twice: for the emulated one
// (tests/stand_ins/cuda), which draws the order of its threads and streams, and where there is CUDA for a
// real one.
#pragma once

#include "coeus/device/device.hpp"

namespace coeus::test {

/// The first one, opened once.
const Device& the_gpu();
/// Of threads and streams from now on, where it can be chosen.
void set_order(uint64_t seed);
/// The emulated GPU's cuDNN from now on; a real one has its own.
void choose_cudnn();
/// Of the streams made from now on: some, drawn from the seed, do nothing until no other one can go on, so
/// that whoever forgot to wait for them finds their work undone. False: none does so any more.
void let_streams_starve(bool some);
/// Allocations of the GPU's memory and of pinned memory, and events that were made, until now.
size_t gpu_allocations();
/// Of each kernel by the GPU's own clock; 0: that is not known.
double seconds_of_kernel();
/// Times that the host asked for a queue or a point of it to be finished, until now.
size_t gpu_waits();

}  // namespace coeus::test
