// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/checkpoint_room.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"

namespace coeus {

int64_t checkpoint_bytes(int64_t element_bytes, size_t arrays) {
    return element_bytes + (1 << 20) + int64_t(arrays) * (16 << 10);
}

void require_room(int64_t needed, const std::string& folder, int64_t free) {
    if (free < needed)
        throw SystemError(fmt::format("{} needed in {}, where {} are free", bytes_text(double(needed)),
                                      folder, bytes_text(double(free))));
}

void require_checkpoint_reservable(int64_t bytes, int64_t files, const std::string& folder) {
    // runs that start at the same time hold their room at the same time, for a moment
    constexpr int tries = 3;
    for (int left = tries; left > 0; --left) try {
            return require_reservable(folder, bytes, files);
        } catch (const SystemError& error) {
            if (left > 1) {
                sleep_seconds(1);
                continue;
            }
            throw SystemError(
                fmt::format("there is no room for a checkpoint of {}: {}; look at your quota and at `ulimit "
                            "-f`, or choose "
                            "another checkpoint.folder",
                            bytes_text(double(bytes)), error.what()));
        }
}

std::string room_warning(int64_t bytes, int64_t count, const std::string& folder, int64_t free) {
    if (free < bytes)
        throw SystemError(
            fmt::format("there is no room for a checkpoint: {} needed in {}, where {} are free; make room, "
                        "or choose another "
                        "checkpoint.folder",
                        bytes_text(double(bytes)), folder, bytes_text(double(free))));
    if (double(count) * double(bytes) <= double(free)) return "";
    return fmt::format(
        "the disk has room for {} of the {} checkpoints that the run will keep at once, the one being "
        "written among "
        "them: {} each in {}, where {} are free. Make room, lower checkpoint.keep_latest_k, or choose "
        "another "
        "checkpoint.folder",
        free / bytes, count, bytes_text(double(bytes)), folder, bytes_text(double(free)));
}

}  // namespace coeus
