// SPDX-License-Identifier: Apache-2.0
#include "token_formats.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"
#include "elements.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <vector>

namespace coeus {

namespace fs = std::filesystem;

namespace {

using namespace std::string_view_literals;

std::string beginning_of(const RawFile& file, int64_t most) {
    std::string bytes(size_t(std::min(most, file.size())), '\0');
    file.read_small(bytes.data(), int64_t(bytes.size()), 0);
    return bytes;
}

std::string beginning_of(const fs::path& path, int64_t most) {
    std::error_code failed;
    if (status_patiently(path, failed).type() != fs::file_type::regular) return "";
    return beginning_of(RawFile::open(path.string()), most);
}

bool is_there(const fs::path& path) {
    std::error_code failed;
    return status_patiently(path, failed).type() == fs::file_type::regular;
}

template <class T>
T number_at(std::string_view bytes, size_t at) {
    return load<T>(reinterpret_cast<const std::byte*>(bytes.data()) + at);
}

constexpr std::string_view megatron_magic = "MMIDIDX\0\0"sv;
constexpr int64_t megatron_header = 34;

struct MegatronType {
    const char* name;
    int64_t width;
    bool is_read;
};
// by its number
constexpr std::array<MegatronType, 9> megatron_types = {{{"none", 0, false},
                                                         {"uint8", 1, false},
                                                         {"int8", 1, false},
                                                         {"int16", 2, false},
                                                         {"int32", 4, true},
                                                         {"int64", 8, false},
                                                         {"float64", 8, false},
                                                         {"float32", 4, false},
                                                         {"uint16", 2, true}}};

// Reads an array of an index in pieces.
template <class T>
class Numbers {
public:
    Numbers(const RawFile& file, int64_t offset, int64_t count)
        : file_(&file), offset_(offset), count_(count) {}

