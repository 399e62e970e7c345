// SPDX-License-Identifier: Apache-2.0
// Elements of arrays, and attributes.
#include "hdf5_error.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace coeus::hdf5 {

namespace {

constexpr int most_dimensions = 5;

}  // namespace

Dataset::Dataset(Handle handle, std::string file, std::string name)
    : Object(std::move(handle), std::move(file), std::move(name)) {
    const Handle type(COEUS_CHECK_HDF5(H5Dget_type(handle_.id()), file_), close_type);
    type_ = recognise(type.id());
    require_own_storage();
    const Handle space(COEUS_CHECK_HDF5(H5Dget_space(handle_.id()), file_), close_space);
    const int rank = H5Sget_simple_extent_ndims(space.id());
    if (rank < 0 || rank > most_dimensions)
        throw ConfigError("{}: {} has {} dimensions; 0 to {} are possible", file_, name_, rank,
                          most_dimensions);
    hsize_t extents[most_dimensions] = {};
    COEUS_CHECK_HDF5(H5Sget_simple_extent_dims(space.id(), extents, nullptr), file_);
    int64_t most = std::numeric_limits<int64_t>::max() / 8;  // elements of at most 8 bytes
    for (int i = 0; i < rank; ++i) {
        if (extents[i] > hsize_t(most))
            throw ConfigError("{}: {} has more elements than a file can have", file_, name_);
        most /= std::max(int64_t(1), int64_t(extents[i]));
        extents_.push_back(int64_t(extents[i]));
    }
    const int joined = std::max(0, rank - 4);  // extents that are joined with the one after them
    shape_.rank = rank - joined;
    for (int i = 0; i < shape_.rank; ++i) shape_[i] = extents_[size_t(i + joined)];
    for (int i = 0; i < joined; ++i) shape_[0] *= extents_[size_t(i)];
}

// HDF5 would open any file that the array names, and would wait if it is a pipe.
void Dataset::require_own_storage() const {
    const Handle list(COEUS_CHECK_HDF5(H5Dget_create_plist(handle_.id()), file_), close_list);
    if (H5Pget_external_count(list.id()) > 0 || H5Pget_layout(list.id()) == H5D_VIRTUAL)
        throw ConfigError(
            "{}: the elements of {} are in other files (external storage, or a virtual dataset); `h5repack "
            "-l CONTI -f NONE {} NEW.h5` makes a file that contains them",
            file_, name_, file_);
}

std::optional<int64_t> Dataset::offset() const {
    const haddr_t address = H5Dget_offset(handle_.id());
    if (address == HADDR_UNDEF) {
        H5Eclear2(H5E_DEFAULT);
        return std::nullopt;
    }
    return int64_t(address);
}

std::string Dataset::stored_in() const {
    const ssize_t length = COEUS_CHECK_HDF5(H5Fget_name(handle_.id(), nullptr, 0), file_);
    std::string path(size_t(length), '\0');
    COEUS_CHECK_HDF5(H5Fget_name(handle_.id(), path.data(), path.size() + 1), file_);
    return path;
}

