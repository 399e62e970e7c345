// SPDX-License-Identifier: Apache-2.0
// A tokenized corpus, memory-mapped. Public format (HDF5), writable with h5py in four lines:
//   with h5py.File("tokens.h5", "w") as f:
//       f["tokens"] = ids.astype("uint16")           # or uint32; 1-D, BOS and EOS already in it
//       f["documents"] = offsets.astype("uint64")    # optional: where documents begin, then the total
//       f["loss_mask"] = mask.astype("uint8")        # optional: 1 = this token is a label, 0 = it is not
// Arrays are contiguous. Attributes of the root that `coeus tokenize` adds: tokenizer (hash), source, content
// (hash of text and tokenizer), num_tokens, num_documents, vocab_size, max_token, bos_id, eos_id (-1: none).
#pragma once

#include "coeus/file/raw_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace coeus {

/// True where the file begins as HDF5 files do: data that needs no tokenizer.
bool is_token_file(const std::filesystem::path& file);

class TokenFile {
public:
    /// Where an array begins in the file; count 0: it is absent.
    struct Place {
        int64_t offset = 0, count = 0, width = 0;  ///< width: bytes of an element
    };
    /// What HDF5 says of a file, which one rank asks and tells the others.
    struct Layout {
        Place tokens, documents, mask;
        std::string tokenizer_hash;
        std::optional<int64_t> max_token;

        std::string text() const;
        static Layout of_text(const std::string& text);
    };
    /// ConfigError: absent, truncated, not HDF5, no /tokens, another type or layout than above, offsets of
    /// documents that do not ascend from 0 to the number of tokens, a mask of another length.
    explicit TokenFile(const std::filesystem::path& path);
    /// The same file, found sound elsewhere: it is mapped, and not looked into. ConfigError: absent, or
    /// shorter than it was there.
    TokenFile(const std::filesystem::path& path, const Layout& layout);

    Layout layout() const;

    const std::string& path() const { return map_.path(); }
    int64_t num_tokens() const { return tokens_.count; }
    /// 1 where the file does not say.
    int64_t num_documents() const { return documents_.count > 0 ? documents_.count - 1 : 1; }
    bool has_loss_mask() const { return mask_.count > 0; }
    /// Of the tokenizer that made it; "" where the file does not say.
    const std::string& tokenizer_hash() const { return tokenizer_hash_; }

    /// The largest id: from the attribute, or else by a scan on several threads, once.
    int64_t max_token(int threads = 0);
    /// ConfigError naming id and position where a token is not below vocab_size.
    void check_vocabulary(int64_t vocab_size, int threads = 0);

    int32_t token(int64_t position) const { return tokens_.at(position); }
    /// Tokens [first, first + out.size()).
    void read(int64_t first, std::span<int32_t> out) const;
    /// ConfigError naming file, position and id where one of the tokens read at `first` is not below
    /// vocab_size: the attribute max_token is believed, so that a start need not read the whole file.
    void require_in_vocabulary(int64_t first, std::span<const int32_t> tokens, int64_t vocab_size) const;
    /// Whether a token is a label; true without a mask.
    bool is_label(int64_t position) const { return mask_.count == 0 || uint8_t(mask_.data[position]) != 0; }
    /// The document that holds a position, by binary search, and where documents begin.
    int64_t document_of(int64_t position) const;
    int64_t document_begin(int64_t document) const;

private:
    // An array inside the mapped file; not aligned to its elements in files of other writers.
    struct Array {
        const std::byte* data = nullptr;
        int64_t count = 0;
        int width = 0;  // bytes of an element
        int64_t at(int64_t index) const;
    };
    Array array_at(const Place& place) const;
    Place place_of(const Array& array) const;
    MappedFile map_;
    Array tokens_, documents_, mask_;
    std::string tokenizer_hash_;
    std::optional<int64_t> max_token_;
};

}  // namespace coeus
