// SPDX-License-Identifier: Apache-2.0
// Converts text to token ids and back, with the tokenizer of a published model: Hugging Face's tokenizer.json
// with a BPE on bytes (Llama 3, GPT-2, Qwen, GPT-OSS, DeepSeek, and tokenizers made with `coeus tokenizer`)
// or on characters (Llama 2, Mistral, Gemma), a .model file of tiktoken or SentencePiece, or GPT-2's
// vocab.json and merges.txt. Other kinds cause an error that names them.
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

/// Ids of tokens must be below this (2^22). Some tables have an entry for each id up to the largest, so a
/// single very large id would need much memory. The largest vocabularies in use have 2^18 tokens.
inline constexpr int64_t most_token_ids = int64_t(1) << 22;

class Tokenizer {
public:
    /// Reads one of these files, or a folder that contains one; also tokenizer_config.json in the same
    /// folder, if it exists. ConfigError: there is no tokenizer, or it is damaged or of an unknown kind.
    explicit Tokenizer(const std::filesystem::path& place);
    ~Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;

    /// True if there is a tokenizer, which may be damaged.
    static bool is_at(const std::filesystem::path& place);

    /// Ids of a text, without BOS and EOS. An added token that is written out in the text, such as
    /// "<|end_of_text|>", is encoded as that token; with tiktoken's files, it is encoded as ordinary
    /// text. Bytes that are not UTF-8 are first replaced by U+FFFD. With several threads, use one Encoder for
    /// each.
    std::vector<int32_t> encode(std::string_view text) const;
    /// The same for a prompt: with all kinds of tokenizers, a special token that is written out in the text
    /// is encoded as that token.
    std::vector<int32_t> encode_prompt(std::string_view text) const;
    /// Converts ids to text. Bytes that are not valid UTF-8 become U+FFFD. `skip_special`: leaves out special
    /// tokens. ConfigError: an id outside the vocabulary.
    std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;
    /// The bytes of one token, which may be only a part of a character. ConfigError: an id outside the
    /// vocabulary.
    const std::string& bytes_of(int32_t id) const;

    /// Its kind and the file that it was read from: "byte-level BPE (tokenizer.json)", "SentencePiece".
    const std::string& kind() const;
    /// A notice to the user about settings in its file that are ignored, or "": "tokenizer.json: truncation
    /// is ignored: texts are encoded completely, whatever their length".
    const std::string& notice() const;
    /// Ids of the special tokens, which do not stand for text, in ascending order.
    std::vector<int32_t> special_ids() const;
    /// The largest id + 1; at most `most_token_ids`.
    int64_t vocab_size() const;
    std::optional<int32_t> bos_id() const;
    std::optional<int32_t> eos_id() const;
    /// Ids before and after a text.
    struct Ends {
        std::vector<int32_t> before, after;
    };
    /// Ids that the tokenizer's own template (its post-processor) adds before and after every text.
    const Ends& own_ends() const;
    /// Ids around a document in training: those of the template, and BOS and EOS unless the template
    /// contains them.
    const Ends& document_ends() const;
    /// Hash of the content of all its files and of the version of Unicode, 16 hexadecimal digits. Token files
    /// contain it, to identify the tokenizer with which they were made.
    const std::string& hash() const;
    /// The hash that versions of Coeus without their own table of Unicode computed. Token files that have it
    /// are of this tokenizer too.
    const std::string& earlier_hash() const;
    /// True if a token file with this hash is of this tokenizer.
    bool has_hash(std::string_view hash) const { return hash == this->hash() || hash == earlier_hash(); }
    /// The folder or file that it was read from: the constructor's argument.
    const std::string& folder() const;

    /// True if a text can be encoded in parts: see Encoder::encode_part.
    bool can_encode_parts() const;

    /// Encodes texts, for one thread, with a cache of words. The Tokenizer must outlive it.
    class Encoder {
    public:
        explicit Encoder(const Tokenizer& tokenizer);
        ~Encoder();
        Encoder(Encoder&&) noexcept;

        /// Appends the ids of a text, which must be valid UTF-8.
        void encode(std::string_view text, std::vector<int32_t>& ids);
        /// Appends the ids of the pieces that begin in [begin, end) of a UTF-8 text. `begin` must be
        /// 0 or the end of a piece; both must be the start of a character. Returns the end of the
        /// last piece, where the next part begins.
        size_t encode_part(std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids);

    private:
        struct State;
        std::unique_ptr<State> state_;
    };

    /// Decodes ids one by one, for output during generation. Holds back the bytes of a character until it is
    /// complete.
    class Stream {
    public:
        explicit Stream(const Tokenizer& tokenizer, bool skip_special = true);
        ~Stream();
        Stream(Stream&&) noexcept;
        Stream& operator=(Stream&&) noexcept;
        /// The text that became complete with this id, often "".
        std::string push(int32_t id);
        /// The rest of the text, with U+FFFD for an incomplete character.
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
