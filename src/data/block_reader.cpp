// SPDX-License-Identifier: Apache-2.0
#include "block_reader.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "json_text.hpp"
#include "parquet.hpp"

#include <algorithm>
#include <memory>

namespace coeus {

namespace {

constexpr size_t passage_bytes = 1 << 20;
constexpr size_t look_ahead = 1 << 20;   // how far a piece of plain text may extend past its passage
constexpr size_t cut_search = 64 << 10;  // how far past its target a cut may be
constexpr size_t read_bytes = 4 << 20;
constexpr int64_t block_files = 4096;
constexpr size_t nowhere = std::string_view::npos;
constexpr const char* blanks = " \t\r\n";

bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// A position at or after `from` where the regular expressions of all common tokenizers end a piece: after a
// line end that a letter follows, or else before a space between two letters. All bytes around it are ASCII.
// `nowhere` if there is none within `cut_search` bytes.
size_t cut_behind(std::string_view text, size_t from) {
    const size_t last = std::min(text.size(), from + cut_search);
    for (size_t at = from; at < last; ++at)
        if (text[at - 1] == '\n' && letter(text[at])) return at;
    for (size_t at = from; at + 1 < last; ++at)
        if (text[at] == ' ' && letter(text[at - 1]) && letter(text[at + 1])) return at;
    return nowhere;
}

size_t line_behind(std::string_view text, size_t from) {
    const size_t end = text.find('\n', from - 1);
    return end == nowhere ? end : end + 1;
}

// Ends of passages, up to `limit`.
template <class Place>
std::vector<size_t> inner_cuts(std::string_view text, size_t limit, Place place) {
    std::vector<size_t> cuts;
    for (size_t target = passage_bytes; target <= limit; target += passage_bytes) {
        if (!cuts.empty() && target <= cuts.back()) continue;
        const size_t at = place(text, target);
        if (at != nowhere && at <= limit && at < text.size()) cuts.push_back(at);
    }
    return cuts;
}

// Ends of passages up to the end of the text; the last passage is at least half as long as the others.
template <class Place>
std::vector<size_t> all_cuts(std::string_view text, Place place) {
    const size_t half = passage_bytes / 2;
    auto cuts = inner_cuts(text, text.size() > half ? text.size() - half : 0, place);
    if (!text.empty()) cuts.push_back(text.size());
    return cuts;
}

std::unique_ptr<ByteStream> bytes_of(const Corpus::File& file, const Corpus::Objects& objects) {
    return file.kind == Corpus::Kind::parquet ? open_parquet(file.path, objects.field)
                                              : open_stream(file.path);
}

}  // namespace

FileReader::FileReader(const Corpus::File& file, const Corpus::Objects& objects, const CorpusPosition& from)
    : file_(&file), objects_(&objects), stream_(bytes_of(file, objects), file.name) {
    if (file.kind == Corpus::Kind::json_lines || file.kind == Corpus::Kind::parquet) form_ = Form::lines;
    if (file.kind == Corpus::Kind::json) find_form();
    number_ = form_ == Form::lines ? 1 : 0;
    if (from.offset == 0) return;
    skip(from.offset - offset_);
    number_ = from.number;
}

std::string too_long() {
    return fmt::format("is longer than {} MiB, the maximum for one JSON value; split it", longest_json >> 20);
}

std::string how_to_skip(const char* what) {
    return fmt::format("With bad_lines = \"skip\" (in a deck, training.bad_lines) such {} are left out",
                       what);
}

void FileReader::refuse(const std::string& what) const {
    throw ConfigError("{}: {}", file_->name, what);
}

// Finds which of three forms a .json file has: lines of objects, one array of objects, or one value over
// several lines.
void FileReader::find_form() {
    size_t begin = 0;
    while ((begin = text_.find_first_not_of(blanks)) == nowhere && !stream_.at_end()) {
        if (int64_t(text_.size()) > longest_json) refuse("begins with too much white space");
        grow(text_.size() + read_bytes);
    }
    form_ = Form::lines;
    if (begin == nowhere) return;
    if (text_[begin] == '[') {
        form_ = Form::array;
        return take(begin + 1);
    }
    one_object_ = is_one_object(begin);
}

// Whether the file is one value over several lines; one that is cut off also counts. The first of many lines
// may be broken, and is not such a value then.
bool FileReader::is_one_object(size_t begin) {
    size_t end = 0;
    const auto line_end = [&] { return end = text_.find('\n', begin); };
    while (line_end() == nowhere && !stream_.at_end() && int64_t(text_.size()) <= longest_json)
        grow(text_.size() + read_bytes);
    const size_t value_end = json_value_end(std::string_view(text_).substr(0, end), begin);
    if (end == nowhere || (text_[begin] == '{' && value_end != nowhere)) return false;
    grow(size_t(longest_json) + 1);
    const size_t whole = json_value_end(text_, begin);
    if (whole != nowhere && stream_.at_end() && text_.find_first_not_of(blanks, whole) == nowhere)
        return true;
    const size_t next_line = text_.find_first_not_of(blanks, end);
    return next_line != nowhere && text_[next_line] != '{';
}

void FileReader::take(size_t bytes) {
    text_.erase(0, bytes);
    offset_ += int64_t(bytes);
}

void FileReader::skip(int64_t bytes) {
    while (bytes > int64_t(text_.size()) && !(stream_.at_end() && text_.empty())) {
        bytes -= int64_t(text_.size());
        take(text_.size());
        grow(read_bytes);
    }
    take(size_t(std::min(bytes, int64_t(text_.size()))));
}

void FileReader::grow(size_t bytes) {
    while (text_.size() < bytes && !stream_.at_end())
        stream_.append(text_, std::min(bytes - text_.size(), read_bytes));
}

bool FileReader::read(TextBlock& block, int64_t block_bytes, bool whole_documents) {
    const auto bytes = std::max(size_t(block_bytes), passage_bytes);
    if (one_object_) return add_object(block), true;
    switch (form_) {
        case Form::lines: return read_lines(block, bytes);
        case Form::array: return read_array(block, bytes);
        case Form::text: break;
    }
    return read_text(block, whole_documents ? nowhere - look_ahead : bytes);
}

bool FileReader::read_text(TextBlock& block, size_t block_bytes) {
    for (size_t wanted = block_bytes + look_ahead;; wanted += block_bytes) {
        grow(wanted);
        if (stream_.at_end()) {
            const std::string& all = block.texts.emplace_back(std::move(text_));
            add_passages(block, all, all_cuts(all, cut_behind), false);
            text_.clear();
            return true;
        }
        const auto cuts = inner_cuts(text_, text_.size() - look_ahead, cut_behind);
        if (cuts.empty() && int64_t(text_.size()) > longest_uncut)
            refuse(fmt::format(
                "the {} MiB after byte {} contain no place to split the text: neither a line end before a "
                "letter, nor a space between two letters; break it into lines",
                longest_uncut >> 20, offset_));
        if (cuts.empty()) continue;
        std::string rest = text_.substr(cuts.back());
        add_passages(block, block.texts.emplace_back(std::move(text_)), cuts, false);
        text_ = std::move(rest);
        return false;
    }
}

bool FileReader::read_lines(TextBlock& block, size_t block_bytes) {
    for (size_t wanted = block_bytes;; wanted += std::max(block_bytes, read_bytes)) {
        grow(wanted);
        const bool done = stream_.at_end();
        std::vector<size_t> cuts =
            done ? all_cuts(text_, line_behind) : inner_cuts(text_, text_.size(), line_behind);
        if (!done && cuts.empty()) {
            const size_t end = text_.rfind('\n');
            if (end == nowhere && int64_t(text_.size()) > longest_json) {
                cut_line(block);
                return stream_.at_end() && text_.empty();
            }
            if (end == nowhere) continue;
            cuts.push_back(end + 1);
        }
        std::string rest = cuts.empty() ? std::string() : text_.substr(cuts.back());
        add_passages(block, block.texts.emplace_back(std::move(text_)), cuts, true);
        text_ = std::move(rest);
        return done;
    }
}

// Makes a passage of the beginning of a line that is too long, which is an error or counted when the passage
// is read, and skips the rest of the line.
void FileReader::cut_line(TextBlock& block) {
    const std::string& line = block.texts.emplace_back(std::exchange(text_, {}) + '\n');
    add_passages(block, line, {line.size()}, true);
    --offset_;  // the line end that was added
    size_t end = 0;
    while ((end = text_.find('\n')) == nowhere && !(stream_.at_end() && text_.empty())) {
        take(text_.size());
        grow(read_bytes);
    }
    take(end == nowhere ? 0 : end + 1);
}

// Converts each element to one line: line ends inside an element become spaces. In JSON, they are white
// space.
bool FileReader::read_array(TextBlock& block, size_t block_bytes) {
    const auto invalid = [&](const std::string& what) { refuse("not valid JSON: " + what); };
    std::string lines;
    const int64_t first = number_;
    size_t at = 0;
    bool done = false;
    while (!done && lines.size() < block_bytes) {
        size_t begin = text_.find_first_not_of(blanks, at), end = nowhere;
        const bool comma = begin != nowhere && text_[begin] == ',';
        if (comma && number_ > 0) begin = text_.find_first_not_of(blanks, begin + 1);
        if (begin != nowhere && text_[begin] == ']' && !comma) {
            at = begin + 1;
            done = true;
            continue;
        }
        if (begin != nowhere) end = json_value_end(text_, begin);
        if (end == nowhere || end == text_.size()) {
            // a number might continue; an object that ends the text read so far is scanned again, which is
            // cheap
            if (stream_.at_end())
                invalid(fmt::format("the file ends in or after element [{}], before the array's closing ]",
                                    number_));
            if (int64_t(text_.size() - at) > longest_json)
                refuse(fmt::format("[{}] {}", number_, too_long()));
            grow(text_.size() + read_bytes);
            continue;
        }
        if (end == begin || comma != (number_ > 0))
            invalid(fmt::format("there must be {} before element [{}]", number_ > 0 ? "one comma" : "nothing",
                                number_));
        const size_t line = lines.size();
        lines.append(text_, begin, end - begin);
        std::replace_if(
            lines.begin() + std::ptrdiff_t(line), lines.end(), [](char c) { return c == '\n' || c == '\r'; },
            ' ');
        lines += '\n';
        ++number_;
        at = end;
    }
    while (done && !stream_.at_end() && text_.find_first_not_of(blanks, at) == nowhere) {
        take(text_.size());
        at = 0;
        grow(read_bytes);
    }
    if (done && text_.find_first_not_of(blanks, at) != nowhere) invalid("there is more text after the array");
    take(done ? text_.size() : at);
    const int64_t next = std::exchange(number_, first), offset = offset_;
    const std::string& all = block.texts.emplace_back(std::move(lines));
    add_passages(block, all, all_cuts(all, line_behind), true);
    number_ = next;
    offset_ = offset;
    return done;
}

void FileReader::add_object(TextBlock& block) {
    grow(size_t(longest_json) + 1);
    JsonText object = int64_t(text_.size()) > longest_json ? JsonText{.flaw = too_long()}
                                                           : json_text(text_, objects_->field);
    if (!object.flaw.empty()) {
        const std::string flaw = fmt::format("{}: {}", file_->name, object.flaw);
        if (objects_->bad_lines == BadLines::stop) throw ConfigError("{}. {}", flaw, how_to_skip("objects"));
        json_flaws_.add({.bad_lines = 1, .first_bad = flaw});
        while (!(stream_.at_end() && text_.empty())) {
            take(text_.size());
            grow(read_bytes);
        }
        return;
    }
    json_flaws_.lone_surrogates += object.lone_surrogates;
    const std::string& all = block.texts.emplace_back(std::move(object.text));
    const auto bytes = int64_t(text_.size());
    offset_ = 0;
    add_passages(block, all, all_cuts(all, cut_behind), false);
    offset_ = bytes;
    text_.clear();
}

void FileReader::add_passages(TextBlock& block, const std::string& text, const std::vector<size_t>& cuts,
                              bool json) {
    size_t begin = 0;
    for (const size_t end : cuts) {
        block.passages.push_back({.document = text,
                                  .begin = begin,
                                  .end = end,
                                  .json_lines = json,
                                  .first = begin == 0 && offset_ == 0,
                                  .last = end == text.size(),
                                  .offset = offset_,
                                  .number = number_,
                                  .elements = form_ == Form::array,
                                  .bad_lines = objects_->bad_lines,
                                  .file = &file_->name,
                                  .field = &objects_->field});
        if (json)
            number_ +=
                std::count(text.begin() + std::ptrdiff_t(begin), text.begin() + std::ptrdiff_t(end), '\n');
        begin = end;
    }
    offset_ += int64_t(begin);
}

BlockReader::BlockReader(const std::vector<Corpus::File>& files, const Corpus::Objects& objects,
                         const Corpus::Options& options)
    : files_(&files), objects_(&objects), options_(options), at_(options.from), report_(options.report) {
    for (int64_t done = 0; done < at_.file; ++done) bytes_before_ += files[size_t(done)].bytes;
}

std::optional<TextBlock> BlockReader::next() {
    const auto count = int64_t(files_->size());
    if (at_.file >= count) return std::nullopt;
    TextBlock block;
    bool inside = false;  // the block ends inside a file
    int64_t text_bytes = 0;
    for (int64_t done = 0;
         !inside && at_.file < count && done < block_files && text_bytes < options_.block_bytes; ++done) {
        const Corpus::File& file = (*files_)[size_t(at_.file)];
        if (!file_) file_.emplace(file, *objects_, at_);
        const int64_t before = file_->offset();
        inside = !file_->read(block, options_.block_bytes, options_.whole_documents);
        text_bytes += file_->offset() - before;
        if (inside) {
            at_ = {at_.file, file_->offset(), file_->number()};
            break;
        }
        report_.text_bytes += file_->offset();
        report_.add(file.name, file_->stream().flaws(), file_->stream().ignored_bytes());
        report_.json.add(file_->json_flaws());
        bytes_before_ += file.bytes;
        at_ = {at_.file + 1, 0, 0};
        file_.reset();
    }
    block.next = at_;
    block.report = report_;
    block.file_bytes = bytes_before_ + (file_ ? file_->stream().file_position() : 0);
    return block;
}

}  // namespace coeus
