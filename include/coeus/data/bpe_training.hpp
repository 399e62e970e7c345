// SPDX-License-Identifier: Apache-2.0
// Training of a byte-level BPE vocabulary: the most frequent pair of neighbours becomes a new token, again
// and again (Sennrich et al. 2016). Merges equal those of Hugging Face's BpeTrainer on the same lines.
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

/// Cuts each line of the corpus (with its line end, a text of its own) by Llama 3's expression and counts the
/// pieces, on several threads (0: all), with a progress bar.
WordCounts count_words(const Corpus& corpus, int threads);

/// The merges, in byte symbols, in the order learnt. Highest count first; among equal counts the pair with
/// the smaller left id, then the smaller right id; ids are the 256 byte symbols sorted by code point, then
/// new tokens as they come. Stops at `vocab_size` tokens, or earlier where no pair is left.
std::vector<std::pair<std::string, std::string>> train_bpe(const WordCounts& words, int64_t vocab_size);

struct TokenizerTraining {
    int64_t vocab_size;  ///< what is in tokenizer.json
    int64_t words, distinct_words;
};

/// What `coeus tokenizer` does: writes tokenizer.json and tokenizer_config.json into `output` (made if
/// absent). The last two ids are <|begin_of_text|> and <|end_of_text|>. ConfigError: vocab_size below 258.
TokenizerTraining train_tokenizer(const Corpus& corpus, int64_t vocab_size,
                                  const std::filesystem::path& output, int threads);

}  // namespace coeus
