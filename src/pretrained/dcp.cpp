// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/dcp.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/pickle.hpp"
#include "coeus/file/stored_zip.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <tuple>

namespace coeus {

namespace fs = std::filesystem;

namespace {

// Classes of torch/distributed/checkpoint/metadata.py and filesystem.py
constexpr std::string_view metadata_class = "torch.distributed.checkpoint.metadata.Metadata";
constexpr std::string_view tensor_class = "torch.distributed.checkpoint.metadata.TensorStorageMetadata";
constexpr std::string_view bytes_class = "torch.distributed.checkpoint.metadata.BytesStorageMetadata";
constexpr std::string_view chunk_class = "torch.distributed.checkpoint.metadata.ChunkStorageMetadata";
constexpr std::string_view properties_class = "torch.distributed.checkpoint.metadata.TensorProperties";
constexpr std::string_view index_class = "torch.distributed.checkpoint.metadata.MetadataIndex";
constexpr std::string_view place_class = "torch.distributed.checkpoint.filesystem._StorageInfo";
constexpr std::string_view size_class = "torch.Size";
constexpr std::string_view rebuild_function = "torch._utils._rebuild_tensor_v2";

constexpr const char* metadata_file = ".metadata";
constexpr size_t most_parts = 1 << 16;

struct TypeNames {
    Dtype dtype;
    std::string_view name, storage;
};
constexpr TypeNames types[] = {{Dtype::f64, "torch.float64", "torch.DoubleStorage"},
                               {Dtype::f32, "torch.float32", "torch.FloatStorage"},
                               {Dtype::f16, "torch.float16", "torch.HalfStorage"},
                               {Dtype::bf16, "torch.bfloat16", "torch.BFloat16Storage"},
                               {Dtype::i64, "torch.int64", "torch.LongStorage"},
                               {Dtype::i32, "torch.int32", "torch.IntStorage"},
                               {Dtype::u8, "torch.uint8", "torch.ByteStorage"}};

// The names that .metadata may contain. Some are only in fields that are not read here.
std::vector<std::string_view> metadata_names() {
    std::vector<std::string_view> names = {metadata_class,
                                           tensor_class,
                                           bytes_class,
                                           chunk_class,
                                           properties_class,
                                           index_class,
                                           place_class,
                                           size_class,
                                           "torch.distributed.checkpoint.metadata.StorageMeta",
                                           "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
                                           "torch.serialization._get_layout",
                                           "collections.OrderedDict",
                                           "pathlib.PosixPath",
                                           "pathlib._local.PosixPath",
                                           "torch.int16",
                                           "torch.int8",
                                           "torch.bool"};
    for (const TypeNames& type : types) names.push_back(type.name);
    return names;
}

std::vector<std::string_view> tensor_names() {
    std::vector<std::string_view> names = {rebuild_function, Pickle::persistent, "collections.OrderedDict"};
    for (const TypeNames& type : types) names.push_back(type.storage);
    return names;
}

/// Access to the values of a pickle, with errors that name its file.
class Walk {
public:
    explicit Walk(const Pickle& pickle) : pickle_(pickle) {}

