// SPDX-License-Identifier: Apache-2.0
// How the tokens of a vocabulary of characters become text: a mark stands for a space, and tokens such as
// <0x0A> for bytes. These are the decoders Replace, Metaspace, ByteFallback and Strip of Hugging Face's
// tokenizers.
#pragma once

#include "model.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

struct PieceDecoding {
    bool byte_symbols =
        true;  ///< characters are symbols of bytes (byte_symbols.hpp); the rest does not apply
    std::vector<std::pair<std::string, std::string>> replaced = {};  ///< in each token, in order
    bool byte_tokens = false;                                        ///< <0x0A> is a byte
    char stripped = ' ';                                             ///< removed at the start of the text
    int64_t most_stripped = 0;                                       ///< that many times
    std::string removed_from_first = {};  ///< a text that is removed from the first token; "": none

    /// The bytes of a token of the vocabulary, or of an added token.
    std::string bytes_of(const std::string& content) const;
    /// The same for the first token of a text.
    std::string first_bytes_of(const std::string& content) const;
};

/// The byte that a token such as <0x0A> stands for.
std::optional<uint8_t> byte_of_token(const std::string& content);

/// `is_byte`, `first_bytes`: by id; `first_bytes` is empty if the first token is decoded as all others. Both
/// must outlive the decoder.
std::unique_ptr<TokenizerModel::Decoder> make_piece_decoder(const PieceDecoding& decoding,
                                                            const std::vector<bool>& is_byte,
                                                            const std::vector<std::string>& first_bytes);

}  // namespace coeus
