// SPDX-License-Identifier: Apache-2.0
// BPE on bytes or characters with all steps before and after it:
//   text -> added tokens -> normalization -> more added tokens -> pieces -> BPE
//   ids -> the text of each token -> text
// tokenizer.json, tiktoken's files and vocab.json with merges.txt each describe one.
#pragma once

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "model.hpp"
#include "piece_decoder.hpp"
#include "pre_tokenizer.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

/// A change of a text. Returns the text itself if nothing changes, else a view of `buffer`. `first`: it
/// begins at the beginning of the document; false after a step that removes characters there.
using TextStep = std::function<std::string_view(std::string_view text, bool& first, std::string& buffer)>;

/// The content of the files.
struct BpeDescription {
    struct Token {
        int32_t id;
        std::string text;       ///< what it encodes: bytes, or the characters in the vocabulary
        bool mergeable = true;  ///< false: merges cannot produce this token
    };
    struct Added {
        AddedTokens::Token token;
        bool special = false;
        bool normalized = false;  ///< searched for after normalization, not before
        std::string bytes;        ///< the bytes that it decodes to
    };
    struct Normalizer {
        std::string name;  ///< for the hash
        TextStep step;
        bool of_utf8proc = false;  ///< its tables are those of utf8proc
    };
    /// A part of pre-tokenization: a change of each piece, which may be none, and how the result is split.
    struct Stage {
        TextStep change;
        std::vector<Split> splits;
    };
    std::string file;  ///< for messages
    std::vector<Token> vocab;
    std::vector<Bpe::Merge> merges;
    Bpe::Options options;  ///< options.characters: the vocabulary has characters, not bytes as symbols
    std::vector<Normalizer> normalizers;
    std::vector<Stage> stages = std::vector<Stage>(1);
    std::vector<Added> added;
    bool added_in_documents = true;  ///< false: added tokens are found in prompts, but not in documents
    std::optional<int32_t> bos, eos;
    Tokenizer::Ends frame;
    PieceDecoding decoding;
    std::string notice;  ///< see Tokenizer::notice

    /// Adds a split to the last stage.
    void add_split(Split split) { stages.back().splits.push_back(std::move(split)); }
    /// Begins a stage with a change.
    void add_change(TextStep change);

    /// Sets vocabulary and merges: tokens, and pairs of tokens in the order of merging. Without
    /// options.characters, each byte is written as a symbol (byte_symbols.hpp). ConfigError: a part or the
    /// result of a merge is not a token.
    void set_symbols(const std::vector<std::pair<std::string, int32_t>>& symbols,
                     const std::vector<std::pair<std::string, std::string>>& pairs);
    /// The id of a token, added or not, by its text in the file; nothing if no token has it.
    std::optional<int32_t> id_of(const std::string& content) const;

    /// Sets BOS and EOS by their contents. They become special tokens, even if only the vocabulary
    /// contains them, as in GPT-2. ConfigError: a content that is not a token.
    void set_special(const std::optional<std::string>& bos_token,
                     const std::optional<std::string>& eos_token);
};

/// A special token whose bytes are its content. It is found wherever the content occurs.
BpeDescription::Added special_token(const std::string& content, int32_t id);

/// ConfigError: a regular expression that PCRE2 does not understand, or an empty vocabulary.
std::unique_ptr<const TokenizerModel> make_bpe_model(const BpeDescription& description);

}  // namespace coeus
