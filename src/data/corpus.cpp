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
#include "json_text.hpp"
#include "text_flaws.hpp"

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

void refuse_known_formats(const fs::path& file) {
    const std::string extension = lower_extension(file);
    for (const char* packed : {".bz2", ".xz", ".zip", ".lz4", ".7z", ".rar"})
        if (extension == packed)
            throw ConfigError("{}: {} is not supported, only .gz and .zst are; decompress it first",
                              file.string(), extension);
    for (const char* other : {".parquet", ".arrow", ".h5", ".hdf5", ".npy", ".bin", ".pdf", ".tar", ".tgz"})
        if (extension == other)
            throw ConfigError(
                "{}: {} is not supported; use plain text or JSON Lines, optionally .gz or .zst, or folders "
                "of them",
                file.string(), extension);
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
    Files packed, json_lines, other_objects;

    void tell() const {
        if (packed.count > 0)
            log::info("Notice: {} compressed, although the name does not say so: it is unpacked",
                      packed.are());
        if (json_lines.count > 0)
            log::info(
                "Notice: {} JSON Lines with a field \"text\", although the name does not end in .jsonl: each "
                "line is "
                "a document",
                json_lines.are());
        if (other_objects.count > 0)
            log::warn(
                "{} read as plain text, although the lines are JSON objects: they have no field \"text\"; if "
                "each "
                "line is a document, rename the field that contains the text to \"text\"",
                other_objects.are());
    }
};

// The first line of a file that begins with {, unpacked, and the beginning of the second; "" for other files,
// and for those that cannot be read, which is an error later.
std::string first_lines(const std::string& path) {
    constexpr size_t most = 1 << 20;
    std::string text, piece(64 << 10, '\0');
    try {
        const auto stream = open_stream(path);
        while (text.size() < most) {
            const size_t got = stream->read(piece.data(), piece.size());
            if (got == 0) break;
            text.append(piece, 0, got);
            if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
            if (!trimmed(text).starts_with("{")) return "";
            const size_t end = text.find('\n');
            if (end != std::string::npos && !trimmed(std::string_view(text).substr(end)).empty()) break;
        }
    } catch (const ConfigError&) {
        return "";
    }
    return text;
}

enum class Lines { none, of_text, of_others };

// Whether the first line, and the second one if there is one, are JSON objects.
Lines json_lines_in(std::string_view text, const std::string& name) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view first = trimmed(text.substr(0, end)), rest = trimmed(text.substr(end));
    if (!first.starts_with("{") || json_value_end(first, 0) != first.size()) return Lines::none;
    if (!rest.empty() && !rest.starts_with("{")) return Lines::none;
    try {
        json_text(first, name);
        return Lines::of_text;
    } catch (const ConfigError&) {
        // a single object may be any file of JSON
        return rest.empty() || !first.starts_with("{\"") ? Lines::none : Lines::of_others;
    }
}

Corpus::Kind kind_of(const fs::path& file, Surprises& found) {
    const bool named_packed = packing_of_name(file.string()) != Packing::none;
    const fs::path name = named_packed ? file.stem() : file;
    refuse_known_formats(name);
    if (const auto foreign = foreign_content(file.string()))
        throw ConfigError(
            "{}: is {}, which is not supported; use plain text or JSON Lines, optionally .gz or .zst, or "
            "folders of them",
            file.string(), foreign->name);
    if (!named_packed && packing_of(file.string()) != Packing::none) found.packed.add(file.string());
    const std::string extension = lower_extension(name);
    if (extension == ".jsonl" || extension == ".ndjson") return Corpus::Kind::json_lines;
    if (extension == ".json") return Corpus::Kind::json;
    switch (json_lines_in(first_lines(file.string()), file.string())) {
        case Lines::none: break;
        case Lines::of_text: found.json_lines.add(file.string()); return Corpus::Kind::json_lines;
        case Lines::of_others: found.other_objects.add(file.string()); break;
    }
    return Corpus::Kind::text;
}

// Adds files recursively, also through links, except hidden ones. Each folder is visited once, so that a link
// to a parent folder does no harm. Entries are sorted by name, since their own order differs between
// machines.
void add_files(const fs::path& folder, std::unordered_set<std::string>& visited,
               std::vector<fs::path>& found) {
    if (!visited.insert(fs::canonical(folder).string()).second) return;
    std::vector<fs::directory_entry> entries(fs::directory_iterator(folder), {});
    std::sort(entries.begin(), entries.end());
    for (const fs::directory_entry& entry : entries) {
        if (entry.path().filename().string().starts_with(".")) continue;
        if (entry.is_directory()) add_files(entry.path(), visited, found);
        if (entry.is_regular_file()) found.push_back(entry.path());
    }
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::unordered_set<std::string> visited;
    std::vector<fs::path> found;
    try {
        add_files(folder, visited, found);
    } catch (const fs::filesystem_error& error) {
        throw ConfigError("{}: this folder, or one inside it, cannot be listed: {}", folder.string(),
                          error.code().message());
    }
    return found;
}

