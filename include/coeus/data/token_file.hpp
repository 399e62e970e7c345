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
// Token files of other programs are read as they are too (token_formats.hpp): Megatron-LM's pairs of .bin and
// .idx, llm.c's .bin, and NumPy's .npy.
#pragma once

#include "coeus/file/raw_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coeus {

/// True if the file begins with HDF5's signature. Such a file contains tokens and needs no tokenizer.
bool is_token_file(const std::filesystem::path& file);

/// True if a path leads to tokens of any format, or is named as such a file is, which may be damaged or
/// incomplete; also for the common part of the names of a Megatron-LM pair.
bool leads_to_tokens(const std::filesystem::path& path);

/// The id that divides the tokens of a file that has no list of its documents.
struct Separator {
    int32_t id = 0;
    bool begins = false;  ///< each document begins with it; else each ends with it
};

class TokenFile {
public:
    /// Place of an array in the file; count 0: the array does not exist.
    struct Place {
        int64_t offset = 0, count = 0, width = 0;  ///< width: size of an element in bytes
    };
    /// The structure of a file, which one rank reads and broadcasts.
    struct Layout {
        Place tokens = {}, documents = {}, mask = {};
        Place sequences = {};    ///< Megatron-LM: offsets of sequences in bytes; documents count these
        bool is_signed = false;  ///< ids are signed numbers, which must not be negative
        int64_t document_bytes = 0;
        std::optional<int64_t> max_token = {};
        std::optional<Separator> separator = {};
        int64_t separated = 0;    ///< number of documents that the separator divides
        std::string format = {};  ///< what the file is, in one word: "HDF5", "Megatron-LM"
        std::string data = {};    ///< path of the file with the tokens; "": the path that was given
        std::string index = {};   ///< path of a second file, with `documents` and `sequences`; "": none
        std::string tokenizer_hash = {};

        std::string text() const;
        static Layout of_text(const std::string& text);
    };
    /// ConfigError: the file does not exist, is truncated, is of no known format, or has no /tokens; the type
    /// or layout of an array is not as above; the offsets of documents do not ascend from 0 to the number of
    /// tokens; the loss mask does not have one entry per token.
    explicit TokenFile(const std::filesystem::path& path);
    /// Opens a file whose structure was checked on another rank. ConfigError: the file does not exist, or
    /// is shorter than on that rank.
    TokenFile(const std::filesystem::path& path, Layout layout);

    const Layout& layout() const { return layout_; }

    /// The file with the tokens.
    const std::string& path() const { return file_.path(); }
    int64_t num_tokens() const { return layout_.tokens.count; }
    /// 1 if the file has neither a list of its documents nor a separator.
    int64_t num_documents() const;
    /// False if the file has no list of its documents: see divide_at().
    bool lists_documents() const { return layout_.documents.count > 0; }
    bool has_loss_mask() const { return layout_.mask.count > 0; }
    /// Bytes of the documents' texts in UTF-8, without the JSON around them; 0 if the file does not say it.
    int64_t document_bytes() const { return layout_.document_bytes; }
    /// Hash of the tokenizer with which the file was made; "" if the file does not contain the hash.
    const std::string& tokenizer_hash() const { return layout_.tokenizer_hash; }

    /// Divides a file that has no list of its documents at an id.
    void divide_at(const Separator& separator);
    /// Counts the documents that a separator divides, which reads the whole file with several threads (0:
    /// all). num_documents() needs it.
    void count_documents(int threads = 0);

    /// The largest id: from the attribute max_token, or else from a scan of all tokens with several threads
    /// (0: all), done only once.
    int64_t max_token(int threads = 0);
    /// ConfigError with id and position if a token is not below vocab_size.
    void check_vocabulary(int64_t vocab_size, int threads = 0);

    int32_t token(int64_t position) const { return int32_t(at(file_, layout_.tokens, position)); }
    /// Tokens [first, first + out.size()).
    void read(int64_t first, std::span<int32_t> out) const;
    /// ConfigError with file, position and id if one of the tokens read at `first` is not below vocab_size.
    /// This check is needed because check_vocabulary relies on the attribute max_token instead of reading the
    /// whole file.
    void require_in_vocabulary(int64_t first, std::span<const int32_t> tokens, int64_t vocab_size) const;
    /// Whether a token is a label. Always true if there is no loss mask.
    bool is_label(int64_t position) const {
        return layout_.mask.count == 0 || at(file_, layout_.mask, position) != 0;
    }
    /// Sets to `ignored` those of the tokens read at `first` that are not labels, and returns how many are.
    /// Without a loss mask, all are.
    int64_t ignore_masked(int64_t first, std::span<int32_t> tokens, int32_t ignored) const;
    /// The number of the document that contains a position, and the position of a document's first token (for
    /// the number of documents: the number of tokens). A binary search if the file lists its documents; with
    /// a separator, all tokens before are read.
    int64_t document_of(int64_t position) const;
    int64_t document_begin(int64_t document) const;
    /// The positions at which documents begin, in order, of the documents [first, last], and the end of the
    /// last one. Reads the file once, up to there, if a separator divides it.
    std::vector<int64_t> document_bounds(int64_t first, int64_t last) const;
    /// For each of the tokens [first, first + out.size()): how far after `first` its document begins, 0 if it
    /// begins before. Reads only these tokens and the one before.
    void document_starts(int64_t first, std::span<int32_t> out) const;

private:
    /// Calls visit(number of the first element, elements as bytes, count) for elements [first, first +
    /// count), a few thousand at a time.
    template <class Visit>
    void for_each_piece(const RawFile& file, const Place& array, int64_t first, int64_t count,
                        const Visit& visit) const;
    /// The first position from `from` on whose token is not in [0, vocab_size); the number of tokens if there
    /// is none.
    int64_t first_outside(int64_t vocab_size, int64_t from) const;
    int64_t at(const RawFile& file, const Place& array, int64_t index) const;
    /// ConfigError if the id at a position is negative.
    void require_not_negative(int64_t position) const;
    const RawFile& index() const { return index_ ? *index_ : file_; }
    /// Calls visit(position) for each position of [first, last) before which the separator has a border, in
    /// order, until it returns false.
    template <class Visit>
    void for_each_border(int64_t first, int64_t last, const Visit& visit) const;
    Layout layout_;
    RawFile file_;
    std::optional<RawFile> index_;
};

}  // namespace coeus
