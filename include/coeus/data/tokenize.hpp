// SPDX-License-Identifier: Apache-2.0
// Text to a token file (coeus/data/token_file.hpp): each document between BOS and EOS, on several threads, in
// the order of the corpus; done once for the same text and tokenizer. What an interrupted run had written is
// kept beside the file, and the next one goes on from there.
#pragma once

#include "coeus/data/corpus.hpp"
#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

struct Tokenized {
    int64_t tokens = 0, documents = 0;
    int64_t text_bytes = 0;      ///< decompressed; 0 where the file does not say
    bool up_to_date = false;     ///< the file was there already, made of the same content
    int64_t resumed_tokens = 0;  ///< of these, made by a run before that was interrupted
    /// "14,843,578 tokens in 1 document"
    std::string text() const;
};

struct TokenizeOptions {
    int threads = 0;                 ///< 0: all
    int64_t block_bytes = 64 << 20;  ///< of text, read at a time
    double save_seconds = 5;         ///< an interrupted run loses at most this much, and one block
    bool replace = true;             ///< a token file of other content
};

/// Writes `output`, which appears complete or not at all: OUTPUT.part, .tokens.part, .documents.part and
/// .resume.json stay beside it while it is made, and where a run was interrupted. A second process that makes
/// the same file waits for the first. ConfigError: a foreign file is in the way, a token file of other
/// content that is not to be replaced, or what Corpus says.
Tokenized tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::filesystem::path& output,
                   const TokenizeOptions& options = {});

/// The token file of these inputs in a cache folder, made now or earlier.
std::filesystem::path tokenized(const std::vector<std::filesystem::path>& inputs, const Tokenizer& tokenizer,
                                const std::filesystem::path& cache_folder, int threads = 0);

}  // namespace coeus
