// SPDX-License-Identifier: Apache-2.0
// Which kind of file or folder a path is. Its content, not its name, determines it.
#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/encoded_file.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/file/hub_name.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/hub/hub.hpp"
#include "coeus/info/kinds.hpp"
#include "coeus/io/checkpoint.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

namespace coeus::info {

namespace {

namespace fs = std::filesystem;

// Returns an exit code.
using Show = int (*)(const std::string& path, const Options& options);

// Shows a kind that is not judged.
template <void (*show)(const std::string& path, const Options& options)>
int shown(const std::string& path, const Options& options) {
    show(path, options);
    return 0;
}

constexpr const char* known =
    "coeus info shows checkpoints, token files, encoded images, tokenizers, decks, safetensors files, "
    "Hugging Face folders and run folders";

// The first bytes of a file, at most `most`.
std::string beginning(const std::string& path, size_t most) {
    const RawFile file = RawFile::open(path);
    std::string bytes(std::min(most, size_t(file.size())), '\0');
    file.read(bytes.data(), int64_t(bytes.size()), 0);
    return bytes;
}

bool begins_as_safetensors(const std::string& head) {
    uint64_t length = 0;
    if (head.size() >= 8) std::memcpy(&length, head.data(), 8);
    return length >= 2 && length < uint64_t(1) << 40 && head.size() > 8 && head[8] == '{';
}

// True for a protobuf whose first field is a message whose first field is a string: SentencePiece's first
// token.
bool begins_as_sentencepiece(const std::string& head) {
    return head.size() > 4 && head[0] == '\n' && head[2] == '\n' && uint8_t(head[1]) > uint8_t(head[3]);
}

bool is_text(const std::string& head) {
    return std::none_of(head.begin(), head.end(), [](char c) {
        return uint8_t(c) < 32 && c != '\n' && c != '\r' && c != '\t' && c != '\f';
    });
}

// The first line that is neither empty nor a comment.
std::string first_line(const std::string& head) {
    for (size_t begin = 0; begin < head.size();) {
        const size_t end = std::min(head.find('\n', begin), head.size());
        std::string line = head.substr(begin, end - begin);
        line.erase(0, line.find_first_not_of(" \t\r"));
        line.erase(line.find_last_not_of(" \t\r") + 1);
        if (!line.empty() && line[0] != '#') return line;
        begin = end + 1;
    }
    return "";
}

// "[section]", or "key = value" with a key of letters, digits, dots and underscores
bool looks_like_toml(const std::string& line) {
    if (line.starts_with('[')) return line.find(']') != std::string::npos;
    const size_t equals = line.find('=');
    if (equals == std::string::npos || equals == 0) return false;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", equals - 1) + 1);
    return std::all_of(key.begin(), key.end(),
                       [](char c) { return std::isalnum(uint8_t(c)) || c == '_' || c == '.'; });
}

// True for a line of a tiktoken file: a token in base64 and its rank.
bool looks_like_tiktoken(const std::string& line) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size()) return false;
    const auto base64 = [](char c) { return std::isalnum(uint8_t(c)) || c == '+' || c == '/' || c == '='; };
    return std::all_of(line.begin(), line.begin() + long(space), base64) &&
           std::all_of(line.begin() + long(space) + 1, line.end(),
                       [](char c) { return std::isdigit(uint8_t(c)); });
}

Show kind_of_hdf5(const std::string& path) {
    require_sound_layout(path);
    if (is_encoded_file(path)) return shown<show_encoded_file>;
    const hdf5::File file = hdf5::File::open(path);
    if (file.has_attribute("format")) return shown<show_checkpoint>;
    if (file.has("tokens")) return shown<show_token_file>;
    throw ConfigError(
        "{} is an HDF5 file, but neither a checkpoint nor a token file nor encoded images: it contains {}",
        path, file.names().empty() ? "nothing" : join(file.names(), ", "));
}

std::string keys_of(const Json::Object& object) {
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min<size_t>(6, object.size()); ++i) names.push_back(object[i].first);
    if (object.size() > names.size()) names.push_back("...");
    return names.empty() ? "no keys" : "the keys " + join(names, ", ");
}

// vocab.json and merges.txt together are one tokenizer.
bool has_vocab_and_merges(const fs::path& folder) {
    return exists_patiently(folder / "vocab.json") && exists_patiently(folder / "merges.txt");
}

void show_vocab_and_merges(const std::string& either, const Options& options) {
    show_tokenizer((fs::path(either).parent_path() / "vocab.json").string(), options);
}

// The first object of JSON Lines, if the text has more than one.
std::optional<JsonDocument> first_of_json_lines(std::string_view text, const std::string& path) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t behind = text.find_first_not_of(" \t\r\n", line.size());
    if (behind == std::string_view::npos || text[behind] != '{') return {};
    try {
        return JsonDocument::parse(line, path);
    } catch (const ConfigError&) {
        return {};  // one object in several lines
    }
}