bool matches_one(const fs::path& file, const std::vector<std::string>& patterns) {
    const std::string name = file.filename().string();
    return patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
               return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
           });
}

// True if a file of a folder is a picture, a program or the like: a NUL byte among its first bytes. Text in
// UTF-16 and UTF-32, and formats that were meant as data, are not: reading them says what to do.
bool is_binary(const fs::path& file) {
    if (packing_of(file.string()) != Packing::none || lower_extension(file) == ".tar") return false;
    if (const auto foreign = foreign_content(file.string()); foreign && foreign->holds_data) return false;
    std::string read(4096, '\0');
    read.resize(open_stream(file.string())->read(read.data(), read.size()));
    const size_t nul = read.find('\0');
    if (nul == std::string_view::npos || read.starts_with("\xFF\xFE") || read.starts_with("\xFE\xFF"))
        return false;
    // ASCII in UTF-16 has a NUL byte beside each of its first characters
    const auto every_second = [&](size_t first) {
        for (size_t i = 0; i < 16; ++i)
            if (i >= read.size() || (read[i] == '\0') != (i % 2 == first)) return false;
        return true;
    };
    return !every_second(0) && !every_second(1);
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

Corpus::Corpus(const std::vector<fs::path>& inputs, BadLines bad_lines,
               const std::vector<std::string>& include)
    : bad_lines_(bad_lines) {
    std::unordered_map<std::string, std::string> seen;  // canonical name: name that was given
    Surprises surprises;
    std::vector<std::string> repeated;
    const auto add = [&](const fs::path& file) {
        const auto [first, is_new] = seen.emplace(fs::canonical(file).string(), file.string());
        if (!is_new)
            return repeated.push_back(fmt::format("{} (the same file as {})", file.string(), first->second));
        files_.push_back({file.string(), int64_t(fs::file_size(file)), kind_of(file, surprises)});
        bytes_ += files_.back().bytes;
    };
    std::vector<std::string> given, skipped;
    for (const fs::path& input : inputs) {
        given.push_back(input.string());
        if (!is_folder_patiently(input)) {
            require_file(input.string());
            add(input);
            continue;
        }
        for (const fs::path& file : files_in(input)) {
            if (!matches_one(file, include)) continue;
            if (is_binary(file))
                skipped.push_back(file.string());
            else
                add(file);
        }
    }
    if (files_.empty())
        throw ConfigError("{}: contains no files{}{}", join(given, ", "),
                          include.empty() ? "" : " that match " + join(include, ", "),
                          skipped.empty() ? "" : fmt::format(" of text, but {} other files", skipped.size()));
    if (const size_t count = skipped.size(); count > 0) {
        constexpr size_t most_names = 5;
        skipped.resize(std::min(count, most_names));
        log::warn("skipped {}, not text by the first bytes: {}{}",
                  count == 1 ? "a file" : fmt::format("{} files", with_commas(int64_t(count))),
                  join(skipped, ", "), count > most_names ? ", ..." : "");
    }
    if (bytes_ == 0) throw ConfigError("{}: is empty, there is no text to read", join(given, ", "));
    surprises.tell();
    if (!repeated.empty())
        log::warn(
            "{} given more than once, but read only once: {}{}; to train on a source more often, use "
            "training.dataset_weights",
            repeated.size() == 1 ? "a file is"
                                 : fmt::format("{} files are", with_commas(int64_t(repeated.size()))),
            repeated[0], repeated.size() == 1 ? "" : ", ...");
}

std::string Corpus::source() const {
    const std::string first = fs::path(files_[0].path).filename().string();
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
    if (bad_lines_ == BadLines::skip) hasher.update(std::string_view("without bad lines"));
    return hasher.digest();
}

CorpusReport Corpus::read_blocks(const std::function<void(const Block&)>& visit,
                                 const Options& options) const {
    BlockReader reader(files_, bad_lines_, options);
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
    int64_t number = passage.number;
    for (size_t at = passage.begin; at < passage.end; ++number) {
        const size_t end = std::min(passage.document.find('\n', at), passage.end);
        const std::string_view line = trimmed(passage.document.substr(at, end - at));
        at = end + 1;
        if (line.empty()) continue;
        const auto read = [&](const std::string& name) {
            if (int64_t(line.size()) > longest_json) throw ConfigError("{}", too_long(name));
            return json_text(line, name);
        };
        JsonText found;
        try {
            found = read(*passage.file);
        } catch (const ConfigError&) {
            // read it again, for a message that names the place
            try {
                read(passage.elements ? fmt::format("{}: [{}]", *passage.file, number)
                                      : fmt::format("{}: line {}", *passage.file, number));
                throw;
            } catch (const ConfigError& error) {
                if (passage.bad_lines == BadLines::stop)
                    throw ConfigError(
                        "{}. With bad_lines = \"skip\" (in a deck, training.bad_lines) such {} are left out",
                        error.what(), passage.elements ? "elements" : "lines");
                flaws.add({.bad_lines = 1, .first_bad = error.what()});
                continue;
            }
        }
        flaws.lone_surrogates += found.lone_surrogates;
        visit(found.text);
    }
    return flaws;
}

}  // namespace coeus
