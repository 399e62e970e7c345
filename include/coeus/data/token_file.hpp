// SPDX-License-Identifier: Apache-2.0
// A tokenized corpus. Its parts are read when they are needed, patiently (base/patient_io.hpp): a memory map
// would end the run by SIGBUS if a network file system fails for a moment. The format is public (HDF5) and
// can be written with h5py in four lines:
//   with h5py.File("tokens.h5", "w") as f:
//       f["tokens"] = ids.astype("uint16")           # or uint32; 1-D, including BOS and EOS
//       f["documents"] = offsets.astype("uint64")    # optional: where documents begin, then num_tokens
//       f["loss_mask"] = mask.astype("uint8")        # optional: 1 if a token is a label, else 0
// Arrays must be contiguous. `coeus tokenize` adds attributes to the root: tokenizer (hash), source, content
// (hash of text and tokenizer), text_bytes, document_bytes, num_tokens, num_documents, vocab_size, max_token,
// bos_id, eos_id (-1: none).
#pragma once

#include "coeus/file/raw_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace coeus {

/// True if the file begins with HDF5's signature. Such a file contains tokens and needs no tokenizer.
bool is_token_file(const std::filesystem::path& file);

class TokenFile {
public:
    /// Place of an array in the file; count 0: the array does not exist.
    struct Place {
        int64_t offset = 0, count = 0, width = 0;  ///< width: size of an element in bytes
    };
    /// The structure of a file, which one rank reads with HDF5 and broadcasts.
    struct Layout {
        Place tokens, documents, mask;
        std::string tokenizer_hash;
        std::optional<int64_t> max_token;

        std::string text() const;
        static Layout of_text(const std::string& text);
    };
    /// ConfigError: the file does not exist, is truncated, is not HDF5, or has no /tokens; the type or layout
    /// of an array is not as above; the offsets of documents do not ascend from 0 to the number of tokens;
    /// the loss mask does not have one entry per token.
    explicit TokenFile(const std::filesystem::path& path);
    /// Opens a file whose structure was checked on another rank. ConfigError: the file does not exist, or
    /// is shorter than on that rank.
    TokenFile(const std::filesystem::path& path, const Layout& layout);

    Layout layout() const;

    const std::string& path() const { return file_.path(); }
    int64_t num_tokens() const { return tokens_.count; }
    /// 1 if the file has no /documents.
    int64_t num_documents() const { return documents_.count > 0 ? documents_.count - 1 : 1; }
    bool has_loss_mask() const { return mask_.count > 0; }
    /// Bytes of the documents' texts in UTF-8, without the JSON around them; 0 if the file does not say it,
    /// or was opened by a Layout.
    int64_t document_bytes() const { return document_bytes_; }
    /// Hash of the tokenizer with which the file was made; "" if the file does not contain the hash.
    const std::string& tokenizer_hash() const { return tokenizer_hash_; }

    /// The largest id: from the attribute max_token, or else from a scan of all tokens with several threads
    /// (0: all), done only once.
    int64_t max_token(int threads = 0);
    /// ConfigError with id and position if a token is not below vocab_size.
    void check_vocabulary(int64_t vocab_size, int threads = 0);

    int32_t token(int64_t position) const { return int32_t(at(tokens_, position)); }
    /// Tokens [first, first + out.size()).
    void read(int64_t first, std::span<int32_t> out) const;
    /// ConfigError with file, position and id if one of the tokens read at `first` is not below vocab_size.
    /// This check is needed because check_vocabulary relies on the attribute max_token instead of reading the
    /// whole file.
    void require_in_vocabulary(int64_t first, std::span<const int32_t> tokens, int64_t vocab_size) const;
    /// Whether a token is a label. Always true if there is no loss mask.
    bool is_label(int64_t position) const { return mask_.count == 0 || at(mask_, position) != 0; }
    /// Sets to `ignored` those of the tokens read at `first` that are not labels, and returns how many are.
    /// Without a loss mask, all are.
    int64_t ignore_masked(int64_t first, std::span<int32_t> tokens, int32_t ignored) const;
    /// The number of the document that contains a position (binary search), and the position of a document's
    /// first token.
    int64_t document_of(int64_t position) const;
    int64_t document_begin(int64_t document) const;

private:
    /// Calls visit(number of the first element, elements as bytes, count) for elements [first, first +
    /// count), a few thousand at a time.
    template <class Visit>
    void for_each_piece(const Place& array, int64_t first, int64_t count, const Visit& visit) const;
    /// The first position from `from` on whose token is not below `vocab_size`; the number of tokens if there
    /// is none.
    int64_t first_outside(int64_t vocab_size, int64_t from) const;
    int64_t at(const Place& array, int64_t index) const;
    RawFile file_;
    Place tokens_, documents_, mask_;
    std::string tokenizer_hash_;
    int64_t document_bytes_ = 0;
    std::optional<int64_t> max_token_;
};

}  // namespace coeus
