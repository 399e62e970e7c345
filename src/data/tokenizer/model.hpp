// SPDX-License-Identifier: Apache-2.0
// The interface of one kind of tokenizer: a vocabulary, an encoder for each thread, and a decoder. Each kind
// is made in its own file; open.hpp chooses the kind by the content of a folder.
#pragma once

#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// The meaning of ids, for all kinds of tokenizers.
struct Vocabulary {
    std::vector<std::optional<std::string>> bytes;  ///< by id; nothing if no token has this id
    std::vector<bool> special;
    std::optional<int32_t> bos, eos;
    Tokenizer::Ends frame;  ///< ids that the tokenizer's own template adds around a text
    std::string notice;     ///< see Tokenizer::notice

    void put(int32_t id, std::string its_bytes, bool is_special);
};

class TokenizerModel {
public:
    explicit TokenizerModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
    virtual ~TokenizerModel() = default;
    const Vocabulary& vocabulary() const { return vocabulary_; }

    /// Converts text to ids, for one thread. Texts must be valid UTF-8.
    class Encoder {
    public:
        virtual ~Encoder() = default;
        /// Appends the ids of a text.
        virtual void encode(std::string_view text, std::vector<int32_t>& ids) = 0;
        /// Tokenizer::Encoder::encode_part; called only if can_encode_parts().
        virtual size_t encode_part(std::string_view text, size_t begin, size_t end,
                                   std::vector<int32_t>& ids);
    };
    virtual std::unique_ptr<Encoder> encoder() const = 0;
    /// The same, but a special token that is written out in the text is encoded as that token.
    virtual std::unique_ptr<Encoder> prompt_encoder() const { return encoder(); }
    virtual bool can_encode_parts() const { return false; }

    /// Converts ids to text, one by one.
    class Decoder {
    public:
        virtual ~Decoder() = default;
        /// The text that became complete with a token. `bytes`: the bytes of the token.
        virtual std::string push(int32_t id, std::string_view bytes) = 0;
        /// The rest of the text, with U+FFFD for an incomplete character.
        virtual std::string finish() = 0;
    };
    virtual std::unique_ptr<Decoder> decoder() const;

private:
    Vocabulary vocabulary_;
};

}  // namespace coeus