    [[noreturn]] void reject(std::string_view what) const {
        throw ConfigError("{}: not in the format that PyTorch writes: {}", pickle_.name(), what);
    }
    /// A field of an object of this class; null if it is absent or None.
    const PickleValue* optional(const PickleValue& value, std::string_view type,
                                std::string_view name) const {
        const PickleValue::Object* object = value.object(type);
        if (!object || !object->state) reject(fmt::format("a {} is missing", type));
        const PickleValue* found = object->state->find(name);
        return found && !found->is_none() ? found : nullptr;
    }
    const PickleValue& field(const PickleValue& value, std::string_view type, std::string_view name) const {
        const PickleValue* found = optional(value, type, name);
        if (!found) reject(fmt::format("a {} has no {}", type, name));
        return *found;
    }
    const PickleValue::Dict& dict(const PickleValue& value) const {
        const auto* dict = value.as<PickleValue::Dict>();
        if (!dict) reject("a dict is missing");
        return *dict;
    }
    std::string text(const PickleValue& value) const {
        if (!value.text()) reject("a text is missing");
        return std::string(*value.text());
    }
    /// A number that is not negative.
    int64_t integer(const PickleValue& value) const {
        if (!value.integer() || *value.integer() < 0) reject("a number is missing, or negative");
        return *value.integer();
    }
    /// A tuple of at most four extents, whose product does not overflow.
    Shape extents(const PickleValue& value) const {
        const PickleValue::List* list = value.tuple();
        if (!list || list->size() > 4) reject("a shape is missing, or has more than four extents");
        Shape shape;
        int64_t count = 1;
        for (const PickleValue* element : *list) {
            const int64_t extent = integer(*element);
            if (extent > 0 && count > std::numeric_limits<int64_t>::max() / 8 / extent)
                reject("a shape is too large to exist");
            count *= std::max(extent, int64_t(1));
            shape[shape.rank++] = extent;
        }
        return shape;
    }
    Shape size(const PickleValue& value) const {
        const PickleValue::Object* object = value.object(size_class);
        const PickleValue::List* arguments = object ? object->arguments->tuple() : nullptr;
        if (!arguments || arguments->size() != 1) reject("a torch.Size is missing");
        return extents(*(*arguments)[0]);
    }
    Dtype dtype(const PickleValue& properties, const std::string& tensor) const {
        const PickleValue::Object* object = properties.object(properties_class);
        const PickleValue::List* fields = object && object->state ? object->state->tuple() : nullptr;
        const auto* name = fields && !fields->empty() ? (*fields)[0]->as<PickleValue::Global>() : nullptr;
        if (!name) reject("the properties of a tensor have no type");
        for (const TypeNames& type : types)
            if (type.name == name->name) return type.dtype;
        throw ConfigError("{}: tensor '{}' has the unknown type {}", pickle_.name(), tensor, name->name);
    }

private:
    const Pickle& pickle_;
};

bool overlap(const Shape& offsets_a, const Shape& sizes_a, const Shape& offsets_b, const Shape& sizes_b) {
    for (int i = 0; i < offsets_a.rank; ++i)
        if (offsets_a[i] + sizes_a[i] <= offsets_b[i] || offsets_b[i] + sizes_b[i] <= offsets_a[i])
            return false;
    return true;
}

}  // namespace

/// Reads .metadata and fills a DcpFolder.
class DcpFolder::Reader {
public:
    explicit Reader(DcpFolder& folder)
        : folder_(folder),
          file_((fs::path(folder.path_) / metadata_file).string()),
          names_(metadata_names()),
          pickle_(content(file_), file_.path(), names_),
          walk_(pickle_) {}

    void read() {
        read_places();
        const PickleValue& tensors = walk_.field(pickle_.root(), metadata_class, "state_dict_metadata");
        for (const auto& [key, value] : walk_.dict(tensors))
            if (!value->object(bytes_class)) read_tensor(walk_.text(*key), *value);
    }

private:
    static std::span<const std::byte> content(const MappedFile& file) {
        file.read_in(file.bytes());
        return file.bytes();
    }

    struct Place {
        size_t file;
        int64_t position, bytes;
    };

    void read_places() {
        const PickleValue& places = walk_.field(pickle_.root(), metadata_class, "storage_data");
        for (const auto& [index, place] : walk_.dict(places)) {
            const std::string name = walk_.text(walk_.field(*index, index_class, "fqn"));
            const PickleValue* offset = walk_.optional(*index, index_class, "offset");
            if (!offset) continue;  // not a tensor
            if (walk_.optional(*place, place_class, "transform_descriptors"))
                throw ConfigError("{}: '{}' is compressed, which Coeus cannot read", file_.path(), name);
            places_[{name, walk_.size(*offset).d}] = {
                open_file(walk_.text(walk_.field(*place, place_class, "relative_path"))),
                walk_.integer(walk_.field(*place, place_class, "offset")),
                walk_.integer(walk_.field(*place, place_class, "length"))};
        }
    }

