// SPDX-License-Identifier: Apache-2.0
// Reads TensorBoard event files, with code that shares nothing with their writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace coeus::test {

struct BoardEvent {
    double wall_time = 0;
    int64_t step = 0;
    std::string file_version;
    int64_t session_status = 0;  ///< 1: START
    std::map<std::string, float> scalars;
};

/// Throws std::runtime_error if a checksum, a length or a field is wrong.
std::vector<BoardEvent> read_events(const std::filesystem::path& file);

/// The event files of a folder in the order of their names.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

/// The scalars that TensorBoard shows: key -> step -> value. The start of a session removes the steps from
/// its own on.
std::map<std::string, std::map<int64_t, float>> shown_scalars(const std::filesystem::path& folder);

}  // namespace coeus::test
