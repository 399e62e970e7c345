// SPDX-License-Identifier: Apache-2.0
// Files to blocks of passages, in order. A block ends at the end of a file, of a line, or where a plain text
// may be cut; what lies behind that place begins the next one.
#pragma once

#include "coeus/data/corpus.hpp"
#include "coeus/file/json.hpp"
#include "text_stream.hpp"

#include <deque>
#include <optional>

namespace coeus {

/// Bytes that a piece of JSON may have: a line, an element of an array, or an object in a file of its own.
/// Its values take 25 times as much memory.
constexpr int64_t longest_json = 64 << 20;
/// The message for a piece that is longer.
std::string too_long(const std::string& what);
/// Bytes that plain text may have without a place to cut it: a line's end before a letter, or a space between
/// two letters.
constexpr int64_t longest_uncut = int64_t(1) << 30;
/// The text of a JSON object. ConfigError: it has no field "text"; names those that it has.
const std::string& text_of(const JsonDocument& document);

/// The text of one block and what its passages view.
struct TextBlock {
    std::deque<std::string> texts;  // a deque keeps addresses
    std::vector<Passage> passages;
    CorpusPosition next;
    CorpusReport report;
    int64_t file_bytes = 0;
};

/// One file: plain text, lines, or the elements of a JSON array, which become lines.
class FileReader {
public:
    /// Reading goes on at offset and number of `from`.
    FileReader(const Corpus::File& file, const CorpusPosition& from);

    /// Adds passages of about `block_bytes` of text; true where the file is done.
    bool read(TextBlock& block, int64_t block_bytes, bool whole_documents);

    const TextStream& stream() const { return stream_; }
    /// Behind the last passage.
    int64_t offset() const { return offset_; }
    int64_t number() const { return number_; }

private:
    enum class Form { text, lines, array };
    void skip(int64_t bytes);
    void grow(size_t bytes);
    [[noreturn]] void refuse(const std::string& what) const;
    void find_form();
    bool read_text(TextBlock& block, size_t block_bytes);
    bool read_lines(TextBlock& block, size_t block_bytes);
    bool read_array(TextBlock& block, size_t block_bytes);
    void add_object(TextBlock& block);
    void add_passages(TextBlock& block, const std::string& text, const std::vector<size_t>& cuts, bool json);
    void take(size_t bytes);

    const Corpus::File* file_;
    TextStream stream_;
    std::string text_;  // read, and in no passage yet
    Form form_ = Form::text;
    bool one_object_ = false;  // .json of a single object over several lines
    int64_t offset_ = 0, number_ = 0;
};

class BlockReader {
public:
    BlockReader(const std::vector<Corpus::File>& files, const Corpus::Options& options);
    /// The next block; nothing behind the last one.
    std::optional<TextBlock> next();
    const CorpusReport& report() const { return report_; }

private:
    const std::vector<Corpus::File>* files_;
    Corpus::Options options_;
    CorpusPosition at_;
    CorpusReport report_;
    std::optional<FileReader> file_;
    int64_t bytes_before_ = 0;  // of the files that are done
};

}  // namespace coeus
