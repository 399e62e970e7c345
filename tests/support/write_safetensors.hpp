// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/device/tensor.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/file/safetensors.hpp"

#include <map>
#include <string>
#include <vector>

namespace coeus::test {

struct NamedTensor {
    std::string name;
    Tensor tensor;  ///< dense; of a type that SafetensorsEntry can have
};

/// Writes one file, completely or not at all; `metadata` becomes "__metadata__".
inline void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {}) {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, tensor] : tensors) {
        require(tensor.dense(), "a tensor that safetensors files cannot hold");
        entries.push_back({name, tensor.dtype, tensor.shape});
    }
    const std::string header = safetensors_header(entries, metadata), part = path + ".part";
    RawFile file = RawFile::create(part);
    file.write(header.data(), int64_t(header.size()), 0);
    std::string bytes;  // of all tensors: one call for each of many tensors would take long
    for (const auto& [name, tensor] : tensors)
        bytes.append(static_cast<const char*>(tensor.data), size_t(tensor.bytes()));
    file.write(bytes.data(), int64_t(bytes.size()), int64_t(header.size()));
    file.sync();
    publish_file(part, path);
}

}  // namespace coeus::test