    size_t open_file(const std::string& name) {
        if (name.empty() || name.find('/') != std::string::npos || name == "..")
            walk_.reject(fmt::format("'{}' is not the name of a file next to it", name));
        const auto [at, is_new] = file_numbers_.try_emplace(name, folder_.files_.size());
        if (is_new) folder_.files_.emplace_back((fs::path(folder_.path_) / name).string());
        return at->second;
    }

    void read_tensor(const std::string& name, const PickleValue& value) {
        Stored stored;
        stored.entry = {walk_.dtype(walk_.field(value, tensor_class, "properties"), name),
                        walk_.size(walk_.field(value, tensor_class, "size"))};
        const PickleValue::List* chunks = walk_.field(value, tensor_class, "chunks").list();
        if (!chunks) walk_.reject("the chunks of a tensor are not a list");
        for (const PickleValue* chunk : *chunks) {
            Part part{walk_.size(walk_.field(*chunk, chunk_class, "offsets")),
                      walk_.size(walk_.field(*chunk, chunk_class, "sizes")), 0, 0, 0};
            if (part.sizes.count() == 0) continue;
            const auto place = places_.find({name, part.offsets.d});
            if (place == places_.end())
                throw ConfigError("{}: no file has the part of '{}' at {}", file_.path(), name,
                                  part.offsets.text());
            std::tie(part.file, part.position, part.bytes) =
                std::tie(place->second.file, place->second.position, place->second.bytes);
            stored.parts.push_back(part);
        }
        std::sort(stored.parts.begin(), stored.parts.end(),
                  [](const Part& a, const Part& b) { return a.offsets.d < b.offsets.d; });
        check_parts(name, stored);
        if (!folder_.tensors_.emplace(name, std::move(stored)).second)
            walk_.reject(fmt::format("tensor '{}' appears twice", name));
    }

    // Parts that lie within the tensor, do not overlap and have as many elements as it are the whole tensor.
    void check_parts(const std::string& name, const Stored& stored) const {
        const Shape& shape = stored.entry.shape;
        const auto wrong = [&](const Part& part, const char* how) {
            throw ConfigError("{}: tensor '{}' of shape {} has a part of shape {} at {}, which {}",
                              file_.path(), name, shape.text(), part.sizes.text(), part.offsets.text(), how);
        };
        if (stored.parts.size() > most_parts)
            throw ConfigError("{}: tensor '{}' has {} parts; at most {} are possible", file_.path(), name,
                              stored.parts.size(), most_parts);
        int64_t elements = 0, longest = 0;
        for (const Part& part : stored.parts) longest = std::max(longest, part.sizes[0]);
        for (size_t i = 0; i < stored.parts.size(); ++i) {
            const Part& part = stored.parts[i];
            if (part.offsets.rank != shape.rank || part.sizes.rank != shape.rank)
                wrong(part, "has another number of extents");
            for (int d = 0; d < shape.rank; ++d)
                if (part.offsets[d] > shape[d] || part.sizes[d] > shape[d] - part.offsets[d])
                    wrong(part, "goes beyond it");
            // parts are sorted by their first rows: the parts before j end before this one
            for (size_t j = i; j-- > 0 && stored.parts[j].offsets[0] + longest > part.offsets[0];)
                if (overlap(stored.parts[j].offsets, stored.parts[j].sizes, part.offsets, part.sizes))
                    wrong(part, "overlaps another part");
            elements += part.sizes.count();
        }
        if (elements != shape.count())
            throw ConfigError("{}: the parts of tensor '{}' have {} of its {} elements", file_.path(), name,
                              with_commas(elements), with_commas(shape.count()));
    }