    T operator[](int64_t i) {
        if (i < first_ || i >= first_ + int64_t(piece_.size())) {
            first_ = i;
            piece_.resize(size_t(std::min<int64_t>(count_ - i, 1 << 16)));
            file_->read_small(piece_.data(), int64_t(piece_.size() * sizeof(T)),
                              offset_ + i * int64_t(sizeof(T)));
        }
        return piece_[size_t(i - first_)];
    }

private:
    const RawFile* file_;
    int64_t offset_, count_, first_ = 0;
    std::vector<T> piece_;
};

// How many bytes the sequences have, of which each begins where the one before ends.
int64_t bytes_of_sequences(const RawFile& index, int64_t sequences, int64_t width) {
    Numbers<int32_t> lengths(index, megatron_header, sequences);
    Numbers<int64_t> offsets(index, megatron_header + sequences * 4, sequences);
    int64_t end = 0;
    for (int64_t s = 0; s < sequences; ++s) {
        if (lengths[s] < 0)
            throw ConfigError("{}: sequence {} has a length of {}, below 0", index.path(), s, lengths[s]);
        if (offsets[s] != end)
            throw ConfigError(
                "{}: sequence {} begins at byte {}, but the sequences before it end at byte {}: each must "
                "begin where the one before ends",
                index.path(), s, offsets[s], end);
        end += lengths[s] * width;
    }
    return end;
}

void check_bounds(const RawFile& index, int64_t offset, int64_t bounds, int64_t sequences) {
    Numbers<int64_t> numbers(index, offset, bounds);
    int64_t before = 0;
    for (int64_t d = 0; d < bounds; ++d) {
        if ((d == 0 && numbers[d] != 0) || numbers[d] < before || numbers[d] > sequences)
            throw ConfigError(
                "{}: bound {} of the documents is {}: bounds must ascend from 0 to the number of sequences, "
                "{}",
                index.path(), d, numbers[d], sequences);
        before = numbers[d];
    }
    if (before != sequences)
        throw ConfigError(
            "{}: the last bound of the documents must be the number of sequences, {}, but is {}",
            index.path(), sequences, before);
}

// The value of a key in the dictionary of a .npy file, from its first character on.
std::string_view value_in(std::string_view dictionary, std::string_view key) {
    const size_t at = dictionary.find(key);
    const size_t colon = at == dictionary.npos ? at : dictionary.find(':', at);
    const size_t begin = colon == dictionary.npos ? colon : dictionary.find_first_not_of(' ', colon + 1);
    return begin == dictionary.npos ? std::string_view() : dictionary.substr(begin);
}

// "(100,)" -> 100; nothing for another number of dimensions.
std::optional<int64_t> length_of(std::string_view shape) {
    int64_t length = 0;
    if (!shape.starts_with('(')) return std::nullopt;
    const auto [end, error] = std::from_chars(shape.data() + 1, shape.data() + shape.size(), length);
    const std::string_view rest(end, size_t(shape.data() + shape.size() - end));
    return error == std::errc() && rest.starts_with(",)") ? std::optional(length) : std::nullopt;
}

void require_size(const RawFile& file, int64_t header, const TokenFile::Place& tokens) {
    if (tokens.count == 0) throw ConfigError("{}: contains no tokens", file.path());
    if (tokens.count < 0 || tokens.count > (file.size() - header) / tokens.width ||
        file.size() != header + tokens.count * tokens.width)
        throw ConfigError("{}: has {}, but its header says {} of {}, which need {} more than the header's {}",
                          file.path(), counted(file.size(), "byte"), counted(tokens.count, "token"),
                          counted(tokens.width, "byte"),
                          tokens.count < 0 || tokens.count > INT64_MAX / tokens.width
                              ? "many"
                              : with_commas(tokens.count * tokens.width),
                          header);
}

struct LlmCForm {
    int32_t magic, version;
    int64_t width;
};
constexpr std::array<LlmCForm, 2> llm_c_forms = {{{20240520, 1, 2}, {20240801, 7, 4}}};
constexpr int64_t llm_c_header = 1024;

}  // namespace

std::optional<MegatronPair> megatron_pair(const fs::path& path) {
    const std::string extension = path.extension().string();
    const std::string name = path.string();
    if (extension == ".idx") {
        if (!is_there(path)) return std::nullopt;
        return MegatronPair{name.substr(0, name.size() - 4) + ".bin", name};
    }
    const std::string common = extension == ".bin" ? name.substr(0, name.size() - 4) : name;
    if (!is_there(common + ".idx")) return std::nullopt;
    return MegatronPair{common + ".bin", common + ".idx"};
}

bool is_llm_c_file(const fs::path& path) {
    const std::string begin = beginning_of(path, 8);
    return begin.size() == 8 && std::ranges::any_of(llm_c_forms, [&](const LlmCForm& form) {
               return number_at<int32_t>(begin, 0) == form.magic;
           });
}

bool is_numpy_file(const fs::path& path) {
    return beginning_of(path, 6) == "\x93NUMPY"sv;
}

TokenFile::Layout megatron_layout(const MegatronPair& pair) {
    const RawFile index = RawFile::open(pair.index);
    const std::string header = beginning_of(index, megatron_header);
    if (!header.starts_with(megatron_magic))
        throw ConfigError("{}: is not an index of Megatron-LM: it does not begin with MMIDIDX", pair.index);
    if (int64_t(header.size()) < megatron_header)
        throw ConfigError("{}: ends within its header of {} bytes", pair.index, megatron_header);
    if (const auto version = number_at<uint64_t>(header, 9); version != 1)
        throw ConfigError("{}: has version {}, but only version 1 is read", pair.index, version);
    const auto type = number_at<uint8_t>(header, 17);
    if (type == 0 || type >= megatron_types.size())
        throw ConfigError(
            "{}: the type of its ids is {}, which is unknown; it must be 4 (int32) or 8 (uint16)", pair.index,
            type);
    const MegatronType& ids = megatron_types[type];
    if (!ids.is_read)
        throw ConfigError("{}: its ids are {} (type {}); they must be int32 (4) or uint16 (8)", pair.index,
                          ids.name, type);
    const auto sequences = number_at<int64_t>(header, 18), bounds = number_at<int64_t>(header, 26);
    const int64_t left = index.size() - megatron_header;
    const bool fits = sequences >= 0 && bounds >= 0 && sequences <= left / 12 && bounds <= left / 8;
    if (!fits || left < sequences * 12 + bounds * 8)
        throw ConfigError("{}: has {}, too few for {} and {} of documents: it is truncated", pair.index,
                          counted(index.size(), "byte"), counted(sequences, "sequence"),
                          counted(bounds, "bound"));
    if (left > sequences * 12 + bounds * 8)
        throw ConfigError(
            "{}: has {} after the bounds of the documents; pairs of several modalities are not read",
            pair.index, counted(left - sequences * 12 - bounds * 8, "byte"));
    if (sequences == 0 || bounds < 2) throw ConfigError("{}: contains no documents", pair.index);
    const int64_t bytes = bytes_of_sequences(index, sequences, ids.width);
    const int64_t documents = megatron_header + sequences * 12;
    check_bounds(index, documents, bounds, sequences);
    if (!is_there(pair.data))
        throw ConfigError("{}: does not exist, but its index {} does", pair.data, pair.index);
    const RawFile data = RawFile::open(pair.data);
    if (data.size() != bytes)
        throw ConfigError("{}: has {}, but the sequences in {} have {}", pair.data,
                          counted(data.size(), "byte"), pair.index, with_commas(bytes));
    if (bytes == 0) throw ConfigError("{}: contains no tokens", pair.data);
    return {.tokens = {0, bytes / ids.width, ids.width},
            .documents = {documents, bounds, 8},
            .sequences = {megatron_header + sequences * 4, sequences, 8},
            .is_signed = ids.width == 4,
            .format = "Megatron-LM",
            .data = pair.data,
            .index = pair.index};
}

TokenFile::Layout llm_c_layout(const std::string& path) {
    const RawFile file = RawFile::open(path);
    const std::string header = beginning_of(file, llm_c_header);
    if (int64_t(header.size()) < llm_c_header)
        throw ConfigError("{}: ends within its header of {} bytes", path, llm_c_header);
    const auto magic = number_at<int32_t>(header, 0), version = number_at<int32_t>(header, 4);
    const auto* form = std::ranges::find(llm_c_forms, magic, &LlmCForm::magic);
    if (form == llm_c_forms.end())
        throw ConfigError("{}: is not a token file of llm.c: it begins with {}", path, magic);
    if (version != form->version)
        throw ConfigError("{}: is a token file of llm.c of version {}, but with {} only version {} is read",
                          path, version, magic, form->version);
    const TokenFile::Place tokens = {llm_c_header, number_at<int32_t>(header, 8), form->width};
    require_size(file, llm_c_header, tokens);
    return {.tokens = tokens, .format = "llm.c"};
}

TokenFile::Layout numpy_layout(const std::string& path) {
    const RawFile file = RawFile::open(path);
    const std::string begin = beginning_of(file, 1 << 16);
    if (!begin.starts_with("\x93NUMPY"sv))
        throw ConfigError(
            "{}: does not begin as NumPy's arrays do; write it with numpy.save, which adds a header", path);
    const auto major = begin.size() < 12 ? uint8_t(0) : number_at<uint8_t>(begin, 6);
    if (major < 1 || major > 3)
        throw ConfigError("{}: ends within its header, or is of an unknown version of NumPy's format", path);
    const size_t at = major == 1 ? 10 : 12;
    const int64_t length = major == 1 ? number_at<uint16_t>(begin, 8) : number_at<uint32_t>(begin, 8);
    if (length > int64_t(begin.size()) - int64_t(at)) throw ConfigError("{}: ends within its header", path);
    const std::string_view dictionary = std::string_view(begin).substr(at, size_t(length));
    std::string_view type = value_in(dictionary, "'descr'");
    type = type.substr(0, type.find_first_of(",}"));
    const auto is = [&](const char* name) { return type == fmt::format("'{}'", name); };
    int64_t width = is("|u1")                ? 1
                    : is("<u2")              ? 2
                    : is("<u4") || is("<i4") ? 4
                    : is("<u8") || is("<i8") ? 8
                                             : 0;
    if (width == 0)
        throw ConfigError(
            "{}: its elements are {}; ids must be uint8, uint16, uint32, uint64, int32 or int64, "
            "little-endian: "
            "ids.astype(\"uint32\")",
            path, type.empty() ? "not named" : type);
    const std::string_view shape = value_in(dictionary, "'shape'");
    const std::optional<int64_t> count = length_of(shape);
    if (!count)
        throw ConfigError("{}: its shape is {}, but ids must have one dimension: ids.reshape(-1)", path,
                          shape.substr(0, shape.find(')') == shape.npos ? 0 : shape.find(')') + 1));
    const TokenFile::Place tokens = {int64_t(at) + length, *count, width};
    require_size(file, tokens.offset, tokens);
    return {.tokens = tokens, .is_signed = is("<i4") || is("<i8"), .format = "NumPy"};
}

TokenFile::Layout layout_of(const fs::path& path) {
    if (const auto pair = megatron_pair(path)) return megatron_layout(*pair);
    if (is_llm_c_file(path)) return llm_c_layout(path.string());
    if (is_numpy_file(path) || path.extension() == ".npy") return numpy_layout(path.string());
    if (path.extension() == ".idx" || (path.extension() == ".bin" && !is_token_file(path))) {
        require_file(path.string());
        throw ConfigError(
            "{}: does not begin as token files of llm.c do, and there is no {}, with which it would be a "
            "pair of "
            "Megatron-LM",
            path.string(), fs::path(path).replace_extension(".idx").string());
    }
    return hdf5_layout(path.string());
}

bool leads_to_tokens(const fs::path& path) {
    if (megatron_pair(path)) return true;
    if (!is_there(path)) return false;
    const std::string extension = path.extension().string();
    return is_token_file(path) || is_llm_c_file(path) || is_numpy_file(path) || extension == ".h5" ||
           extension == ".npy" || extension == ".idx" || extension == ".bin";
}

}  // namespace coeus