namespace {

/// One piece of a flattened range as a box of the array.
struct Box {
    hsize_t start[most_dimensions], count[most_dimensions];
    int64_t elements;
};

using Extents = std::span<const int64_t>;

/// The largest box that starts at flat element `first` and is part of [first, first + count).
Box next_box(Extents extents, int64_t first, int64_t count) {
    Box box;
    const auto rank = int(extents.size());
    const auto extent = [&](int i) { return extents[size_t(i)]; };
    int64_t stride = 1, position = first;
    int64_t index[most_dimensions], inner[most_dimensions];
    for (int i = rank - 1; i >= 0; --i) {
        inner[i] = stride;
        stride *= extent(i);
        index[i] = position % extent(i);
        position /= extent(i);
    }
    // the outermost dimension along which whole inner slices are taken: all indices inside it are 0
    int along = rank - 1;
    while (along > 0 && index[along] == 0 && count >= extent(along) * inner[along]) --along;
    box.elements = 1;
    for (int i = 0; i < rank; ++i) {
        box.start[i] = hsize_t(index[i]);
        int64_t n = 1;
        if (i > along) n = extent(i);
        if (i == along) n = std::min(extent(i) - index[i], count / inner[i]);
        box.count[i] = hsize_t(n);
        box.elements *= n;
    }
    return box;
}

/// Calls move(file space, memory space, first element of the buffer) for each box of a flattened range.
template <class Move>
void for_each_box(Extents extents, int64_t first, int64_t count, const std::string& file, hid_t dataset,
                  Move move) {
    const Handle space(COEUS_CHECK_HDF5(H5Dget_space(dataset), file), close_space);
    for (int64_t done = 0; done < count;) {
        int64_t elements = 1;
        if (!extents.empty()) {
            const Box box = next_box(extents, first + done, count - done);
            elements = box.elements;
            COEUS_CHECK_HDF5(
                H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, box.start, nullptr, box.count, nullptr),
                file);
        }
        const auto extent = hsize_t(elements);
        const Handle memory(COEUS_CHECK_HDF5(H5Screate_simple(1, &extent, nullptr), file), close_space);
        move(space.id(), memory.id(), done);
        done += elements;
    }
}

}  // namespace

void Dataset::read_elements(void* out, Type memory, int64_t first, int64_t count) const {
    require(first >= 0 && count >= 0 && first + count <= shape_.count(), "a read beyond the dataset");
    if (!same_class(type_, memory))
        throw ConfigError("{}: {} has elements of type {}, but {} is expected", file_, name_, name_of(type_),
                          name_of(memory));
    const Handle element = make_type(memory, file_);
    for_each_box(extents_, first, count, file_, handle_.id(), [&](hid_t space, hid_t buffer, int64_t done) {
        void* to = static_cast<char*>(out) + done * size_of(memory);
        if (H5Dread(handle_.id(), element.id(), buffer, space, H5P_DEFAULT, to) < 0)
            throw ConfigError("{}: {} cannot be read: {}", file_, name_, reason(file_));
    });
}

std::string Dataset::text(int64_t index) const {
    require(shape_.rank == 1 && index >= 0 && index < shape_[0], "a text beyond the dataset");
    const Handle type(COEUS_CHECK_HDF5(H5Dget_type(handle_.id()), file_), close_type);
    std::string text;
    for_each_box(extents_, index, 1, file_, handle_.id(), [&](hid_t space, hid_t buffer, int64_t) {
        const bool any_length = H5Tis_variable_str(type.id()) > 0;
        char* place = nullptr;
        if (!any_length) text.resize(H5Tget_size(type.id()));
        void* to = any_length ? static_cast<void*>(&place) : text.data();
        if (H5Dread(handle_.id(), type.id(), buffer, space, H5P_DEFAULT, to) < 0)
            throw ConfigError("{}: {} cannot be read: {}", file_, name_, reason(file_));
        if (any_length) text = place == nullptr ? "" : place;
        H5free_memory(place);
    });
    text.resize(strnlen(text.data(), text.size()));
    return text;
}

bool Dataset::has_texts() const {
    const Handle type(COEUS_CHECK_HDF5(H5Dget_type(handle_.id()), file_), close_type);
    return H5Tget_class(type.id()) == H5T_STRING;
}

void Dataset::write_elements(const void* in, Type memory, int64_t first, int64_t count) {
    require(first >= 0 && count >= 0 && first + count <= shape_.count(), "a write beyond the dataset");
    require(memory == type_, "a write of another type than the dataset's");
    const Handle element = make_type(memory, file_);
    for_each_box(extents_, first, count, file_, handle_.id(), [&](hid_t space, hid_t buffer, int64_t done) {
        const void* from = static_cast<const char*>(in) + done * size_of(memory);
        if (H5Dwrite(handle_.id(), element.id(), buffer, space, H5P_DEFAULT, from) < 0)
            throw SystemError(fmt::format("{}: {} cannot be written: {}", file_, name_, reason(file_)));
    });
}

