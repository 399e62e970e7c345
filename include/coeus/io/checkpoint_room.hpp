// SPDX-License-Identifier: Apache-2.0
// Checks whether a disk has room for checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace coeus {

/// An upper bound for the size of a checkpoint in bytes: its elements, and the metadata that HDF5 writes.
int64_t checkpoint_bytes(int64_t element_bytes, size_t arrays);

/// SystemError if fewer bytes are free than needed: "74.2 MiB needed in FOLDER, where 30.0 MiB are free".
void require_room(int64_t needed, const std::string& folder, int64_t free);

/// For a run that will keep `count` further checkpoints of `bytes` bytes at the same time, including the one
/// that is being written. SystemError if there is no room for one. Returns a warning if there is no room for
/// all, else "".
std::string room_warning(int64_t bytes, int64_t count, const std::string& folder, int64_t free);

}  // namespace coeus
