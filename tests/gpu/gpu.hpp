// SPDX-License-Identifier: Apache-2.0
// What the tests of a GPU ask of it beside Coeus' own interfaces. They are built twice: for the emulated one
// (tests/emulation), which draws the order of its threads and streams, and where there is CUDA for a real
// one.
#pragma once

#include "coeus/device/device.hpp"

namespace coeus::test {

/// The first one, opened once.
const Device& the_gpu();
/// Of threads and streams from now on, where it can be chosen.
void set_order(uint64_t seed);
/// The emulated GPU's cuDNN from now on; a real one has its own.
void choose_cudnn();
/// Of streams made from now on: those that come only when no others can go on, drawn from the seed; or again
/// each like the others.
void let_streams_starve(bool some);
/// Allocations of the GPU's memory and of pinned memory until now.
size_t gpu_allocations();
/// Times that the host asked for a queue or a point of it to be finished, until now.
size_t gpu_waits();

}  // namespace coeus::test
