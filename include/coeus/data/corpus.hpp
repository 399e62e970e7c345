// SPDX-License-Identifier: Apache-2.0
// The user's text: plain files (one document each), JSON Lines or JSON files with a field `text` or another
// (one document per object), any of these as .gz or .zst, and folders of these. The text is read as a stream
// of blocks, of which only a few are in memory at a time. Each block is cut into passages of about a
// megabyte, which several threads process in parallel. Token files are cut into the samples of a run in
// sampler.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

class TextFlaws;

/// What happens to a line of JSON Lines, or an element of a JSON array, that has no usable text.
enum class BadLines {
    stop,  ///< an error that names it
    skip   ///< it is left out and counted
};

/// The value of the options `bad_lines`: "stop" or "skip".
BadLines bad_lines_of(std::string_view text);

/// What was amiss in JSON.
struct JsonFlaws {
    int64_t lone_surrogates = 0;  ///< escapes of half a character, such as \ud83d, that became U+FFFD
    int64_t bad_lines = 0;        ///< lines and elements that were left out
    std::string first_bad;        ///< the first one's file and line, and what is amiss with it

    /// Adds those of a later part.
    void add(const JsonFlaws& later);
};

/// A unit of work: a part of one plain document, or whole lines of JSON. Contains views into its block.
struct Passage {
    /// Valid UTF-8. Plain text: the document's text to at least a megabyte past `end`, or to its end.
    /// JSON: all lines of the block.
    std::string_view document;
    size_t begin = 0, end = 0;  ///< this passage's range in `document`
    bool json_lines = false;
    bool first = true, last = true;  ///< the document begins (ends) with this passage
    int64_t offset = 0;              ///< offset of document[0] in the text of the file
    int64_t number = 0;              ///< JSON: number of the first line (from 1) or array element (from 0)
    bool elements = false;           ///< the lines are elements of an array
    BadLines bad_lines = BadLines::stop;
    const std::string* file = nullptr;   ///< its name in messages
    const std::string* field = nullptr;  ///< JSON: the field with the text; null: "text"

    std::string_view text() const { return document.substr(begin, end - begin); }
    bool begins_document() const { return first; }
    bool ends_document() const { return last; }
};

/// A position between two blocks, from which reading can resume.
struct CorpusPosition {
    int64_t file = 0;    ///< number of the file in reading order
    int64_t offset = 0;  ///< bytes of its text, as valid UTF-8, that were read
    int64_t number = 0;  ///< JSON: number of the next line or element
};

/// A summary of the files that were read completely.
struct CorpusReport {
    int64_t text_bytes = 0;  ///< decompressed
    int64_t replaced = 0;    ///< invalid bytes or sequences that became U+FFFD
    int64_t nuls = 0;        ///< NUL bytes, which are kept
    int64_t flawed_files = 0;
    std::string worst_file;  ///< the file with the most such bytes
    int64_t worst_flaws = 0;
    std::string worst_place;    ///< where its first such byte is, and its likely encoding
    int64_t ignored_bytes = 0;  ///< bytes after the last member of gzip files
    std::string first_ignored;  ///< the first file with such bytes
    JsonFlaws json;

    /// Adds the flaws of one file, and the bytes after its last member.
    void add(const std::string& file, const TextFlaws& flaws, int64_t ignored = 0);
    /// "11 invalid bytes or sequences became U+FFFD: a.txt is not UTF-8, first at line 3, byte 57 ...", and
    /// one for each kind of flaws of JSON.
    std::vector<std::string> warnings() const;

private:
    std::string text_warning() const;
};

class Corpus {
public:
    /// Finds the files: the given files, and all files in the given folders and their subfolders, except
    /// hidden ones. A file that is given more than once (directly, by a link or in a folder) is read once,
    /// with a warning. In folders, files that are not text by their name or first bytes (pictures, archives)
    /// are skipped, with a warning that counts and names them. `include`: patterns of a shell, such as
    /// "*.cpp"; of the files in folders, only those whose name matches one are read; empty: all. ConfigError:
    /// a path does not exist, no files of text are found, a given file has a format that is not supported, or
    /// all files are empty. `field`: the field of JSON objects with the text.
    explicit Corpus(const std::vector<std::filesystem::path>& inputs, BadLines bad_lines = BadLines::stop,
                    const std::vector<std::string>& include = {}, std::string field = "text");
    enum class Kind { text, json, json_lines, parquet };
    /// One file of a known kind, which messages call `name`.
    Corpus(const std::filesystem::path& file, const std::string& name, Kind kind, BadLines bad_lines,
           std::string field);

    /// Size of the files on disk.
    int64_t bytes() const { return bytes_; }
    /// The files, in reading order.
    std::vector<std::string> paths() const;
    /// "news.txt", or "news.txt and 11 more"
    std::string source() const;
    /// Hash of the contents and kinds of all files, in order, and of whether bad lines are left out.
    uint64_t content_hash() const;

    struct Options {
        CorpusPosition from = {};
        CorpusReport report = {};        ///< report on the files before `from`
        int64_t block_bytes = 64 << 20;  ///< approximate size of the text of a block
        bool whole_documents = false;    ///< plain documents are never cut between blocks
    };
    struct Block {
        const std::vector<Passage>& passages;  ///< in order; their views are valid until `visit` returns
        CorpusPosition next;                   ///< the position after this block
        CorpusReport report;                   ///< report on the files before next.file
        int64_t file_bytes;                    ///< bytes read from disk, for a progress bar
    };
    /// Reads block by block; a separate thread reads one block ahead of `visit`. Returns the report on
    /// all files. ConfigError: truncated or damaged compressed data, an encoding other than UTF-8 that
    /// can be recognised, binary files, invalid JSON.
    CorpusReport read_blocks(const std::function<void(const Block&)>& visit, const Options& options) const;
    /// The same, for callers that need only the passages.
    CorpusReport read(const std::function<void(const std::vector<Passage>&)>& visit) const;

    struct File {
        std::string path;
        int64_t bytes;
        Kind kind;
        std::string name;  ///< in messages
    };
    /// How the objects of JSON are read.
    struct Objects {
        BadLines bad_lines = BadLines::stop;
        std::string field = "text";
    };

private:
    std::vector<File> files_;
    int64_t bytes_ = 0;
    Objects objects_;
};

/// Calls visit(text) for the documents in a passage of JSON lines, and returns their flaws. ConfigError names
/// file and line or element.
JsonFlaws each_json_text(const Passage& passage, const std::function<void(std::string_view)>& visit);

}  // namespace coeus
