// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/corpus.hpp"

#include "block_reader.hpp"
#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/byte_stream.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/raw_file.hpp"
#include "json_form.hpp"
#include "json_text.hpp"
#include "parquet.hpp"
#include "text_flaws.hpp"
#include "text_stream.hpp"

#include <algorithm>
#include <fnmatch.h>
#include <future>
#include <unordered_map>
#include <unordered_set>

namespace coeus {

namespace fs = std::filesystem;

namespace {

std::string lower_extension(const fs::path& file) {
    std::string extension = file.extension().string();
    for (char& c : extension)
        if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
    return extension;
}

// Why a file cannot be read, by its name or its first bytes; "" if they say nothing.
std::string unsupported_format(const fs::path& file) {
    constexpr const char* supported =
        "use plain text or JSON Lines, optionally .gz or .zst, or folders of them";
    const bool named_packed = packing_of_name(file.string()) != Packing::none;
    const std::string extension = lower_extension(named_packed ? file.stem() : file);
    for (const char* packed : {".bz2", ".xz", ".zip", ".lz4", ".7z", ".rar"})
        if (extension == packed)
            return fmt::format("{} is not supported, only .gz and .zst are; decompress it first", extension);
    for (const char* other : {".arrow", ".h5", ".hdf5", ".npy", ".bin", ".pdf", ".tar", ".tgz"})
        if (extension == other) return fmt::format("{} is not supported; {}", extension, supported);
    if (is_parquet(file.string())) {
        if (!reads_parquet()) return "is a Parquet file, and this program was built without Arrow";
        return "";
    }
    if (extension == ".parquet") return "does not begin as Parquet files do";
    if (const auto content = foreign_content(file.string()))
        return fmt::format("is {}, which is not supported; {}", *content, supported);
    return "";
}

std::string_view trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

// Files of which the same was found.
struct Files {
    int64_t count = 0;
    std::string first;

    void add(const std::string& file) {
        if (count++ == 0) first = file;
    }
    // "a.txt is", "a.txt and 2 other files are"
    std::string are() const {
        return count == 1 ? first + " is"
                          : fmt::format("{} and {} are", first, counted(count - 1, "other file"));
    }
};

// What was found in the content of files that their names do not say.
struct Surprises {
    Files packed, unpacked, json, json_lines, other_objects;

