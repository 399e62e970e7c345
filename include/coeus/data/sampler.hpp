// SPDX-License-Identifier: Apache-2.0
// The tokens of sample i of a run are a pure function of (seed, i), so that the data are the same on any mesh
// and a checkpoint stores the position in the data as one integer. The token stream is cut into consecutive
// windows of seq_len + 1 tokens; the first seq_len are the inputs, the last seq_len the labels. Epochs
// repeat. With `shuffle`, the order of the windows is different in each epoch.
//   step s uses samples [s G, (s + 1) G), with the global batch size G; data rank r of R uses the r-th of R
//   contiguous parts of them
#pragma once

#include "coeus/data/token_file.hpp"

#include <cstdint>
#include <span>

namespace coeus {

/// Labels with this value are masked: they do not count in the loss.
constexpr int32_t ignore_label = -100;

/// A subset of a file's windows: `held_out` is every 100th window (the last one if there are fewer than 100);
/// `training` is all others.
enum class Subset { all, training, held_out };

class Sampler {
public:
    struct Options {
        int64_t seq_len = 0;
        uint64_t seed = 0;
        bool shuffle = false;
        Subset subset = Subset::all;
        int64_t vocab_size = 0;  ///< tokens that are read must be below it; 0: not checked
    };

    /// The file must outlive the sampler. ConfigError: the file has fewer tokens than the subset needs
    /// (with the numbers).
    Sampler(const TokenFile& file, const Options& options);

    int64_t seq_len() const { return options_.seq_len; }
    /// Number of windows of this subset; samples [k num_windows, (k + 1) num_windows) are epoch k.
    int64_t num_windows() const { return num_windows_; }
    /// The number of sample i's window in the whole file.
    int64_t window_of(int64_t i) const;

    /// Writes sample i; all spans have seq_len elements. `document_start[t]`: index in the window of the
    /// first token of token t's document (0 if the document starts before the window). Returns the number
    /// of labels that are not masked. ConfigError: a token that is not in the vocabulary.
    int64_t sample(int64_t i, std::span<int32_t> inputs, std::span<int32_t> labels,
                   std::span<int32_t> document_start) const;

private:
    const TokenFile* file_;
    Options options_;
    int64_t num_windows_;
};

/// The samples of one step that belong to data rank r of R: global_batch must be a multiple of R.
struct SampleRange {
    int64_t first, count;
};
SampleRange samples_of(int64_t step, int64_t global_batch, int64_t rank, int64_t ranks);

}  // namespace coeus
