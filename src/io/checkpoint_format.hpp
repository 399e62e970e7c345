// SPDX-License-Identifier: Apache-2.0
// Shared by writing and reading of checkpoints: names in the file, and the rows that each rank handles.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/base/log.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/io/checksum.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace coeus::checkpoint_format {

constexpr const char* format_name = "coeus checkpoint";
constexpr int64_t format_version = 1;
constexpr const char* block_rows_attribute = "rows_per_block";

/// The path of an array's checksums: "checksum/model/norm.weight".
inline std::string checksum_path(const std::string& array) {
    return "checksum/" + array;
}

/// True if an array of checksums has one for each block of `block_rows` rows of `array`.
bool checksums_fit(const Shape& array, const Shape& checksums, int64_t block_rows);

/// The entries of a folder, in any order; `status`: why it cannot be listed.
std::vector<std::filesystem::path> entries_of(const std::string& folder, std::error_code& status);

std::string step_file_name(int64_t step);
std::string model_file_name(int64_t step);

/// The tensor type of a stored type; none if no tensor has this type.
std::optional<Dtype> tensor_type(hdf5::Type type);

/// Rows of a rank's part of an array, counted from the first row of its first block through all its blocks.
struct Rows {
    int64_t first, count;
};
/// The rows that this replica writes, and verifies when reading. Replicas divide the rows of a large array;
/// they take turns with small arrays. `number`: that of the array in the list of all arrays.
Rows share_of(const CheckpointTensor& tensor, size_t number);

/// Calls each(block) for the part of each block that is in the share.
void for_each_block(const CheckpointTensor& tensor, Rows share, FunctionRef<void(const HeldBlock&)> each);
/// The same, with rows on the host: whole blocks, or for blocks on a device a few rows at a time.
void for_each_host_block(const CheckpointTensor& tensor, Rows share,
                         FunctionRef<void(const HeldBlock&)> each);

/// Number of rows handled at a time, so that they stay in the cache for checksum, conversion and transfer.
inline int64_t rows_at_a_time(int64_t row_bytes) {
    return std::max(int64_t(1), (int64_t(1) << 20) / std::max(int64_t(1), row_bytes));
}

}  // namespace coeus::checkpoint_format
