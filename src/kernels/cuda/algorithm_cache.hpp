// SPDX-License-Identifier: Apache-2.0
// Which algorithm of a library was found fastest for a problem, kept from one run to the next: a small file
// for each problem. The first process to keep one decides for all that share the folder, so that ranks agree,
// and runs give the same bits from the first one on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace coeus::cuda {

/// An algorithm as cuBLASLt lets it be stored and given back to the same version of it.
using Algorithm = std::array<uint64_t, 8>;

class AlgorithmCache {
public:
    /// Makes the folder where there is none. "", or one that cannot be written to: nothing is kept.
    explicit AlgorithmCache(const std::string& folder);

    bool keeps() const { return !folder_.empty(); }
    /// None where none was kept, or the file is not one of ours: then a warning, the first time.
    std::optional<Algorithm> find(const std::string& problem);
    /// Keeps this one, unless another process has kept one meanwhile. Returns the one that is kept; none
    /// where that cannot be.
    std::optional<Algorithm> keep(const std::string& problem, const Algorithm& algorithm);
    /// Says of a file that it is passed over, the first time; the next keep() replaces it.
    void reject(const std::string& problem, const std::string& why);

private:
    std::string path_of(const std::string& problem) const;

    std::string folder_;
    std::string rejected_;  ///< problem whose file is to be replaced
    bool has_warned_ = false;
};

/// A name for a file or folder: other characters than letters, digits, '.', ',' and '-' become '_'.
std::string file_name_of(const std::string& text);

}  // namespace coeus::cuda
