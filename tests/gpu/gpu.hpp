// SPDX-License-Identifier: Apache-2.0
// What the GPU tests need besides Coeus' own interfaces. They are built twice: for the emulated GPU
// (tests/stand_ins/cuda), which draws the order of its threads and streams at random, and, if there is CUDA,
// for a real GPU.
#pragma once

#include "coeus/device/device.hpp"

namespace coeus::test {

/// The first GPU, opened once.
const Device& the_gpu();
/// Sets the order of threads and streams from now on, if the GPU lets it be chosen.
void set_order(uint64_t seed);
/// From now on the emulated GPU uses its stand-in for cuDNN; a real GPU has its own cuDNN.
void choose_cudnn();
/// With `some`, some of the streams made from now on, drawn from the seed, do nothing until no other stream
/// can continue: code that forgot to wait for them finds their work undone. Without, none does so any more.
void let_streams_starve(bool some);
/// The number of allocations of GPU memory and of pinned memory, and of events made, until now.
size_t gpu_allocations();
/// The time of each kernel by the GPU's own clock; 0 if it is unknown.
double seconds_of_kernel();
/// The normalised error of products of 8-bit floats that the GPU's shorter sums may add; 0 in the emulation.
double error_of_8_bit_sums();
/// How often the host has waited for a queue or for a point of a queue, until now.
size_t gpu_waits();

}  // namespace coeus::test