    void tell(const std::string& field) const {
        if (packed.count > 0)
            log::info("Notice: {} compressed, although the name does not say so: it is unpacked",
                      packed.are());
        if (unpacked.count > 0)
            log::info("Notice: {} not compressed, although the name says so: {} read as it is",
                      unpacked.are(), unpacked.count == 1 ? "it is" : "each is");
        if (json.count > 0)
            log::info(
                "Notice: {} JSON with a field \"{}\", although the name does not end in .json: each object "
                "is a "
                "document",
                json.are(), field);
        if (json_lines.count > 0)
            log::info(
                "Notice: {} JSON Lines with a field \"{}\", although the name does not end in .jsonl: each "
                "line "
                "is a document",
                json_lines.are(), field);
        if (other_objects.count > 0)
            log::warn(
                "{} read as plain text, although the first lines are JSON objects: they have no field "
                "\"{}\"; if "
                "each line is a document, --field NAME (in a deck, training.text_field) names the field with "
                "the text",
                other_objects.are(), field);
    }
};

// The form of the content, unpacked. None for files that cannot be read, which is an error later.
JsonForm json_form_of(const std::string& path, const std::string& field) {
    constexpr size_t most = 1 << 20, most_line = size_t(longest_json);
    std::string text, piece(64 << 10, '\0');
    bool whole = false, has_line = false;
    try {
        const auto stream = open_stream(path);
        // a line of an object is read to its end
        while (!whole && (text.size() < most || (!has_line && text.size() <= most_line))) {
            const size_t got = stream->read(piece.data(), piece.size());
            text.append(piece, 0, got);
            whole = got == 0;
            if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
            const std::string_view begin = trimmed(text);
            const bool object = begin.starts_with("{");
            if (!object && !begin.starts_with("[")) return JsonForm::none;
            has_line = has_line || !object || text.find('\n', text.size() - got) != text.npos;
        }
    } catch (const ConfigError&) {
        return JsonForm::none;
    }
    if (!has_line && text.size() > most_line) throw ConfigError("{}: line 1 {}", path, too_long());
    return json_form(text, whole, field);
}

Corpus::Kind kind_of(const fs::path& file, const std::string& field, Surprises& found) {
    if (is_parquet(file.string())) return Corpus::Kind::parquet;
    const bool named_packed = packing_of_name(file.string()) != Packing::none;
    const fs::path name = named_packed ? file.stem() : file;
    const bool packed = packing_of(file.string()) != Packing::none;
    if (packed && !named_packed) found.packed.add(file.string());
    if (named_packed && !packed) found.unpacked.add(file.string());
    const std::string extension = lower_extension(name);
    if (extension == ".jsonl" || extension == ".ndjson") return Corpus::Kind::json_lines;
    if (extension == ".json") return Corpus::Kind::json;
    switch (json_form_of(file.string(), field)) {
        case JsonForm::none: break;
        case JsonForm::lines: found.json_lines.add(file.string()); return Corpus::Kind::json_lines;
        case JsonForm::other_lines: found.other_objects.add(file.string()); break;
        case JsonForm::value: found.json.add(file.string()); return Corpus::Kind::json;
    }
    return Corpus::Kind::text;
}

// Adds files recursively, also through links, except hidden ones. Each folder is visited once, so that a link
// to a parent folder does no harm. Entries are sorted by name, since their own order differs between
// machines.
void add_files(const fs::path& folder, std::unordered_set<std::string>& visited,
               std::vector<fs::path>& found) {
    std::error_code failed;
    const fs::path real = real_path_patiently(folder, failed);
    if (!failed && !visited.insert(real.string()).second) return;
    std::vector<fs::path> entries;
    if (!failed) entries = entries_patiently(folder, failed);
    if (failed) throw ConfigError("{} cannot be listed: {}", folder.string(), failed.message());
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries) {
        if (entry.filename().string().starts_with(".")) continue;
        const fs::file_type type = status_patiently(entry, failed).type();
        if (type == fs::file_type::none)
            throw ConfigError("{} cannot be listed: {}", entry.string(), failed.message());
        if (type == fs::file_type::directory) add_files(entry, visited, found);
        if (type == fs::file_type::regular) found.push_back(entry);
    }
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::unordered_set<std::string> visited;
    std::vector<fs::path> found;
    add_files(folder, visited, found);
    return found;
}

bool matches_one(const fs::path& file, const std::vector<std::string>& patterns) {
    const std::string name = file.filename().string();
    return patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
               return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
           });
}

// True if a file of a folder is a picture, a program or the like: a NUL byte among its first bytes. Text in
// UTF-16 and UTF-32 is not: reading it says what to do.
bool is_binary(const fs::path& file) {
    if (packing_of(file.string()) != Packing::none) return false;
    std::string begin(4096, '\0');
    begin.resize(open_stream(file.string())->read(begin.data(), begin.size()));
    return begin.find('\0') != std::string::npos && !wide_encoding(begin);
}

}  // namespace

void CorpusReport::add(const std::string& file, const TextFlaws& flaws, int64_t ignored) {
    if (ignored > 0 && ignored_bytes == 0) first_ignored = file;
    ignored_bytes += ignored;
    const int64_t count = flaws.replaced() + flaws.nuls();
    replaced += flaws.replaced();
    nuls += flaws.nuls();
    flawed_files += count > 0;
    if (count <= worst_flaws) return;
    worst_file = file;
    worst_flaws = count;
    worst_place = flaws.place();
}

BadLines bad_lines_of(std::string_view text) {
    require(text == "stop" || text == "skip", "bad_lines is stop or skip");
    return text == "skip" ? BadLines::skip : BadLines::stop;
}

void JsonFlaws::add(const JsonFlaws& later) {
    lone_surrogates += later.lone_surrogates;
    bad_lines += later.bad_lines;
    if (first_bad.empty()) first_bad = later.first_bad;
}

