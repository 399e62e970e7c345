// SPDX-License-Identifier: Apache-2.0
// Trains a byte-level BPE vocabulary: the most frequent pair of adjacent tokens is merged into a new token,
// repeatedly (Sennrich et al. 2016). The merges are those of Hugging Face's BpeTrainer for the same lines.
#pragma once

#include "coeus/data/corpus.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coeus {

/// Distinct words and how often each occurs.
using WordCounts = std::vector<std::pair<std::string, int64_t>>;

/// Splits each line of the corpus, including its line end, with Llama 3's regular expression, and counts the
/// pieces. Uses several threads (0: all) and shows a progress bar.
WordCounts count_words(const Corpus& corpus, int threads);

/// The merges as byte symbols, in the order in which they are learnt: the pair with the highest count first;
/// among equal counts, the pair with the smaller left id, then that with the smaller right id. The first 256
/// ids are the byte symbols sorted by code point, and new tokens follow in their order. Stops at `vocab_size`
/// tokens, or earlier if no pair is left.
std::vector<std::pair<std::string, std::string>> train_bpe(const WordCounts& words, int64_t vocab_size);

struct TokenizerTraining {
    int64_t vocab_size;  ///< number of tokens in tokenizer.json
    int64_t words, distinct_words;
};

/// Trains a tokenizer, as `coeus tokenizer` does: writes tokenizer.json and tokenizer_config.json into the
/// folder `output`, which is created if needed. The last ids are <|begin_of_text|>, <|end_of_text|> and
/// `special`, which are parts of vocab_size. ConfigError: vocab_size below 258 and the number of `special`;
/// one of these that is empty, is given twice, or is a token already.
TokenizerTraining train_tokenizer(const Corpus& corpus, int64_t vocab_size,
                                  const std::filesystem::path& output, int threads,
                                  const std::vector<std::string>& special = {});

}  // namespace coeus
