// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, with whatever the model was published with: a Hugging Face tokenizer.json with
// a byte-level BPE (Llama 3, GPT-2, Qwen, GPT-OSS, DeepSeek, and what `coeus tokenizer` writes), tiktoken's
// or SentencePiece's .model file, GPT-2's vocab.json and merges.txt. Another kind is refused by name.
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

/// Tokens have ids below this (2^22). Tables over all ids are made, so that one absurd id takes much memory;
/// the largest vocabularies have 2^18.
inline constexpr int64_t most_token_ids = int64_t(1) << 22;

class Tokenizer {
public:
    /// From a folder that holds one of these, or from the file itself; tokenizer_config.json beside it is
    /// read too, where it exists. ConfigError: nothing is there, it is damaged, or of an unknown kind.
    explicit Tokenizer(const std::filesystem::path& place);
    ~Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;

    /// True where the constructor would find one, damaged or not.
    static bool is_at(const std::filesystem::path& place);

    /// Ids of a text, without BOS and EOS. The content of added tokens becomes these, but not with tiktoken's
    /// files, whose users take a document's "<|end_of_text|>" as text. Bytes that are not UTF-8 are replaced
    /// by U+FFFD first. One thread; use an Encoder each for several.
    std::vector<int32_t> encode(std::string_view text) const;
    /// The same for a prompt: with every kind, special tokens written out become these tokens.
    std::vector<int32_t> encode_prompt(std::string_view text) const;
    /// Bytes that do not form UTF-8 come out as U+FFFD. ConfigError: an id outside the vocabulary.
    std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
    /// The bytes of one token, perhaps a part of a character. ConfigError: an id outside the vocabulary.
    const std::string& bytes_of(int32_t id) const;

    /// What it is and which file says so: "byte-level BPE (tokenizer.json)", "SentencePiece".
    const std::string& kind() const;
    /// What its file asks for and has no meaning here, for the user to know: "" or "tokenizer.json:
    /// truncation is not followed: texts are encoded whole, whatever their length".
    const std::string& notice() const;
    /// Ids of tokens that stand for no text, in ascending order.
    std::vector<int32_t> special_ids() const;
    /// The largest id + 1; at most `most_token_ids`.
    int64_t vocab_size() const;
    std::optional<int32_t> bos_id() const;
    std::optional<int32_t> eos_id() const;
    /// Ids in front of a text and behind it.
    struct Ends {
        std::vector<int32_t> before, after;
    };
    /// What the tokenizer's own template (its post-processor) adds to any text.
    const Ends& own_ends() const;
    /// What a document of training stands between: the template's tokens, and BOS and EOS where the template
    /// has not added them already.
    const Ends& document_ends() const;
    /// Of the content of all files read, 16 hex digits: tells whether a token file was made with it.
    const std::string& hash() const;
    /// Where it was read from: the constructor's argument.
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
        explicit Stream(const Tokenizer& tokenizer, bool skip_special = true);
        ~Stream();
        Stream(Stream&&) noexcept;
        Stream& operator=(Stream&&) noexcept;
        /// The text that became complete with this id, often "".
        std::string push(int32_t id);
        /// What is left at the end, with U+FFFD for an incomplete character.
        std::string finish();

    private:
        const Tokenizer* tokenizer_;
        bool skip_special_;
        struct State;
        std::unique_ptr<State> state_;
    };

private:
    struct Parts;
    std::unique_ptr<const Parts> parts_;
};

}  // namespace coeus