Show kind_of_json(const std::string& path) {
    const MappedFile map(path);
    const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
    if (const auto first = first_of_json_lines(text, path))
        throw ConfigError("{} is a JSON Lines file whose first object has {}; {}", path,
                          keys_of(*first->root().value().as_object()), known);
    const JsonDocument document = JsonDocument::parse(text, path);
    const JsonView view = document.root();
    const Json& root = view.value();
    const Json::Object* object = root.as_object();
    if (root.find("weight_map")) return shown<show_safetensors>;
    if (root.find("architectures"))
        return [](const std::string& file, const Options& options) {
            const fs::path folder = fs::path(file).parent_path();
            return shown<show_hub_folder>(folder.empty() ? "." : folder.string(), options);
        };
    if (const Json* model = root.find("model"); model && model->as_object()) return shown<show_tokenizer>;
    const bool is_vocabulary =
        object && !object->empty() && std::all_of(object->begin(), object->end(), [](const auto& item) {
            return item.second.as_integer() != nullptr;
        });
    if (is_vocabulary && has_vocab_and_merges(fs::path(path).parent_path()))
        return shown<show_vocab_and_merges>;
    throw ConfigError("{} is JSON with {}; {}", path, object ? keys_of(*object) : "no object", known);
}

Show kind_of_file(const std::string& path) {
    const std::string head = beginning(path, 4096);
    const auto begins = [&](const char* magic, size_t size) {
        return head.starts_with(std::string_view(magic, size));
    };
    if (head.empty()) throw ConfigError("{} is empty", path);
    if (begins("\x89HDF\r\n\x1a\n", 8)) return kind_of_hdf5(path);
    if (begins_as_safetensors(head)) return shown<show_safetensors>;
    if (begins("\x1f\x8b", 2) || begins("\x28\xb5\x2f\xfd", 4))
        throw ConfigError("{} is compressed ({}): decompress it first; {}", path,
                          head[0] == '\x1f' ? "gzip" : "zstd", known);
    if (begins_as_sentencepiece(head)) return shown<show_tokenizer>;
    if (!is_text(head)) {
        std::string bytes;
        for (size_t i = 0; i < std::min<size_t>(8, head.size()); ++i)
            bytes += fmt::format("{}{:02x}", i ? " " : "", uint8_t(head[i]));
        throw ConfigError("{} is a file of an unknown kind: it begins with the bytes {}; {}", path, bytes,
                          known);
    }
    const std::string line = first_line(head);
    if (line.starts_with('{')) return kind_of_json(path);
    if (head.starts_with("#version") && has_vocab_and_merges(fs::path(path).parent_path()))
        return shown<show_vocab_and_merges>;
    if (looks_like_tiktoken(line)) return shown<show_tokenizer>;
    if (looks_like_toml(line)) return show_deck;
    throw ConfigError("{} is a text file that begins with \"{}\"; {}", path, line.substr(0, 40), known);
}

bool has_weights(const fs::path& folder, const char* extension) {
    std::error_code ignored;
    for (const fs::path& file : entries_patiently(folder, ignored)) {
        const std::string name = file.filename().string();
        const bool named = name.starts_with("step-") || name.starts_with("model");
        if (named && file.extension() == extension) return true;
    }
    return false;
}

// Subfolders count too, since a run's checkpoints are one level below its folder.
bool has_checkpoints(const fs::path& folder) {
    if (has_weights(folder, ".h5")) return true;
    std::error_code ignored;
    for (const fs::path& entry : entries_patiently(folder, ignored))
        if (is_folder_patiently(entry) && has_weights(entry, ".h5")) return true;
    return false;
}

std::string names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const fs::path& entry : entries_patiently(folder)) names.push_back(entry.filename().string());
    std::sort(names.begin(), names.end());
    if (names.size() > 8) names.resize(8), names.emplace_back("...");
    return names.empty() ? "nothing" : join(names, ", ");
}

Show kind_of_folder(const std::string& path) {
    const fs::path folder = path;
    if (is_hub_folder(path)) return shown<show_hub_folder>;
    if (exists_patiently(folder / "deck.toml")) return shown<show_run_folder>;
    if (exists_patiently(folder / "model.safetensors") ||
        exists_patiently(folder / "model.safetensors.index.json"))
        return shown<show_safetensors>;
    if (Tokenizer::is_at(folder)) return shown<show_tokenizer>;
    if (has_checkpoints(folder))
        return [](const std::string& of, const Options& options) {
            return shown<show_checkpoint>(newest_weights(of), options);
        };
    throw ConfigError("{} is a folder that contains {}; {}", path, names_in(folder), known);
}

// True for a token file of another program, and for the common part of the names of a Megatron-LM pair.
bool is_other_token_file(const fs::path& path) {
    return !is_folder_patiently(path) && leads_to_tokens(path) && path.extension() != ".h5" &&
           !is_token_file(path);
}

}  // namespace

int show(const std::string& path, const Options& options) {
    if (!is_other_token_file(path) && !leads_somewhere(path))
        throw ConfigError("{}: this file or folder does not exist{}", path, download_hint(path));
    const Show kind = is_other_token_file(path)   ? shown<show_token_file>
                      : is_folder_patiently(path) ? kind_of_folder(path)
                                                  : kind_of_file(path);
    if (kind != show_deck && (options.model || options.ranks > 0))
        throw ConfigError("coeus info --{}: is for decks, but {} is not a deck{}",
                          options.model ? "model" : "ranks", path,
                          kind == shown<show_run_folder>
                              ? "; the deck of this run is " + (fs::path(path) / "deck.toml").string()
                              : "");
    return kind(path, options);
}

std::string file_size(const std::string& path) {
    return bytes_text(double(size_patiently(path)));
}

}  // namespace coeus::info
