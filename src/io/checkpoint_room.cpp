// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/checkpoint_room.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

namespace coeus {

int64_t checkpoint_bytes(int64_t element_bytes, size_t arrays) {
    return element_bytes + (1 << 20) + int64_t(arrays) * (16 << 10);
}

void require_room(int64_t needed, const std::string& folder, int64_t free) {
    if (free < needed)
        throw SystemError(fmt::format("{} needed in {}, where {} are free", bytes_text(double(needed)),
                                      folder, bytes_text(double(free))));
}

std::string room_warning(int64_t bytes, int64_t count, const std::string& folder, int64_t free) {
    if (free < bytes)
        throw SystemError(fmt::format(
            "there is no room for a checkpoint: {} needed in {}, where {} are free; make room, or "
            "choose another checkpoint.folder",
            bytes_text(double(bytes)), folder, bytes_text(double(free))));
    if (double(count) * double(bytes) <= double(free)) return "";
    return fmt::format(
        "the disk has room for only {} of the {} checkpoints that the run will keep at the same time, "
        "including the one being written: {} each in {}, where {} are free. Make room, lower "
        "checkpoint.keep_latest_k, or choose another checkpoint.folder",
        free / bytes, count, bytes_text(double(bytes)), folder, bytes_text(double(free)));
}

}  // namespace coeus
