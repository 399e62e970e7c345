// SPDX-License-Identifier: Apache-2.0
// The user's text: plain files (one document each), JSON lines or JSON with a `text` field (one document
// each), any of these as .gz or .zst, folders of these. Read as a stream, block after block, each cut into
// passages of about a megabyte for threads; never more than some blocks are in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

class TextFlaws;

/// A piece of work: a part of one plain document, or whole lines of JSON. Views into its block.
struct Passage {
    std::string_view document;  ///< valid UTF-8: of a plain document the text from `begin` at least a
                                ///< megabyte past `end`, or to its end; of JSON all lines of the block
    size_t begin = 0, end = 0;  ///< this passage's part of it
    bool json_lines = false;
    bool first = true, last = true;  ///< the document begins, ends with this passage
    int64_t offset = 0;              ///< of document[0] in the text of the file
    int64_t number = 0;              ///< JSON: of the first line, from 1; of an array's first element, from 0
    bool elements = false;           ///< the lines are elements of an array
    const std::string* file = nullptr;

    std::string_view text() const { return document.substr(begin, end - begin); }
    bool begins_document() const { return first; }
    bool ends_document() const { return last; }
};

/// A place between two blocks, where reading can go on.
struct CorpusPosition {
    int64_t file = 0;    ///< its number in the order of reading
    int64_t offset = 0;  ///< bytes of its text that lie behind, as valid UTF-8
    int64_t number = 0;  ///< JSON: of its next line or element
};

/// What was read, over files that are done.
struct CorpusReport {
    int64_t text_bytes = 0;  ///< decompressed
    int64_t replaced = 0;    ///< invalid bytes or sequences that became U+FFFD
    int64_t nuls = 0;        ///< NUL bytes, kept as they are
    int64_t flawed_files = 0;
    std::string worst_file;  ///< with most of both
    int64_t worst_flaws = 0;
    std::string worst_place;  ///< of its first one, and what the file looks like

    /// Counts what one file had.
    void add(const std::string& file, const TextFlaws& flaws);
    /// "11 invalid bytes or sequences became U+FFFD: a.txt is not UTF-8, first at line 3, byte 57 ...", or ""
    /// where all was UTF-8.
    std::string warning() const;
};

class Corpus {
public:
    /// Finds the files: those named, and in folders, recursively, all that are not hidden; each once, with a
    /// warning where a file is named twice, by a link or a folder too. ConfigError: a path is missing,
    /// nothing is found, a file is of another known format, all are empty.
    explicit Corpus(const std::vector<std::filesystem::path>& inputs);

    /// Of the files, as they are on the disk.
    int64_t bytes() const { return bytes_; }
    /// "news.txt", or "news.txt and 11 more"
    std::string source() const;
    /// Of all contents in order, and of what kind each is.
    uint64_t content_hash() const;

    struct Options {
        CorpusPosition from = {};
        CorpusReport report = {};        ///< of the files before `from`
        int64_t block_bytes = 64 << 20;  ///< of text, about
        bool whole_documents = false;    ///< plain documents are not cut between blocks, whatever their size
    };
    struct Block {
        const std::vector<Passage>& passages;  ///< in order; their views live until `visit` returns
        CorpusPosition next;                   ///< behind this block
        CorpusReport report;                   ///< of the files before next.file
        int64_t file_bytes;                    ///< read from the disk, for a progress bar
    };
    /// Reads block after block, one ahead of `visit` on a thread of its own; returns the report on all.
    /// ConfigError: compressed data that is truncated or damaged, another encoding than UTF-8 that says so,
    /// binary files, JSON that is none.
    CorpusReport read_blocks(const std::function<void(const Block&)>& visit, const Options& options) const;
    /// The same for who needs only the passages.
    CorpusReport read(const std::function<void(const std::vector<Passage>&)>& visit) const;

    enum class Kind { text, json, json_lines };
    struct File {
        std::string path;
        int64_t bytes;
        Kind kind;
    };

private:
    std::vector<File> files_;
    int64_t bytes_ = 0;
};

/// Calls visit(text) for the documents in a passage of JSON lines. ConfigError names file and line or
/// element.
void each_json_text(const Passage& passage, const std::function<void(std::string_view)>& visit);

}  // namespace coeus
