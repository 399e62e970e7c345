// SPDX-License-Identifier: Apache-2.0
// What one kind of tokenizer is to the rest: a vocabulary, an encoder for each thread, and a decoder. Each
// kind has a file of its own that makes one; open.hpp chooses by what a folder holds.
#pragma once

#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// What ids are, whatever makes them of text.
struct Vocabulary {
    std::vector<std::optional<std::string>> bytes;  ///< of each id, nothing where no token has it
    std::vector<bool> special;
    std::optional<int32_t> bos, eos;
    Tokenizer::Ends frame;  ///< what the tokenizer's own template puts around a text
    std::string notice;     ///< see Tokenizer::notice

    void put(int32_t id, std::string its_bytes, bool is_special);
};

class TokenizerModel {
public:
    explicit TokenizerModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
    virtual ~TokenizerModel() = default;
    const Vocabulary& vocabulary() const { return vocabulary_; }

    /// One thread's way from text to ids. Texts are valid UTF-8.
    class Encoder {
    public:
        virtual ~Encoder() = default;
        /// Appends the ids of a text.
        virtual void encode(std::string_view text, std::vector<int32_t>& ids) = 0;
        /// Tokenizer::Encoder::encode_part; called only where can_encode_parts().
        virtual size_t encode_part(std::string_view text, size_t begin, size_t end,
                                   std::vector<int32_t>& ids);
    };
    virtual std::unique_ptr<Encoder> encoder() const = 0;
    /// The same, for texts in which special tokens are written out to mean themselves.
    virtual std::unique_ptr<Encoder> prompt_encoder() const { return encoder(); }
    virtual bool can_encode_parts() const { return false; }

    /// The way back, id by id.
    class Decoder {
    public:
        virtual ~Decoder() = default;
        /// The text that became complete with a token, given its bytes.
        virtual std::string push(int32_t id, std::string_view bytes) = 0;
        /// What is left at the end, with U+FFFD for an incomplete character.
        virtual std::string finish() = 0;
    };
    virtual std::unique_ptr<Decoder> decoder() const;

private:
    Vocabulary vocabulary_;
};

}  // namespace coeus
