// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/sampler.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/ignored_label.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>

namespace coeus {

namespace {

// The number of windows in the file.
int64_t windows_in(const TokenFile& file, const Sampler::Options& options) {
    if (options.seq_len < 1)
        throw ConfigError("training.seq_len must be at least 1, but is {}", options.seq_len);
    const int64_t window = options.seq_len + 1, all = file.num_tokens() / window;
    if (all == 0)
        throw ConfigError(
            "{}: {} tokens are fewer than one window of seq_len + 1 = {}; use more data, or a "
            "training.seq_len of at most {}",
            file.path(), with_commas(file.num_tokens()), with_commas(window),
            with_commas(file.num_tokens() - 1));
    if (all == 1 && options.subset != Subset::all)
        throw ConfigError(
            "{}: {} tokens make only one window of seq_len + 1 = {}, so none can be held out for validation; "
            "use more data, or separate validation data (validation.dataset_path)",
            file.path(), with_commas(file.num_tokens()), with_commas(window));
    return all;
}

}  // namespace

Sampler::Sampler(const TokenFile& file, const Options& options)
    : file_(&file),
      options_(options),
      order_(windows_in(file, options),
             {.seed = options.seed, .shuffle = options.shuffle, .subset = options.subset}) {}

int64_t Sampler::sample(int64_t i, std::span<int32_t> inputs, std::span<int32_t> labels,
                        std::span<int32_t> document_start) const {
    const int64_t length = options_.seq_len;
    require(int64_t(inputs.size()) == length && int64_t(labels.size()) == length &&
                int64_t(document_start.size()) == length,
            "a sample must have seq_len elements");
    const int64_t begin = window_of(i) * (length + 1);
    file_->read(begin, inputs);
    file_->read(begin + 1, labels);
    if (options_.vocab_size > 0) {
        file_->require_in_vocabulary(begin, inputs, options_.vocab_size);
        file_->require_in_vocabulary(begin + 1, labels, options_.vocab_size);
    }
    const int64_t valid = file_->ignore_masked(begin + 1, labels, ignored_label);
    file_->document_starts(begin, document_start);
    return valid;
}

}  // namespace coeus
