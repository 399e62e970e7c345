// SPDX-License-Identifier: Apache-2.0
// What writing and reading of checkpoints share: names in the file, and who does which rows.
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

/// Where the sums of an array are: "checksum/model/norm.weight".
inline std::string checksum_path(const std::string& array) {
    return "checksum/" + array;
}

/// Whether an array of checksums has one for each block of so many rows of another array.
bool checksums_fit(const Shape& array, const Shape& checksums, int64_t block_rows);

/// What is in a folder, in any order; `status`: why it cannot be listed.
std::vector<std::filesystem::path> entries_of(const std::string& folder, std::error_code& status);

std::string step_file_name(int64_t step);
std::string model_file_name(int64_t step);

/// The tensor type of a stored type; nothing for those that no tensor has.
std::optional<Dtype> tensor_type(hdf5::Type type);

/// Rows of a rank's part, counted within the part: through all its blocks.
struct Rows {
    int64_t first, count;
};
/// What this replica writes, and checks when reading: a share of the rows of a large array, a small one as a
/// whole in turn.
Rows share_of(const CheckpointTensor& tensor, size_t number);

/// Calls each(block) for what of each block is in a share.
void for_each_block(const CheckpointTensor& tensor, Rows share, FunctionRef<void(const HeldBlock&)> each);
/// The same, on the host: a block at once, or of a device a few rows at a time.
void for_each_host_block(const CheckpointTensor& tensor, Rows share,
                         FunctionRef<void(const HeldBlock&)> each);

/// Rows handled at a time, so that checksum, conversion and transfer find them in the cache.
inline int64_t rows_at_a_time(int64_t row_bytes) {
    return std::max(int64_t(1), (int64_t(1) << 20) / std::max(int64_t(1), row_bytes));
}

}  // namespace coeus::checkpoint_format
