// SPDX-License-Identifier: Apache-2.0
// Whether checkpoints find room on their disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace coeus {

/// What a checkpoint takes on the disk at most: its elements, and what HDF5 writes beside them.
int64_t checkpoint_bytes(int64_t element_bytes, size_t arrays);

/// SystemError where fewer bytes are free than needed: "74.2 MiB needed in FOLDER, where 30.0 MiB are free".
void require_room(int64_t needed, const std::string& folder, int64_t free);

/// For a run that will keep so many further checkpoints of so many bytes at once, the one that is being
/// written among them: SystemError if not even one has room, a warning if not all have, else "".
std::string room_warning(int64_t bytes, int64_t count, const std::string& folder, int64_t free);

}  // namespace coeus