namespace {

Handle scalar_space(const std::string& file) {
    return {COEUS_CHECK_HDF5(H5Screate(H5S_SCALAR), file), close_space};
}

Handle text_type(const std::string& file) {
    Handle type(COEUS_CHECK_HDF5(H5Tcopy(H5T_C_S1), file), close_type);
    COEUS_CHECK_HDF5(H5Tset_size(type.id(), H5T_VARIABLE), file);
    COEUS_CHECK_HDF5(H5Tset_cset(type.id(), H5T_CSET_UTF8), file);
    return type;
}

void write_attribute(hid_t object, const std::string& file, const std::string& name, hid_t type,
                     const void* value) {
    const Handle space = scalar_space(file);
    const Handle attribute(
        COEUS_CHECK_HDF5(H5Acreate2(object, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT), file),
        close_attribute);
    COEUS_CHECK_HDF5(H5Awrite(attribute.id(), type, value), file);
}

}  // namespace

void Object::set_int_attribute(const std::string& name, int64_t value) {
    write_attribute(handle_.id(), file_, name, H5T_STD_I64LE, &value);
}

void Object::set_attribute(const std::string& name, double value) {
    write_attribute(handle_.id(), file_, name, H5T_IEEE_F64LE, &value);
}

void Object::set_attribute(const std::string& name, const std::string& value) {
    const Handle type = text_type(file_);
    const char* text = value.c_str();
    write_attribute(handle_.id(), file_, name, type.id(), &text);
}

bool Object::has_attribute(const std::string& name) const {
    return exists(H5Aexists(handle_.id(), name.c_str()));
}

namespace {

/// An open attribute and its type. It has one value, of one of the allowed classes.
struct OpenAttribute {
    Handle id, type;
};

OpenAttribute open_attribute(hid_t object, const std::string& file, const std::string& owner,
                             const std::string& name, const char* expected,
                             std::initializer_list<H5T_class_t> allowed) {
    if (!exists(H5Aexists(object, name.c_str())))
        throw ConfigError("{}: {} has no attribute '{}'", file, owner, name);
    Handle id(COEUS_CHECK_HDF5(H5Aopen(object, name.c_str(), H5P_DEFAULT), file), close_attribute);
    Handle type(COEUS_CHECK_HDF5(H5Aget_type(id.id()), file), close_type);
    const Handle space(COEUS_CHECK_HDF5(H5Aget_space(id.id()), file), close_space);
    const H5T_class_t found = H5Tget_class(type.id());
    for (H5T_class_t one : allowed)
        if (found == one && H5Sget_simple_extent_npoints(space.id()) == 1)
            return {std::move(id), std::move(type)};
    throw ConfigError("{}: attribute '{}' of {} is not {}", file, name, owner, expected);
}

}  // namespace

int64_t Object::int_attribute(const std::string& name) const {
    const OpenAttribute attribute =
        open_attribute(handle_.id(), file_, name_, name, "an integer", {H5T_INTEGER});
    int64_t value = 0;
    COEUS_CHECK_HDF5(H5Aread(attribute.id.id(), H5T_NATIVE_INT64, &value), file_);
    return value;
}

double Object::real_attribute(const std::string& name) const {
    const OpenAttribute attribute =
        open_attribute(handle_.id(), file_, name_, name, "a number", {H5T_FLOAT, H5T_INTEGER});
    double value = 0;
    COEUS_CHECK_HDF5(H5Aread(attribute.id.id(), H5T_NATIVE_DOUBLE, &value), file_);
    return value;
}

std::string Object::string_attribute(const std::string& name) const {
    const OpenAttribute attribute =
        open_attribute(handle_.id(), file_, name_, name, "a string", {H5T_STRING});
    if (H5Tis_variable_str(attribute.type.id()) > 0) {
        // read with the stored type: HDF5 does not convert between character sets
        char* text = nullptr;
        COEUS_CHECK_HDF5(H5Aread(attribute.id.id(), attribute.type.id(), &text), file_);
        std::string value = text ? text : "";
        H5free_memory(text);
        return value;
    }
    std::string value(H5Tget_size(attribute.type.id()), '\0');
    COEUS_CHECK_HDF5(H5Aread(attribute.id.id(), attribute.type.id(), value.data()), file_);
    value.resize(strnlen(value.data(), value.size()));
    return value;
}

}  // namespace coeus::hdf5