std::vector<std::string> CorpusReport::warnings() const {
    std::vector<std::string> all;
    if (flawed_files > 0) all.push_back(text_warning());
    if (ignored_bytes > 0)
        all.push_back(fmt::format("{} after the last gzip member were left out, the first in {}",
                                  counted(ignored_bytes, "byte"), first_ignored));
    if (json.lone_surrogates > 0)
        all.push_back(fmt::format(
            "{} became U+FFFD", counted(json.lone_surrogates, "escape of half a character, such as \\ud83d,",
                                        "escapes of half a character, such as \\ud83d,")));
    if (json.bad_lines > 0)
        all.push_back(fmt::format(
            "{} left out. The first: {}",
            counted(json.bad_lines, "line without a usable text was", "lines without a usable text were"),
            json.first_bad));
    return all;
}

std::string CorpusReport::text_warning() const {
    std::vector<std::string> found;
    if (replaced > 0)
        found.push_back(fmt::format("{} invalid bytes or sequences became U+FFFD", with_commas(replaced)));
    if (nuls > 0) found.push_back(fmt::format("{} NUL bytes were kept", with_commas(nuls)));
    const std::string text = join(found, " and ");
    if (flawed_files == 1) return fmt::format("{}: {} is not UTF-8{}", text, worst_file, worst_place);
    return fmt::format("{}: {} files are not UTF-8; the worst is {} ({}){}", text, with_commas(flawed_files),
                       worst_file, with_commas(worst_flaws), worst_place);
}

namespace {

void tell_skipped(std::vector<std::string> files) {
    const size_t count = files.size();
    if (count == 0) return;
    constexpr size_t most_names = 5;
    files.resize(std::min(count, most_names));
    log::warn("skipped {}, not text by the name or the first bytes: {}{}",
              count == 1 ? "a file" : fmt::format("{} files", with_commas(int64_t(count))), join(files, ", "),
              count > most_names ? ", ..." : "");
}

void tell_repeated(const std::vector<std::string>& files) {
    if (files.empty()) return;
    log::warn(
        "{} given more than once, but read only once: {}{}; to train on a source more often, use "
        "training.dataset_weights",
        files.size() == 1 ? "a file is" : fmt::format("{} files are", with_commas(int64_t(files.size()))),
        files[0], files.size() == 1 ? "" : ", ...");
}

}  // namespace

Corpus::Corpus(const std::vector<fs::path>& inputs, BadLines bad_lines,
               const std::vector<std::string>& include, std::string field)
    : objects_{bad_lines, std::move(field)} {
    std::unordered_map<std::string, std::string> seen;  // canonical name: name that was given
    Surprises surprises;
    std::vector<std::string> repeated;
    const auto add = [&](const fs::path& file) {
        std::error_code failed;
        const fs::path real = real_path_patiently(file, failed);
        if (failed) throw ConfigError("{} cannot be read: {}", file.string(), failed.message());
        const auto [first, is_new] = seen.emplace(real.string(), file.string());
        if (!is_new)
            return repeated.push_back(fmt::format("{} (the same file as {})", file.string(), first->second));
        files_.push_back(
            {file.string(), size_patiently(file), kind_of(file, objects_.field, surprises), file.string()});
        bytes_ += files_.back().bytes;
    };
    std::vector<std::string> given, skipped;
    std::string first_format;  // of the files that were skipped
    for (const fs::path& input : inputs) {
        given.push_back(input.string());
        if (!is_folder_patiently(input)) {
            require_file(input.string());
            if (is_parquet(input.string()))
                open_parquet(input.string(), objects_.field);  // an error comes before work
            if (const std::string why = unsupported_format(input); !why.empty())
                throw ConfigError("{}: {}", input.string(), why);
            add(input);
            continue;
        }
        for (const fs::path& file : files_in(input)) {
            if (!matches_one(file, include)) continue;
            const std::string why = unsupported_format(file);
            if (why.empty() && !is_binary(file)) {
                add(file);
                continue;
            }
            skipped.push_back(file.string());
            if (first_format.empty() && !why.empty())
                first_format = fmt::format("; {}: {}", file.string(), why);
        }
    }
    if (files_.empty())
        throw ConfigError("{}: contains no files{}{}", join(given, ", "),
                          include.empty() ? "" : " that match " + join(include, ", "),
                          skipped.empty()
                              ? ""
                              : fmt::format(" of text, but {}{}",
                                            counted(int64_t(skipped.size()), "other file"), first_format));
    tell_skipped(skipped);
    if (bytes_ == 0) throw ConfigError("{}: is empty, there is no text to read", join(given, ", "));
    surprises.tell(objects_.field);
    tell_repeated(repeated);
}

