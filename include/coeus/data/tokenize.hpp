// SPDX-License-Identifier: Apache-2.0
// Converts text to a token file (coeus/data/token_file.hpp): documents in the order of the corpus, each
// between BOS and EOS. Uses several threads. The same text is tokenized only once with the same tokenizer. An
// interrupted run leaves its files next to the output, and the next run resumes from them.
#pragma once

#include "coeus/data/corpus.hpp"
#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

struct Tokenized {
    int64_t tokens = 0, documents = 0;
    int64_t text_bytes = 0;      ///< size of the decompressed text; 0 if unknown
    bool up_to_date = false;     ///< the file existed already, with this content
    bool earlier = false;        ///< up_to_date, but made with the Unicode of an earlier version (see below)
    int64_t resumed_tokens = 0;  ///< number of tokens made by an earlier, interrupted run
    JsonFlaws flaws;
    /// "14,843,578 tokens in 1 document", and how many bad lines were left out
    std::string text() const;
};

struct TokenizeOptions {
    int threads = 0;                 ///< 0: all
    int64_t block_bytes = 64 << 20;  ///< bytes of text that are read at a time
    double save_seconds = 5;         ///< an interrupted run loses at most this time, plus one block
    bool replace = true;             ///< replace a token file with other content, or of an earlier version
};

/// Writes `output`, which appears only when it is complete. While it is made, and after an interruption, the
/// temporary files OUTPUT.part, .tokens.part, .documents.part and .resume.json are next to it. A second
/// process that makes the same file waits for the first. Without `replace`, a file of an earlier version is
/// kept, with a warning. ConfigError: `output` is another kind of file, or a token file with other content
/// that must not be replaced; or an error of Corpus.
Tokenized tokenize(const Corpus& corpus, const Tokenizer& tokenizer, const std::filesystem::path& output,
                   const TokenizeOptions& options = {});

/// The warning about a token file whose tokenizer has Tokenizer::earlier_hash: "x.h5: an earlier version
/// ...".
std::string earlier_tables_warning(const std::filesystem::path& file);

/// Returns the token file of this text in a cache folder, and makes it if it does not exist. `name`: what the
/// file's name begins with.
std::filesystem::path tokenized(const Corpus& corpus, const std::string& name, const Tokenizer& tokenizer,
                                const std::filesystem::path& cache_folder, int threads = 0);
/// The same file if it exists already.
std::optional<std::filesystem::path> tokenized_before(const Corpus& corpus, const std::string& name,
                                                      const Tokenizer& tokenizer,
                                                      const std::filesystem::path& cache_folder);

}  // namespace coeus
