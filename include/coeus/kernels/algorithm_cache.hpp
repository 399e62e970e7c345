// SPDX-License-Identifier: Apache-2.0
// AlgorithmCache: the fastest algorithm found for each product, kept from run to run in a small file per
// product. The first process that keeps one decides for all processes that share the folder, so that ranks
// agree, and runs give the same bits from the first one on. The file has the format of Coeus 0.2 and is never
// changed, so that all versions agree. A file beside it says how fast the algorithm was.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace coeus::cuda {

/// An algorithm in the form in which cuBLASLt lets it be stored and reused with the same library version.
using Algorithm = std::array<uint64_t, 8>;

/// How fast an algorithm was, and when and where it was timed.
struct Timing {
    double seconds = 0;  ///< for one product
    int64_t date = 0;    ///< seconds since 1970
    std::string host;    ///< without spaces
    int driver = 0;      ///< the CUDA version that it knows, 13000 for 13.0
    /// What a steady search saw: watts of the GPU, and MHz of its multiprocessors; 0: not known.
    struct Steady {
        int watts = 0, megahertz = 0;
    };
    std::optional<Steady> steady = {};

    /// An algorithm that was timed now, on this host.
    static Timing now(double seconds, int driver, std::optional<Steady> steady = {});
};

/// What is added to the name of an algorithm's file for that of its timing.
inline constexpr const char* timing_suffix = ".time";

/// The content of an algorithm's file, and of the file of its timing.
struct KeptAlgorithm {
    std::string problem;  ///< the product: ProductShape::text()
    Algorithm algorithm = {};
    std::optional<Timing> timing = {};  ///< none if Coeus 0.2 or older kept the algorithm

    /// The content of the algorithm's file.
    std::string text() const;
    /// The content of the timing's file: also the algorithm, since another one may be kept later. Needs a
    /// timing.
    std::string timing_text() const;
    /// Reads an algorithm's file, and the timing beside it if that is whole and of this algorithm. Returns
    /// nothing if the file does not exist, or if Coeus did not write it.
    static std::optional<KeptAlgorithm> read(const std::filesystem::path& file);
};

class AlgorithmCache {
public:
    /// Creates the folder if it does not exist. If `folder` is "" or cannot be written to, nothing is kept.
    explicit AlgorithmCache(const std::string& folder);

    bool keeps() const { return !folder_.empty(); }
    /// The algorithm kept for a problem. Nothing if none was kept, or if the file was not written by Coeus;
    /// then the first such file causes a warning.
    std::optional<KeptAlgorithm> find(const std::string& problem);
    /// Keeps this algorithm, unless another process has kept one meanwhile. Returns the algorithm that is
    /// kept; nothing if none can be kept.
    std::optional<KeptAlgorithm> keep(const KeptAlgorithm& found);
    /// Replaces the timing of a kept algorithm, if possible. The algorithm's file stays as it is.
    void renew(const KeptAlgorithm& kept) const;
    /// Keeps this algorithm, whatever was kept before. False if nothing can be kept.
    bool replace(const KeptAlgorithm& found);
    /// Warns (the first time) that the problem's file is ignored; the next keep() replaces the file.
    void reject(const std::string& problem, const std::string& why);
    /// The file of a problem's algorithm.
    std::string path_of(const std::string& problem) const;

private:
    /// Writes a file of another name; "" if that is not possible.
    std::string write_temporary(const std::string& text) const;

    std::string folder_;
    std::string rejected_;  ///< problem whose file is to be replaced
    bool has_warned_ = false;
};

/// A name for a file or folder: characters other than letters, digits, '.', ',' and '-' become '_'.
std::string file_name_of(const std::string& text);

/// Number of floating-point operations of a product, 2 m n k, from its text. Nothing if it has no sizes.
std::optional<double> operations_of(const std::string& problem);

/// The kept choice between two backwards of attention (measured_backward.hpp), "cuDNN" or "own"; "" if a file
/// is of something else.
std::string backward_in(const KeptAlgorithm& kept);

/// "2026-11-26T20:16:48Z"
std::string date_text(int64_t date);

}  // namespace coeus::cuda