    DcpFolder& folder_;
    MappedFile file_;
    std::vector<std::string_view> names_;
    Pickle pickle_;
    Walk walk_;
    std::map<std::string, size_t> file_numbers_;
    std::map<std::pair<std::string, std::array<int64_t, 4>>, Place> places_;
};

bool DcpFolder::is_at(const std::string& path) {
    return is_file_patiently(fs::path(path) / metadata_file);
}

DcpFolder::DcpFolder(const std::string& path) : path_(path) {
    Reader(*this).read();
}

std::vector<std::string> DcpFolder::names() const {
    std::vector<std::string> all;
    for (const auto& [name, stored] : tensors_) all.push_back(name);
    return all;
}

bool DcpFolder::has(const std::string& name) const {
    return tensors_.contains(name);
}

const DcpFolder::Stored& DcpFolder::stored(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return found->second;
    const std::string near = nearest_name(name, names());
    throw ConfigError("{} has no tensor '{}'{}", path_, name,
                      near.empty() ? "" : "; the nearest name is '" + near + "'");
}

DcpFolder::Entry DcpFolder::entry(const std::string& name) const {
    return stored(name).entry;
}

/// The elements of a part, in place.
struct DcpFolder::Payload {
    const std::byte* data;
    int64_t row_stride, col_stride;  // in elements
};

namespace {

// A part may be larger than memory, so pages that were read are released.
void compare_checksum(const ZipMember& member, const MappedFile& file, const std::string& what) {
    constexpr size_t piece = size_t(64) << 20;
    uint32_t crc = 0;
    for (size_t at = 0; at < member.bytes.size(); at += piece) {
        const auto part = member.bytes.subspan(at, std::min(piece, member.bytes.size() - at));
        file.read_in(part);
        crc = crc32_of(part, crc);
        if (member.bytes.size() > piece) file.release();
    }
    if (crc != member.crc) throw ConfigError("{} is damaged: its elements do not match their checksum", what);
}

}  // namespace

// A stream of torch.save is a zip archive with a pickle, which describes the tensor's place in its storage,
// and with the bytes of the storage.
DcpFolder::Payload DcpFolder::payload(const std::string& name, const Part& part, Dtype dtype) const {
    const MappedFile& file = files_[part.file];
    const std::string what = fmt::format("{} (tensor '{}')", file.path(), name);
    const auto all = int64_t(file.bytes().size());
    if (part.position > all || part.bytes > all - part.position)
        throw ConfigError("{} is truncated: a part of {} bytes begins at byte {}, but the file ends at {}",
                          what, with_commas(part.bytes), with_commas(part.position), with_commas(all));
    const auto stream = file.bytes().subspan(size_t(part.position), size_t(part.bytes));
    // the archive's headers are at both ends; the elements between them are read in where they are used
    const size_t around = std::min(stream.size(), size_t(1) << 20);
    file.read_in(stream.first(around));
    file.read_in(stream.last(around));
    const auto members = members_of_stored_zip(stream, what);
    const auto member = [&](std::string_view suffix) {
        for (const auto& [path, found] : members)
            if (const size_t slash = path.find('/');
                slash != std::string::npos && std::string_view(path).substr(slash + 1) == suffix)
                return found;
        throw ConfigError("{}: not a stream of torch.save: {} is missing", what, suffix);
    };
    const auto order = member("byteorder").bytes;
    if (std::string_view(reinterpret_cast<const char*>(order.data()), order.size()) != "little")
        throw ConfigError("{}: its byte order is not little-endian", what);
    static const std::vector<std::string_view> names = tensor_names();
    const Pickle pickle(member("data.pkl").bytes, what, names);
    const Walk walk(pickle);
    const PickleValue::Object* object = pickle.root().object(rebuild_function);
    const PickleValue::List* arguments = object ? object->arguments->tuple() : nullptr;
    if (!arguments || arguments->size() < 4) walk.reject("not a plain tensor");
    const PickleValue::Object* id = (*arguments)[0]->object(Pickle::persistent);
    const PickleValue::List* storage = id ? id->arguments->tuple() : nullptr;
    if (!storage || storage->size() < 3) walk.reject("a tensor without storage");
    const auto* type = (*storage)[1]->as<PickleValue::Global>();
    const auto* known = std::find_if(std::begin(types), std::end(types),
                                     [&](const TypeNames& names_of) { return names_of.dtype == dtype; });
    if (!type || type->name != known->storage)
        walk.reject(fmt::format("a storage of another type than {}", known->name));
    if (walk.extents(*(*arguments)[2]) != part.sizes) walk.reject("a part of another shape");
    const Shape strides = walk.extents(*(*arguments)[3]);
    if (strides.rank != part.sizes.rank) walk.reject("strides that do not fit the shape");

    const ZipMember elements_of = member("data/" + walk.text(*(*storage)[2]));
    const std::span<const std::byte> bytes = elements_of.bytes;
    const int64_t first = walk.integer(*(*arguments)[1]), elements = int64_t(bytes.size()) / size_of(dtype);
    int64_t left = elements - 1 - first;  // from the first element to the end
    for (int d = 0; d < strides.rank && left >= 0; ++d) {
        const int64_t steps = part.sizes[d] - 1;
        left = steps > 0 && strides[d] > left / steps ? -1 : left - steps * strides[d];
    }
    if (left < 0) walk.reject("a storage that is shorter than its tensor");
    if (compared_.insert(&part).second) compare_checksum(elements_of, file, what);
    const int rank = strides.rank;
    return {bytes.data() + first * size_of(dtype), rank == 0 ? 1 : strides[0], rank < 2 ? 1 : strides[1]};
}

void DcpFolder::read(const std::string& name, Tensor rows, int64_t first_row) const {
    const auto& [entry, parts] = stored(name);
    require(rows.dtype == entry.dtype && rows.cols() == entry.shape.cols() && rows.dense() &&
                first_row >= 0 && first_row + rows.rows() <= entry.shape.rows(),
            "rows that the tensor does not have");
    if (entry.shape.rank < 1 || entry.shape.rank > 2)
        throw ConfigError("{}: tensor '{}' of shape {}: only vectors and matrices can be read", path_, name,
                          entry.shape.text());
    const int64_t bytes = size_of(entry.dtype);
    for (const Part& part : parts) {
        const int64_t begin = std::max(first_row, part.offsets[0]),
                      end = std::min(first_row + rows.rows(), part.offsets[0] + part.sizes[0]);
        if (begin >= end) continue;
        const bool matrix = part.sizes.rank == 2;
        const int64_t first_col = matrix ? part.offsets[1] : 0, cols = matrix ? part.sizes[1] : 1;
        const Payload from = payload(name, part, entry.dtype);
        const std::byte* in = from.data + (begin - part.offsets[0]) * from.row_stride * bytes;
        const int64_t last = (end - begin - 1) * from.row_stride + (cols - 1) * from.col_stride;
        files_[part.file].read_in({in, size_t((last + 1) * bytes)});
        auto* out = static_cast<std::byte*>(rows.data) + ((begin - first_row) * rows.ld + first_col) * bytes;
        if (from.col_stride == 1 && from.row_stride == cols && cols == rows.ld) {
            std::memcpy(out, in, size_t((end - begin) * cols * bytes));
            continue;
        }
        for (int64_t r = begin; r < end; ++r, in += from.row_stride * bytes, out += rows.ld * bytes) {
            if (from.col_stride == 1)
                std::memcpy(out, in, size_t(cols * bytes));
            else
                for (int64_t c = 0; c < cols; ++c)
                    std::memcpy(out + c * bytes, in + c * from.col_stride * bytes, size_t(bytes));
        }
    }
}

std::optional<int64_t> DcpFolder::integer(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    const auto& [entry, parts] = stored(name);
    if (entry.shape.count() != 1)
        throw ConfigError("{}: '{}' of shape {} is not a number", path_, name, entry.shape.text());
    const Payload from = payload(name, parts[0], entry.dtype);
    files_[parts[0].file].read_in({from.data, size_t(size_of(entry.dtype))});
    int64_t wide = 0;  // aligned
    std::memcpy(&wide, from.data, size_t(size_of(entry.dtype)));
    return int64_t(element(Tensor(&wide, entry.dtype, {1}), 0));
}

void DcpFolder::release() const {
    for (const MappedFile& file : files_) file.release();
}

}  // namespace coeus
