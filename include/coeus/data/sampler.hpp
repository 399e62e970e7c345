// SPDX-License-Identifier: Apache-2.0
// The samples of a token file. Its tokens are cut into consecutive windows of seq_len + 1; the first seq_len
// are the inputs, the last seq_len the labels. SampleOrder says which window a run reads when.
#pragma once

#include "coeus/data/sample_order.hpp"
#include "coeus/data/token_file.hpp"

#include <cstdint>
#include <span>

namespace coeus {

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
    int64_t num_windows() const { return order_.count(); }
    const SampleOrder& order() const { return order_; }
    /// The number of sample i's window in the whole file.
    int64_t window_of(int64_t i) const { return order_(i); }

    /// Writes sample i; all spans have seq_len elements. `document_start[t]`: index in the window of the
    /// first token of token t's document (0 if the document starts before the window). Returns the number
    /// of labels that are not masked (ignored_label). ConfigError: a token that is not in the vocabulary.
    int64_t sample(int64_t i, std::span<int32_t> inputs, std::span<int32_t> labels,
                   std::span<int32_t> document_start) const;

private:
    const TokenFile* file_;
    Options options_;
    SampleOrder order_;
};

}  // namespace coeus
