// SPDX-License-Identifier: Apache-2.0
// Token files for tests.
#pragma once

#include "coeus/hdf5/hdf5.hpp"

#include <filesystem>
#include <functional>

namespace coeus::test {

inline void make_hdf5(const std::filesystem::path& path, const std::function<void(hdf5::File&)>& fill) {
    auto file = hdf5::File::create(path.string());
    fill(file);
    file.close();
}

/// Tokens 0, 1, 2, ..., so that a token tells its position. Documents begin at `documents` (0 and the total
/// are added).
inline std::filesystem::path counting_file(const std::filesystem::path& path, int64_t count,
                                           std::vector<uint64_t> documents = {},
                                           const std::vector<uint8_t>& mask = {}) {
    make_hdf5(path, [&](hdf5::File& file) {
        std::vector<uint32_t> tokens(static_cast<size_t>(count));
        for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = uint32_t(i);
        file.create_dataset("tokens", hdf5::Type::u32, {count}).write(std::span<const uint32_t>(tokens));
        documents.insert(documents.begin(), 0);
        documents.push_back(uint64_t(count));
        file.create_dataset("documents", hdf5::Type::u64, {int64_t(documents.size())})
            .write(std::span<const uint64_t>(documents));
        if (!mask.empty())
            file.create_dataset("loss_mask", hdf5::Type::u8, {count}).write(std::span<const uint8_t>(mask));
    });
    return path;
}

}  // namespace coeus::test
