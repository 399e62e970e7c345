// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE with all steps before it:
//   text -> added tokens -> normalization -> more added tokens -> a space in front -> pieces -> BPE
// tokenizer.json, tiktoken's files and vocab.json with merges.txt each describe one.
#pragma once

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace coeus {

/// The content of the files.
struct ByteBpeDescription {
    struct Token {
        int32_t id;
        std::string bytes;
        bool mergeable = true;  ///< false: merges cannot produce this token
    };
    struct Added {
        AddedTokens::Token token;
        bool special = false;
        bool normalized = false;  ///< searched for after normalization, not before
        std::string bytes;        ///< the bytes that it decodes to
    };
    std::string file;  ///< for messages
    std::vector<Token> vocab;
    std::vector<Bpe::Merge> merges;
    bool whole_pieces = false;  ///< see Bpe
    std::vector<std::string> patterns;
    bool nfc = false, prefix_space = false;
    std::vector<Added> added;
    bool added_in_documents = true;  ///< false: added tokens are found in prompts, but not in documents
    std::optional<int32_t> bos, eos;
    Tokenizer::Ends frame;
    std::string notice;  ///< see Tokenizer::notice

    /// Sets vocabulary and merges in the format of byte-level files: each byte as a symbol
    /// (byte_symbols.hpp), and merges as pairs of tokens, in the order of merging. ConfigError: a part or
    /// the result of a merge is not a token.
    void set_symbols(const std::vector<std::pair<std::string, int32_t>>& symbols,
                     const std::vector<std::pair<std::string, std::string>>& pairs);
    /// The id of a token, added or not, by its text (in symbols); nothing if there is no such token.
    std::optional<int32_t> id_of(const std::string& content) const;

    /// Sets BOS and EOS by their contents. They become special tokens, even if only the vocabulary
    /// contains them, as in GPT-2. ConfigError: a content that is not a token.
    void set_special(const std::optional<std::string>& bos_token,
                     const std::optional<std::string>& eos_token);
};

/// A special token whose bytes are its content. It is found wherever the content occurs.
ByteBpeDescription::Added special_token(const std::string& content, int32_t id);

/// ConfigError: a regular expression that PCRE2 does not understand, or an empty vocabulary.
std::unique_ptr<const TokenizerModel> make_byte_bpe(const ByteBpeDescription& description);

}  // namespace coeus
