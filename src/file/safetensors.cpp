// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/safetensors.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

namespace coeus {

namespace fs = std::filesystem;

namespace {

constexpr std::pair<const char*, Dtype> dtypes[] = {
    {"F64", Dtype::f64},          {"F32", Dtype::f32}, {"F16", Dtype::f16}, {"BF16", Dtype::bf16},
    {"F8_E4M3", Dtype::fp8_e4m3}, {"I64", Dtype::i64}, {"I32", Dtype::i32}, {"U8", Dtype::u8}};

constexpr const char *file_name = "model.safetensors", *index_name = "model.safetensors.index.json";

constexpr int64_t longest_header = 100'000'000;  // the limit of the format's own library

Dtype parse_dtype(const JsonView& value) {
    for (const auto& [text, dtype] : dtypes)
        if (value.string() == text) return dtype;
    value.reject("must be one of F64, F32, F16, BF16, F8_E4M3, I64, I32, U8");
}

Shape parse_shape(const JsonView& value) {
    const std::vector<int64_t> extents = value.integers();
    if (extents.size() > 4) value.reject("must have at most 4 extents");
    Shape shape;
    int64_t count = 1;
    for (int64_t extent : extents) {
        // the size with 8 bytes per element must not overflow either
        if (extent < 0 || (extent > 0 && count > std::numeric_limits<int64_t>::max() / 8 / extent))
            value.reject("must have extents that are not negative and whose product does not overflow");
        count *= std::max(extent, int64_t(1));
        shape[shape.rank++] = extent;
    }
    return shape;
}

/// The length of the header, checked against the file.
int64_t header_length(const MappedFile& file) {
    const auto bytes = file.bytes();
    const auto size = int64_t(bytes.size());
    file.read_in(bytes.first(size_t(std::min<int64_t>(size, 9))));
    if (size < 8)
        throw ConfigError("{} is not a safetensors file, or truncated: it has only {} bytes", file.path(),
                          size);
    uint64_t length;
    std::memcpy(&length, bytes.data(), 8);
    const bool looks_right =
        length >= 2 && length <= uint64_t(longest_header) && (size == 8 || bytes[8] == std::byte('{'));
    if (!looks_right) throw ConfigError("{} is not a safetensors file", file.path());
    if (int64_t(length) > size - 8)
        throw ConfigError("{} is truncated: its header needs {} bytes, the file has {}", file.path(),
                          with_commas(int64_t(length) + 8), with_commas(size));
    file.read_in(bytes.first(size_t(length) + 8));
    return int64_t(length);
}

struct Place {
    int64_t begin, end;
    std::string name;
};

/// Tensors must follow each other without gaps, from the end of the header to the end of the file.
void check_places(const std::string& path, std::vector<Place>& places, int64_t data_bytes) {
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    int64_t end = 0;
    std::string before = "the header";
    for (const Place& place : places) {
        if (place.begin < end) throw ConfigError("{}: tensor '{}' overlaps {}", path, place.name, before);
        if (place.begin > end)
            throw ConfigError("{}: there is a gap between {} and tensor '{}'", path, before, place.name);
        end = place.end;
        before = "tensor '" + place.name + "'";
        if (end > data_bytes)
            throw ConfigError("{} is truncated: tensor '{}' needs {} bytes more", path, place.name,
                              with_commas(end - data_bytes));
    }
    if (end < data_bytes)
        throw ConfigError("{} has {} bytes that belong to no tensor", path, with_commas(data_bytes - end));
}

}  // namespace

void Safetensors::add_file(const std::string& path) {
    MappedFile file(path);
    const int64_t length = header_length(file);
    const auto* text = reinterpret_cast<const char*>(file.bytes().data()) + 8;
    const std::byte* data = file.bytes().data() + 8 + length;
    const JsonDocument header = JsonDocument::parse(std::string_view(text, size_t(length)), path);
    std::vector<Place> places;
    for (const auto& [name, value] : header.root().items()) {
        if (name == "__metadata__") continue;
        const Dtype dtype = parse_dtype(value["dtype"]);
        const Shape shape = parse_shape(value["shape"]);
        const std::vector<int64_t> offsets = value["data_offsets"].integers();
        if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0])
            value["data_offsets"].reject("must be two positions, the first not after the second");
        if (offsets[1] - offsets[0] != shape.count() * size_of(dtype))
            throw ConfigError(
                "{}: tensor '{}' of shape {} and dtype {} needs {} bytes, but its data_offsets span {}", path,
                name, shape.text(), name_of(dtype), with_commas(shape.count() * size_of(dtype)),
                with_commas(offsets[1] - offsets[0]));
        if (entries_.contains(name)) throw ConfigError("{}: tensor '{}' appears twice", path, name);
        places.push_back({offsets[0], offsets[1], name});
        entries_.emplace(name, Entry{dtype, shape, files_.size(), nullptr});
    }
    check_places(path, places, int64_t(file.bytes().size()) - 8 - length);
    for (const Place& place : places) entries_.at(place.name).data = data + place.begin;
    files_.push_back(std::move(file));
}