Corpus::Corpus(const fs::path& file, const std::string& name, Kind kind, BadLines bad_lines,
               std::string field)
    : files_{{file.string(), size_patiently(file), kind, name}}, objects_{bad_lines, std::move(field)} {
    bytes_ = files_[0].bytes;
    if (const auto content = foreign_content(file.string()))
        throw ConfigError("{}: is {}, which is not supported; use plain text or JSON Lines", name, *content);
    if (bytes_ == 0) throw ConfigError("{}: is empty, there is no text to read", name);
}

std::vector<std::string> Corpus::paths() const {
    std::vector<std::string> paths;
    for (const File& file : files_) paths.push_back(file.path);
    return paths;
}

std::string Corpus::source() const {
    const std::string first = fs::path(files_[0].name).filename().string();
    return files_.size() == 1 ? first : fmt::format("{} and {} more", first, files_.size() - 1);
}

uint64_t Corpus::content_hash() const {
    Hasher hasher;
    for (const File& file : files_) {
        hasher.update(fmt::format("{} {}\n", int(file.kind), file.bytes));
        // not mapped: a page that a network file system cannot read would end the program by SIGBUS
        const RawFile opened = RawFile::open(file.path);
        std::vector<std::byte> piece(size_t(std::min<int64_t>(file.bytes, 1 << 20)));
        for (int64_t at = 0; at < file.bytes; at += int64_t(piece.size())) {
            piece.resize(size_t(std::min(int64_t(piece.size()), file.bytes - at)));
            opened.read_small(piece.data(), int64_t(piece.size()), at);
            hasher.update(std::span<const std::byte>(piece));
        }
    }
    // nothing is added otherwise, so that earlier token files stay up to date
    if (objects_.bad_lines == BadLines::skip) hasher.update(std::string_view("without bad lines"));
    if (objects_.field != "text") hasher.update("field " + objects_.field);
    return hasher.digest();
}

CorpusReport Corpus::read_blocks(const std::function<void(const Block&)>& visit,
                                 const Options& options) const {
    BlockReader reader(files_, objects_, options);
    const auto read_ahead = [&] { return std::async(std::launch::async, [&] { return reader.next(); }); };
    auto ahead = read_ahead();
    while (const auto block = ahead.get()) {
        ahead = read_ahead();
        visit({block->passages, block->next, block->report, block->file_bytes});
    }
    return reader.report();
}

CorpusReport Corpus::read(const std::function<void(const std::vector<Passage>&)>& visit) const {
    return read_blocks([&](const Block& block) { visit(block.passages); }, {});
}

JsonFlaws each_json_text(const Passage& passage, const std::function<void(std::string_view)>& visit) {
    JsonFlaws flaws;
    const std::string field = passage.field ? *passage.field : "text";
    int64_t number = passage.number;
    for (size_t at = passage.begin; at < passage.end; ++number) {
        const size_t end = std::min(passage.document.find('\n', at), passage.end);
        const std::string_view line = trimmed(passage.document.substr(at, end - at));
        at = end + 1;
        if (line.empty()) continue;
        const JsonText found =
            int64_t(line.size()) > longest_json ? JsonText{.flaw = too_long()} : json_text(line, field);
        if (!found.flaw.empty()) {
            const std::string flaw = fmt::format(
                "{}: {}: {}", *passage.file,
                passage.elements ? fmt::format("[{}]", number) : fmt::format("line {}", number), found.flaw);
            if (passage.bad_lines == BadLines::stop)
                throw ConfigError("{}. {}", flaw, how_to_skip(passage.elements ? "elements" : "lines"));
            flaws.add({.bad_lines = 1, .first_bad = flaw});
            continue;
        }
        flaws.lone_surrogates += found.lone_surrogates;
        visit(found.text);
    }
    return flaws;
}

}  // namespace coeus
