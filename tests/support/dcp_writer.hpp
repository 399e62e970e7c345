// SPDX-License-Identifier: Apache-2.0
// Folders of PyTorch's distributed checkpoints made by hand, for tests of what reads them.
#pragma once

#include "support/pickle_writer.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace coeus::test {

/// A part of a tensor as .metadata has it, and as its stream has it.
struct DcpPart {
    std::vector<int64_t> offsets, sizes;
    std::string file = "__0_0.distcp";
    std::vector<int64_t> strides = {};  ///< empty: rows behind each other
    std::string storage = "FloatStorage";
    std::vector<int64_t> stored_sizes = {};  ///< empty: those of .metadata
    size_t missing_bytes = 0;                ///< of the elements
};
struct DcpMade {
    std::string name = "w";
    std::string dtype = "float32";
    std::vector<int64_t> shape;
    std::vector<DcpPart> parts;
};

/// What such a tensor holds at a place.
double dcp_value(const std::vector<int64_t>& shape, int64_t row, int64_t col);
/// A torch.Size.
pickled::Code dcp_size(const std::vector<int64_t>& extents);

/// Writes the folder, its tensors in float32; `change` sees .metadata before it is written.
void write_dcp(const std::filesystem::path& folder, const std::vector<DcpMade>& tensors,
               const std::function<void(std::string&)>& change = {});

}  // namespace coeus::test
