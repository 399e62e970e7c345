// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. Reads byte-level BPE from a Hugging Face tokenizer.json, as Llama 3 and GPT-2
// have it and as `coeus tokenizer` writes it; another kind is refused by name.
//   text -> added tokens cut out -> regular expression cuts pieces -> BPE merges the bytes of each piece
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

class Tokenizer {
public:
    /// Reads tokenizer.json and, where it exists, tokenizer_config.json (for BOS and EOS). ConfigError: a
    /// file is missing or damaged, or of a kind that is not built yet.
    explicit Tokenizer(const std::filesystem::path& folder);
    ~Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;

    /// Ids of a text, without BOS and EOS. The content of added tokens becomes these. Bytes that are not
    /// UTF-8 are replaced by U+FFFD first. One thread; use an Encoder each for several.
    std::vector<int32_t> encode(std::string_view text) const;
    /// Bytes that do not form UTF-8 come out as U+FFFD. ConfigError: an id outside the vocabulary.
    std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
    /// The bytes of one token, perhaps a part of a character. ConfigError: an id outside the vocabulary.
    const std::string& bytes_of(int32_t id) const;

    /// The largest id + 1.
    int64_t vocab_size() const;
    std::optional<int32_t> bos_id() const;
    std::optional<int32_t> eos_id() const;
    /// Of the content of tokenizer.json, 16 hex digits: tells whether a token file was made with it.
    const std::string& hash() const;
    const std::string& folder() const;

    /// True where a text may be encoded in parts: see Encoder::encode_part.
    bool can_encode_parts() const;

    /// One thread's use of a Tokenizer, which must outlive it. Keeps a cache of the words seen.
    class Encoder {
    public:
        explicit Encoder(const Tokenizer& tokenizer);
        ~Encoder();
        Encoder(Encoder&&) noexcept;

        /// Appends the ids of a text, which must be UTF-8.
        void encode(std::string_view text, std::vector<int32_t>& ids);
        /// Appends the ids of the pieces that begin in [begin, end) of a UTF-8 text; `begin` must be the end
        /// of a piece (or 0), both the start of a character. Returns where the last piece ends: the begin of
        /// the next part.
        size_t encode_part(std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids);

    private:
        struct State;
        std::unique_ptr<State> state_;
    };

    /// Decodes ids one by one, for output while generating: holds back bytes of an incomplete character.
    class Stream {
    public:
        explicit Stream(const Tokenizer& tokenizer, bool skip_special = true)
            : tokenizer_(&tokenizer), skip_special_(skip_special) {}
        /// The text that became complete with this id, often "".
        std::string push(int32_t id);
        /// What is left at the end, with U+FFFD for an incomplete character.
        std::string finish();

    private:
        const Tokenizer* tokenizer_;
        bool skip_special_;
        std::string held_;
    };

private:
    struct Parts;
    std::unique_ptr<const Parts> parts_;
};

}  // namespace coeus
