// SPDX-License-Identifier: Apache-2.0
// Which tokens sample i of a run is: a pure function of (seed, i), so that any mesh sees the same data and a
// checkpoint needs one integer. The stream is cut into consecutive windows of seq_len + 1 tokens; inputs are
// the first seq_len, labels the last. Epochs repeat; with shuffle each epoch permutes the windows anew.
//   step s uses samples [s G, (s + 1) G) of global batch G; data rank r of R the r-th contiguous part of
//   these
#pragma once

#include "coeus/data/token_file.hpp"

#include <cstdint>
#include <span>

namespace coeus {

/// Labels with this value do not count.
constexpr int32_t ignore_label = -100;

/// Which windows of a file: `held_out` is every 100th (the last one where there are fewer than 100),
/// `training` the others.
enum class Subset { all, training, held_out };

class Sampler {
public:
    struct Options {
        int64_t seq_len = 0;
        uint64_t seed = 0;
        bool shuffle = false;
        Subset subset = Subset::all;
        int64_t vocab_size = 0;  ///< tokens read are compared with it; 0: they are not
    };

    /// The file must outlive it. ConfigError: fewer tokens than the split needs, with the numbers.
    Sampler(const TokenFile& file, const Options& options);

    int64_t seq_len() const { return options_.seq_len; }
    /// Of this split; samples [k num_windows, (k + 1) num_windows) are epoch k.
    int64_t num_windows() const { return num_windows_; }
    /// The number, in the whole stream, of the window that sample i is.
    int64_t window_of(int64_t i) const;

    /// Writes sample i; all spans have seq_len elements. `document_start[t]`: index in the window of the
    /// first token of the document that token t is in (0 where that is before the window). Returns the labels
    /// that count. ConfigError: a token that is not in the vocabulary.
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
