// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/corpus.hpp"

#include "block_reader.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"
#include "text_flaws.hpp"

#include <algorithm>
#include <array>
#include <fnmatch.h>
#include <fstream>
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

Corpus::Kind kind_of(fs::path file) {
    if (packing_of(file.string()) != Packing::none) file = file.stem();
    refuse_known_formats(file);
    const std::string extension = lower_extension(file);
    if (extension == ".jsonl" || extension == ".ndjson") return Corpus::Kind::json_lines;
    return extension == ".json" ? Corpus::Kind::json : Corpus::Kind::text;
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
    const std::string extension = lower_extension(file);
    for (const char* data : {".gz", ".zst", ".bz2", ".xz", ".zip", ".lz4", ".7z", ".rar", ".tar", ".tgz",
                             ".parquet", ".arrow", ".h5", ".hdf5"})
        if (extension == data) return false;
    std::array<char, 4096> begin = {};
    std::ifstream in(file, std::ios::binary);
    in.read(begin.data(), std::streamsize(begin.size()));
    const std::string_view read(begin.data(), size_t(std::max<std::streamsize>(0, in.gcount())));
    // packed data by its first bytes: its reader unpacks or refuses it
    for (const std::string_view packed : {"\x1f\x8b", "\x28\xb5\x2f\xfd", "PK\x03\x04", "BZh", "PAR1",
                                          "\xfd"
                                          "7zXZ"})
        if (read.starts_with(packed)) return false;
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

std::string_view trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

}  // namespace

void CorpusReport::add(const std::string& file, const TextFlaws& flaws) {
    const int64_t count = flaws.replaced() + flaws.nuls();
    replaced += flaws.replaced();
    nuls += flaws.nuls();
    flawed_files += count > 0;
    if (count <= worst_flaws) return;
    worst_file = file;
    worst_flaws = count;
    worst_place = flaws.place();
}

std::string CorpusReport::warning() const {
    if (flawed_files == 0) return "";
    std::vector<std::string> found;
    if (replaced > 0)
        found.push_back(fmt::format("{} invalid bytes or sequences became U+FFFD", with_commas(replaced)));
    if (nuls > 0) found.push_back(fmt::format("{} NUL bytes were kept", with_commas(nuls)));
    const std::string text = join(found, " and ");
    if (flawed_files == 1) return fmt::format("{}: {} is not UTF-8{}", text, worst_file, worst_place);
    return fmt::format("{}: {} files are not UTF-8; the worst is {} ({}){}", text, with_commas(flawed_files),
                       worst_file, with_commas(worst_flaws), worst_place);
}

Corpus::Corpus(const std::vector<fs::path>& inputs, const std::vector<std::string>& include) {
    std::unordered_map<std::string, std::string> seen;  // canonical name: name that was given
    std::vector<std::string> repeated;
    const auto add = [&](const fs::path& file) {
        const auto [first, is_new] = seen.emplace(fs::canonical(file).string(), file.string());
        if (!is_new)
            return repeated.push_back(fmt::format("{} (the same file as {})", file.string(), first->second));
        files_.push_back({file.string(), int64_t(fs::file_size(file)), kind_of(file)});
        bytes_ += files_.back().bytes;
    };
    std::vector<std::string> given, skipped;
    for (const fs::path& input : inputs) {
        given.push_back(input.string());
        if (!fs::is_directory(input)) {
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
        hasher.update(MappedFile(file.path).bytes());
    }
    return hasher.digest();
}

CorpusReport Corpus::read_blocks(const std::function<void(const Block&)>& visit,
                                 const Options& options) const {
    BlockReader reader(files_, options);
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

void each_json_text(const Passage& passage, const std::function<void(std::string_view)>& visit) {
    int64_t number = passage.number;
    for (size_t at = passage.begin; at < passage.end; ++number) {
        const size_t end = std::min(passage.document.find('\n', at), passage.end);
        const std::string_view line = trimmed(passage.document.substr(at, end - at));
        at = end + 1;
        if (line.empty()) continue;
        const auto read = [&](const std::string& name) {
            if (int64_t(line.size()) > longest_json) throw ConfigError("{}", too_long(name));
            const JsonDocument document = JsonDocument::parse(line, name);
            visit(text_of(document));
        };
        try {
            read(*passage.file);
        } catch (const ConfigError&) {
            // parse it again, for a message that names the place
            read(passage.elements ? fmt::format("{}: [{}]", *passage.file, number)
                                  : fmt::format("{}: line {}", *passage.file, number));
            throw;
        }
    }
}

}  // namespace coeus
