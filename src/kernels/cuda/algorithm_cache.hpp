// SPDX-License-Identifier: Apache-2.0
// AlgorithmCache: the fastest algorithm found for each problem, kept from run to run in a small file per
// problem. The first process that keeps one decides for all processes that share the folder, so that ranks
// agree, and runs give the same bits from the first one on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace coeus::cuda {

/// An algorithm in the form in which cuBLASLt lets it be stored and reused with the same library version.
using Algorithm = std::array<uint64_t, 8>;

class AlgorithmCache {
public:
    /// Creates the folder if it does not exist. If `folder` is "" or cannot be written to, nothing is kept.
    explicit AlgorithmCache(const std::string& folder);

    bool keeps() const { return !folder_.empty(); }
    /// The algorithm kept for a problem. Nothing if none was kept, or if the file was not written by Coeus;
    /// then the first such file causes a warning.
    std::optional<Algorithm> find(const std::string& problem);
    /// Keeps this algorithm, unless another process has kept one meanwhile. Returns the algorithm that is
    /// kept; nothing if none can be kept.
    std::optional<Algorithm> keep(const std::string& problem, const Algorithm& algorithm);
    /// Warns (the first time) that the problem's file is ignored; the next keep() replaces the file.
    void reject(const std::string& problem, const std::string& why);

private:
    std::string path_of(const std::string& problem) const;

    std::string folder_;
    std::string rejected_;  ///< problem whose file is to be replaced
    bool has_warned_ = false;
};

/// A name for a file or folder: characters other than letters, digits, '.', ',' and '-' become '_'.
std::string file_name_of(const std::string& text);

}  // namespace coeus::cuda
