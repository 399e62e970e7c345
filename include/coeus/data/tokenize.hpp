// SPDX-License-Identifier: Apache-2.0
// Text to a token file (coeus/data/token_file.hpp): each document between BOS and EOS, on several threads, in
// the order of the corpus; done once for the same text and tokenizer.
#pragma once

#include "coeus/data/corpus.hpp"
#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

struct Tokenized {
    int64_t tokens, documents;
    bool up_to_date;  ///< the file was there already, made of the same content
    /// "14,843,578 tokens in 1 document"
    std::string text() const;
};

/// Writes `output`, through a .part file beside it. ConfigError: a foreign file is in the way. `threads` 0:
/// all.
Tokenized tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::filesystem::path& output,
                   int threads = 0);

/// The token file of these inputs in a cache folder, made now or earlier.
std::filesystem::path tokenized(const std::vector<std::filesystem::path>& inputs, const Tokenizer& tokenizer,
                                const std::filesystem::path& cache_folder, int threads = 0);

}  // namespace coeus
