// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/corpus.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"
#include "utf8.hpp"

#include <algorithm>
#include <deque>
#include <optional>

namespace coeus {

namespace fs = std::filesystem;

namespace {

constexpr size_t passage_bytes = 1 << 20;
constexpr size_t cut_search = 64 << 10;  // how far behind its place a cut may lie
constexpr int64_t batch_bytes = 256 << 20, batch_files = 4096;

std::string lower_extension(const fs::path& file) {
    std::string extension = file.extension().string();
    for (char& c : extension)
        if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    return extension;
}

void refuse_known_formats(const fs::path& file) {
    const std::string extension = lower_extension(file);
    for (const char* packed : {".gz", ".zst", ".bz2", ".xz", ".zip", ".lz4"})
        if (extension == packed)
            throw ConfigError("{}: compressed text ({}) is not built yet; decompress it first", file.string(),
                              extension);
    for (const char* other : {".parquet", ".arrow", ".h5", ".hdf5", ".npy", ".bin", ".pdf"})
        if (extension == other)
            throw ConfigError("{}: {} is no text; give plain text, JSON lines, or folders of these",
                              file.string(), extension);
}

bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// A place at or behind `from` where pieces end in all usual expressions: behind a line end before a letter,
// or else before a space between letters. All bytes around it are ASCII. npos where there is none nearby.
size_t cut_behind(std::string_view text, size_t from) {
    const size_t last = std::min(text.size(), from + cut_search);
    for (size_t at = from; at < last; ++at)
        if (text[at - 1] == '\n' && letter(text[at])) return at;
    for (size_t at = from; at + 1 < last; ++at)
        if (text[at] == ' ' && letter(text[at - 1]) && letter(text[at + 1])) return at;
    return std::string_view::npos;
}

size_t line_behind(std::string_view text, size_t from) {
    const size_t end = text.find('\n', from - 1);
    return end == std::string_view::npos ? end : end + 1;
}

void cut(std::string_view document, bool json_lines, const std::string& file,
         std::vector<Passage>& passages) {
    size_t begin = 0;
    // the last passage is at least half as long as the others
    for (size_t target = passage_bytes; target + passage_bytes / 2 < document.size();
         target += passage_bytes) {
        if (target <= begin) continue;
        const size_t at = json_lines ? line_behind(document, target) : cut_behind(document, target);
        if (at == std::string_view::npos || at == document.size()) continue;
        passages.push_back({document, begin, at, json_lines, &file});
        begin = at;
    }
    if (begin < document.size()) passages.push_back({document, begin, document.size(), json_lines, &file});
}

std::optional<JsonDocument> parsed(std::string_view text, const std::string& name) {
    try {
        return JsonDocument::parse(text, name);
    } catch (const ConfigError&) {
        return std::nullopt;
    }
}

std::string_view trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

}  // namespace

// Files in memory while their passages are in use. Deques keep addresses.
struct Corpus::Batch {
    std::deque<MappedFile> maps;
    std::deque<std::string> texts;  // repaired, or out of JSON
    std::vector<Passage> passages;
    int64_t replaced = 0;

    void add(const File& file) {
        maps.emplace_back(file.path);
        const auto bytes = maps.back().bytes();
        std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (text.substr(0, 4096).find('\0') != std::string_view::npos)
            throw ConfigError("{}: contains NUL bytes, so it is no text", file.path);
        if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
        if (valid_utf8_prefix(text) < text.size()) text = texts.emplace_back(repaired_utf8(text, replaced));
        if (file.kind != Kind::json) return cut(text, file.kind == Kind::json_lines, file.path, passages);
        // .json: lines of objects, one object over several lines, or one array of objects
        const std::string_view content = trimmed(text);
        const std::string_view first_line = content.substr(0, content.find('\n'));
        if (content.empty()) return;
        if (content[0] == '{' && parsed(first_line, file.path)) return cut(text, true, file.path, passages);
        const JsonDocument document = JsonDocument::parse(content, file.path);
        if (content[0] != '[') return add_text(document.root(), file);
        for (const JsonView& element : document.root().elements()) add_text(element, file);
    }

    void add_text(const JsonView& object, const File& file) {
        cut(texts.emplace_back(object.string("text")), false, file.path, passages);
    }
};

Corpus::Corpus(const std::vector<fs::path>& inputs) {
    const auto add = [&](const fs::path& file) {
        refuse_known_formats(file);
        const std::string extension = lower_extension(file);
        const Kind kind = extension == ".jsonl" || extension == ".ndjson" ? Kind::json_lines
                          : extension == ".json"                          ? Kind::json
                                                                          : Kind::text;
        files_.push_back({file.string(), int64_t(fs::file_size(file)), kind});
        bytes_ += files_.back().bytes;
    };
    std::vector<std::string> given;
    for (const fs::path& input : inputs) {
        given.push_back(input.string());
        if (!fs::is_directory(input)) {
            require_file(input.string());
            add(input);
            continue;
        }
        std::vector<fs::path> found;
        for (auto at = fs::recursive_directory_iterator(input); at != fs::end(at); ++at) {
            const bool hidden = at->path().filename().string().starts_with(".");
            if (hidden && at->is_directory()) at.disable_recursion_pending();
            if (!hidden && at->is_regular_file()) found.push_back(at->path());
        }
        // the order of a folder's entries differs between machines; that of names does not
        std::sort(found.begin(), found.end());
        for (const fs::path& file : found) add(file);
    }
    if (files_.empty()) throw ConfigError("{}: no files in there", join(given, ", "));
    if (bytes_ == 0) throw ConfigError("{}: empty, there is no text to read", join(given, ", "));
}

std::string Corpus::source() const {
    const std::string first = fs::path(files_[0].path).filename().string();
    return files_.size() == 1 ? first : fmt::format("{} and {} more", first, files_.size() - 1);
}

uint64_t Corpus::content_hash() const {
    Hasher hasher;
    for (const File& file : files_) {
        hasher.update(fmt::format("{} {}\n", int(file.kind), file.bytes));
        hasher.update(MappedFile(file.path).bytes());
    }
    return hasher.digest();
}

int64_t Corpus::read(const std::function<void(const std::vector<Passage>&)>& visit) const {
    int64_t replaced = 0;
    for (size_t next = 0; next < files_.size();) {
        Batch batch;
        for (int64_t bytes = 0, count = 0; next < files_.size() && count < batch_files; ++count) {
            bytes += files_[next].bytes;
            if (count > 0 && bytes > batch_bytes) break;
            batch.add(files_[next++]);
        }
        visit(batch.passages);
        replaced += batch.replaced;
    }
    return replaced;
}

void each_json_text(const Passage& passage, const std::function<void(std::string_view)>& visit) {
    for (size_t at = passage.begin; at < passage.end;) {
        const size_t end = std::min(passage.document.find('\n', at), passage.end);
        const std::string_view line = trimmed(passage.document.substr(at, end - at));
        if (!line.empty()) {
            const auto read = [&](const std::string& name) {
                const JsonDocument document = JsonDocument::parse(line, name);
                visit(document.root().string("text"));
            };
            try {
                read(*passage.file);
            } catch (const ConfigError&) {
                // the line's number is worth counting only now; the second time says it
                const auto before = passage.document.substr(0, at);
                read(fmt::format("{}: line {}", *passage.file,
                                 1 + std::count(before.begin(), before.end(), '\n')));
                throw;
            }
        }
        at = end + 1;
    }
}

}  // namespace coeus
