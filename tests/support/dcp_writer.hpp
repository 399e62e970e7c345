// SPDX-License-Identifier: Apache-2.0
// Writes folders of PyTorch's distributed checkpoints, for tests of their readers.
#pragma once

#include "support/pickle_writer.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace coeus::test {

/// A part of a tensor, as described in .metadata and in its stream.
struct DcpPart {
    std::vector<int64_t> offsets, sizes;
    std::string file = "__0_0.distcp";
    std::vector<int64_t> strides = {};  ///< if empty, rows are contiguous
    std::string storage = "FloatStorage";
    std::vector<int64_t> stored_sizes = {};  ///< if empty, as in .metadata
    size_t missing_bytes = 0;                ///< missing at the end of the elements
};
struct DcpMade {
    std::string name = "w";
    std::string dtype = "float32";
    std::vector<int64_t> shape;
    std::vector<DcpPart> parts;
};

/// The element at a position of such a tensor.
double dcp_value(const std::vector<int64_t>& shape, int64_t row, int64_t col);
/// A torch.Size.
pickled::Code dcp_size(const std::vector<int64_t>& extents);

/// Writes the folder, with tensors in float32; `change` may change .metadata before it is written.
void write_dcp(const std::filesystem::path& folder, const std::vector<DcpMade>& tensors,
               const std::function<void(std::string&)>& change = {});

}  // namespace coeus::test
