// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated GPU that other processes open: a file in memory that all of them map.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coeus::emulation {

/// Lets other processes open device memory, by the file whose descriptor is returned; -1: it is none.
int share(void* memory);
/// The device memory of a file of another process, which cudaFree frees; null if it cannot be mapped.
void* open_shared(int file, size_t bytes);
/// A number in device memory, which other processes may write.
uint32_t number_at(const uint32_t* address);

/// What is forbidden, as in containers (opening), on parts of a GPU (naming), or by an old driver (numbers).
/// Copies that are lost never reach other processes.
enum class NoPeers { allowed, naming, opening, numbers, lost };
inline NoPeers no_peers = NoPeers::allowed;
/// How often numbers were written to the memory of other processes, until now.
inline size_t numbers_for_peers = 0;

}  // namespace coeus::emulation
