// SPDX-License-Identifier: Apache-2.0
// Reads files as blocks of passages, in order. A block ends at the end of a file or line, or at a position
// where plain text can be cut. The next block begins there.
#pragma once

#include "coeus/data/corpus.hpp"
#include "text_stream.hpp"

#include <deque>
#include <optional>

namespace coeus {

/// Maximum size in bytes of a JSON value: a line, an element of an array, or the object of a file.
constexpr int64_t longest_json = 64 << 20;
/// What is amiss with a longer value: "is longer than 64 MiB ...".
std::string too_long();
/// The end of a message about a bad line: how `what` ("lines", "elements") like it are left out.
std::string how_to_skip(const char* what);
/// Maximum size in bytes of plain text without a place to cut it, which is a line end before a letter, or a
/// space between two letters.
constexpr int64_t longest_uncut = int64_t(1) << 30;

/// One block: its texts, and the passages with views into them.
struct TextBlock {
    std::deque<std::string> texts;  // a deque, so that addresses do not change
    std::vector<Passage> passages;
    CorpusPosition next;
    CorpusReport report;
    int64_t file_bytes = 0;
};

/// Reads one file: plain text, lines, or the elements of a JSON array, which become lines.
class FileReader {
public:
    /// Starts at the offset and number of `from`.
    FileReader(const Corpus::File& file, const Corpus::Objects& objects, const CorpusPosition& from);

    /// Adds passages with about `block_bytes` of text. Returns true at the end of the file.
    bool read(TextBlock& block, int64_t block_bytes, bool whole_documents);

    const TextStream& stream() const { return stream_; }
    /// Those of a file that is one object. Flaws of lines are found when they are parsed.
    const JsonFlaws& json_flaws() const { return json_flaws_; }
    /// The offset after the last passage.
    int64_t offset() const { return offset_; }
    int64_t number() const { return number_; }

private:
    enum class Form { text, lines, array };
    void skip(int64_t bytes);
    void grow(size_t bytes);
    [[noreturn]] void refuse(const std::string& what) const;
    void find_form();
    bool is_one_object(size_t begin);
    void cut_line(TextBlock& block);
    bool read_text(TextBlock& block, size_t block_bytes);
    bool read_lines(TextBlock& block, size_t block_bytes);
    bool read_array(TextBlock& block, size_t block_bytes);
    void add_object(TextBlock& block);
    void add_passages(TextBlock& block, const std::string& text, const std::vector<size_t>& cuts, bool json);
    void take(size_t bytes);

    const Corpus::File* file_;
    const Corpus::Objects* objects_;
    TextStream stream_;
    std::string text_;  // read, but not in a passage yet
    Form form_ = Form::text;
    JsonFlaws json_flaws_;
    bool one_object_ = false;  // a .json file with a single value over several lines
    int64_t offset_ = 0, number_ = 0;
};

class BlockReader {
public:
    /// Both must outlive it.
    BlockReader(const std::vector<Corpus::File>& files, const Corpus::Objects& objects,
                const Corpus::Options& options);
    /// Returns the next block; nothing after the last one.
    std::optional<TextBlock> next();
    const CorpusReport& report() const { return report_; }

private:
    const std::vector<Corpus::File>* files_;
    const Corpus::Objects* objects_;
    Corpus::Options options_;
    CorpusPosition at_;
    CorpusReport report_;
    std::optional<FileReader> file_;
    int64_t bytes_before_ = 0;  // size of the files that were read completely
};

}  // namespace coeus