void Safetensors::add_index(const std::string& path) {
    const JsonDocument index = JsonDocument::read(path);
    const fs::path folder = fs::path(path).parent_path();
    std::set<std::string> opened;
    const JsonView map = index.root()["weight_map"];
    for (const auto& [name, value] : map.items()) {
        const std::string& file = value.string();
        if (file.empty() || file.find('/') != std::string::npos || file == "..")
            value.reject("must be the name of a file in the same folder");
        if (opened.insert(file).second) add_file((folder / file).string());
    }
    for (const auto& [name, value] : map.items()) {
        const std::string file = (folder / value.string()).string();
        const auto found = entries_.find(name);
        if (found != entries_.end() && files_[found->second.file].path() == file) continue;
        const std::string wrong =
            fmt::format("{} names tensor '{}' in {}, which does not have it", path, name, file);
        if (found != entries_.end()) throw ConfigError("{}", wrong);
        ghosts_.emplace(name, wrong);
    }
}

namespace {

// What to do about weights of other kinds that are in a folder; "" if there are none.
std::string weights_not_read(const fs::path& folder) {
    std::set<std::string> found;  // in alphabetical order
    std::error_code unreadable;
    for (const fs::path& file : entries_patiently(folder, unreadable)) {
        const std::string name = file.filename().string(), ending = file.extension().string();
        for (const char* kind : {".bin", ".pt", ".pth", ".ckpt", ".gguf", ".msgpack", ".npz", ".safetensors"})
            if (ending == kind) found.insert(name);
        if (name == "tf_model.h5") found.insert(name);
    }
    if (found.empty()) return "";
    const std::string first = printable(*found.begin());
    if (first.ends_with(".safetensors"))
        return fmt::format("; {}, which is there, has another name: rename it, or give the file itself",
                           first);
    return fmt::format(
        "; {}, which is there, is of a kind that Coeus does not read. To convert it, in Python with "
        "transformers: AutoModelForCausalLM.from_pretrained(\"{}\").save_pretrained(\"NEW_FOLDER\")",
        first, folder.string());
}

}  // namespace

bool Safetensors::is_at(const std::string& folder) {
    return exists_patiently(fs::path(folder) / file_name) || exists_patiently(fs::path(folder) / index_name);
}

Safetensors Safetensors::open(const std::string& path) {
    Safetensors all;
    all.path_ = path;
    const fs::path folder = path;
    if (!is_folder_patiently(folder)) {
        folder.extension() == ".json" ? all.add_index(path) : all.add_file(path);
    } else if (exists_patiently(folder / file_name)) {
        all.add_file((folder / file_name).string());
    } else if (exists_patiently(folder / index_name)) {
        all.add_index((folder / index_name).string());
    } else {
        throw ConfigError("{} has neither {} nor {}{}", path, file_name, index_name,
                          weights_not_read(folder));
    }
    return all;
}

std::vector<std::string> Safetensors::names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
}

std::vector<std::string> Safetensors::ghosts() const {
    std::vector<std::string> all;
    for (const auto& [name, wrong] : ghosts_) all.push_back(name);
    return all;
}

const Safetensors::Entry& Safetensors::entry(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return found->second;
    if (const auto ghost = ghosts_.find(name); ghost != ghosts_.end()) throw ConfigError("{}", ghost->second);
    const std::string near = nearest_name(name, names());
    throw ConfigError("{} has no tensor '{}'{}", path_, name,
                      near.empty() ? "" : "; the nearest name is '" + near + "'");
}

void Safetensors::read(const std::string& name, Tensor out, int64_t first) const {
    const Entry& from = entry(name);
    require(out.dense() && first >= 0 && first + out.count() <= from.shape.count(),
            "a read beyond the tensor");
    if (!can_convert(out.dtype, from.dtype))
        throw ConfigError("{}: tensor '{}' has elements of type {}, but {} is expected",
                          files_[from.file].path(), name, name_of(from.dtype), name_of(out.dtype));
    const std::byte* const data = from.data + first * size_of(from.dtype);
    read_in(from, data, out.count() * size_of(from.dtype));
    convert_elements(out.data, out.dtype, data, from.dtype, out.count());
}

std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata) {
    Json header = Json::object();
    if (!metadata.empty()) {
        Json texts = Json::object();
        for (const auto& [key, text] : metadata) texts.set(key, text);
        header.set("__metadata__", std::move(texts));
    }
    int64_t offset = 0;
    for (const auto& [name, dtype, shape] : entries) {
        const auto* known = std::find_if(std::begin(dtypes), std::end(dtypes),
                                         [of = dtype](const auto& pair) { return pair.second == of; });
        require(known != std::end(dtypes), "a type that safetensors files do not have");
        Json extents = Json::array();
        for (int i = 0; i < shape.rank; ++i) extents.push(shape[i]);
        const int64_t bytes = shape.count() * size_of(dtype);
        Json entry = Json::object();
        entry.set("dtype", known->first).set("shape", std::move(extents));
        entry.set("data_offsets", std::vector<int64_t>{offset, offset + bytes});
        header.as_object()->emplace_back(name, std::move(entry));  // set() would search all names
        offset += bytes;
    }
    std::string text = header.text();
    text.resize(size_t(round_up(int64_t(text.size()), 8)), ' ');  // elements begin at a multiple of 8
    const auto length = uint64_t(text.size());
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace coeus
