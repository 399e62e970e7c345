// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE with all that goes around it:
//   text -> added tokens cut out -> normal form -> more added tokens -> a space in front -> pieces -> BPE
// tokenizer.json, tiktoken's files and vocab.json with merges.txt each describe one.
#pragma once

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace coeus {

/// What the files say, without behaviour.
struct ByteBpeDescription {
    struct Token {
        int32_t id;
        std::string bytes;
        bool mergeable = true;  ///< false: a token that no bytes lead to
    };
    struct Added {
        AddedTokens::Token token;
        bool special = false;
        bool normalized = false;  ///< looked for behind the normal form, not before it
        std::string bytes;        ///< what it decodes to
    };
    std::string file;  ///< for messages
    std::vector<Token> vocab;
    std::vector<Bpe::Merge> merges;
    bool whole_pieces = false;  ///< see Bpe
    std::vector<std::string> patterns;
    bool nfc = false, prefix_space = false;
    std::vector<Added> added;
    bool added_in_documents = true;  ///< false: documents are not searched for added tokens, prompts are
    std::optional<int32_t> bos, eos;
    Tokenizer::Ends frame;
    std::string notice;  ///< see Tokenizer::notice

    /// The vocabulary as byte-level files write it: each byte as a symbol (byte_symbols.hpp), merges as pairs
    /// of tokens, the first to be merged first. ConfigError: a merge of or into what is no token.
    void set_symbols(const std::vector<std::pair<std::string, int32_t>>& symbols,
                     const std::vector<std::pair<std::string, std::string>>& pairs);
    /// The id of a token's text, added or not (in symbols); nothing where there is none.
    std::optional<int32_t> id_of(const std::string& content) const;

    /// BOS and EOS by their contents, which are special from then on even where the vocabulary alone has
    /// them, as GPT-2's. ConfigError: a content that is no token.
    void set_special(const std::optional<std::string>& bos_token,
                     const std::optional<std::string>& eos_token);
};

/// A special token with its content for bytes, found wherever the content is.
ByteBpeDescription::Added special_token(const std::string& content, int32_t id);

/// ConfigError: an expression that PCRE2 does not understand; an empty vocabulary.
std::unique_ptr<const TokenizerModel> make_byte_bpe(const ByteBpeDescription& description);

}  // namespace coeus
