// SPDX-License-Identifier: Apache-2.0
// HDF5 files, for checkpoints and token files: owners of handles, contiguous datasets, attributes. Only
// src/file includes <hdf5.h>. A file that is missing, foreign or truncated, or has other names or types, is a
// ConfigError; a call that fails while writing is a SystemError. The messages have the file and HDF5's own
// text. HDF5 is called from one thread only.
#pragma once

#include "coeus/base/types.hpp"

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace coeus::hdf5 {

/// Stored element types, little-endian. `other`: anything else (big-endian, strings, compounds).
enum class Type : uint8_t { f64, f32, f16, bf16, i64, i32, u64, u32, u16, u8, other };

/// "float32", "uint16", ...
const char* name_of(Type type);
/// Bytes of one element (0 for other).
int64_t size_of(Type type);
/// The stored type of a tensor's elements; fp8 has none and is a LogicError.
Type type_of(Dtype dtype);

template <class T>
constexpr Type type_of() {
    if constexpr (std::is_same_v<T, double>) return Type::f64;
    if constexpr (std::is_same_v<T, float>) return Type::f32;
    if constexpr (std::is_same_v<T, coeus::f16>) return Type::f16;
    if constexpr (std::is_same_v<T, coeus::bf16>) return Type::bf16;
    if constexpr (std::is_same_v<T, int64_t>) return Type::i64;
    if constexpr (std::is_same_v<T, int32_t>) return Type::i32;
    if constexpr (std::is_same_v<T, uint64_t>) return Type::u64;
    if constexpr (std::is_same_v<T, uint32_t>) return Type::u32;
    if constexpr (std::is_same_v<T, uint16_t>) return Type::u16;
    if constexpr (std::is_same_v<T, uint8_t>) return Type::u8;
    return Type::other;
}

/// Owns one HDF5 identifier (hid_t, an int64) of an object of a file. The destructor ignores errors of
/// closing.
class Handle {
public:
    Handle(int64_t id, int (*close)(int64_t)) : id_(id), close_(close) {}
    Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(id_, other.id_);
        std::swap(close_, other.close_);
        return *this;
    }
    ~Handle() {
        if (id_ >= 0) close_(id_);
    }
    int64_t id() const { return id_; }
    /// Returns the identifier and no longer owns it.
    int64_t release() { return std::exchange(id_, -1); }

private:
    int64_t id_;
    int (*close_)(int64_t);
};

/// Base of groups and datasets: a place in a file, with attributes.
class Object {
public:
    /// Path of the file, for messages.
    const std::string& file() const { return file_; }
    /// Path inside the file: "/model/norm.weight".
    const std::string& name() const { return name_; }

    /// Writes a new attribute; it cannot be written again. Strings are stored as variable-length UTF-8.
    /// SystemError if it fails.
    void set_attribute(const std::string& name, std::integral auto value) {
        set_int_attribute(name, int64_t(value));
    }
    void set_attribute(const std::string& name, double value);
    void set_attribute(const std::string& name, const std::string& value);
    bool has_attribute(const std::string& name) const;
    /// ConfigError if the attribute is absent or of another kind (integers of any width are converted).
    int64_t int_attribute(const std::string& name) const;
    /// A number of any kind.
    double real_attribute(const std::string& name) const;
    std::string string_attribute(const std::string& name) const;

protected:
    Object(Handle handle, std::string file, std::string name)
        : handle_(std::move(handle)), file_(std::move(file)), name_(std::move(name)) {}
    Handle handle_;
    std::string file_, name_;

private:
    void set_int_attribute(const std::string& name, int64_t value);
};

/// An array. Its number of rows is the product of all extents but the last (Shape::rows), so that a part of a
/// tensor in FSDP's layout is one range of rows for any rank of the tensor.
class Dataset : public Object {
public:
    Type type() const { return type_; }
    /// All extents; an array has at most five.
    const std::vector<int64_t>& extents() const { return extents_; }
    /// The same. If there are five, the first two are multiplied.
    const Shape& shape() const { return shape_; }
    /// Offset of the first byte in the file. None if the array is chunked, compressed, external, without
    /// elements or not yet allocated.
    std::optional<int64_t> offset() const;
    /// Path of the file in which it is stored; it differs from file() if a link leads to another file.
    std::string stored_in() const;

    /// Reads elements [first, first + out.size()) of the flattened array. HDF5 converts between widths.
    /// ConfigError for a conversion between integers and floats.
    template <class T>
    void read(std::span<T> out, int64_t first = 0) const {
        read_elements(out.data(), type_of<T>(), first, int64_t(out.size()));
    }
    /// All elements.
    template <class T>
    std::vector<T> read_all() const {
        std::vector<T> out(size_t(shape_.count()));
        read(std::span<T>(out));
        return out;
    }
    /// Writes elements [first, first + in.size()); T must be the stored type.
    template <class T>
    void write(std::span<const T> in, int64_t first = 0) {
        write_elements(in.data(), type_of<T>(), first, int64_t(in.size()));
    }
    /// True if the elements are strings.
    bool has_texts() const;
    /// One of the strings of a 1-D array of strings, up to its first NUL.
    std::string text(int64_t index) const;
    void read_elements(void* out, Type memory, int64_t first, int64_t count) const;
    void write_elements(const void* in, Type memory, int64_t first, int64_t count);

private:
    friend class Group;
    Dataset(Handle handle, std::string file, std::string name);
    void require_own_storage() const;
    Type type_ = Type::other;
    std::vector<int64_t> extents_;
    Shape shape_;
};

/// Other files to which links of a file may lead.
struct Links {
    std::vector<std::string> allowed;  ///< names as in the links
    std::string refused;               ///< a file that is not allowed and to which a link has led; "": none
};

class Group : public Object {
public:
    /// Opens a group below this one; the path may have several parts. ConfigError if it is absent.
    Group group(const std::string& path) const;
    /// Opens an array. ConfigError, with the nearest existing name, if it is absent.
    Dataset dataset(const std::string& path) const;
    bool has(const std::string& path) const;
    /// Names of the direct members in alphabetical order.
    std::vector<std::string> names() const;
    /// Paths, relative to this group, of all arrays below it, in alphabetical order within each group.
    /// ConfigError: more than 32 levels of groups, 4096 groups or 2^20 arrays. A few groups with links can
    /// have that many.
    std::vector<std::string> dataset_paths() const;

    Group create_group(const std::string& path);
    /// Makes a contiguous array, and the groups on its path. Its space in the file is allocated at once and
    /// not filled. Elements that are never written read as zero on most file systems, but this is not
    /// guaranteed.
    Dataset create_dataset(const std::string& path, Type type, const Shape& shape);
    /// Makes `path` a link to the object `target` of another file. The name `file` is relative to the folder
    /// of this file.
    void create_external_link(const std::string& path, const std::string& file, const std::string& target);

protected:
    Group(Handle handle, std::string file, std::string name, std::shared_ptr<Links> links)
        : Object(std::move(handle), std::move(file), std::move(name)), links_(std::move(links)) {}
    std::shared_ptr<Links> links_;  // shared by all groups of the file

private:
    /// How many groups and datasets dataset_paths() may still visit.
    struct Left {
        int64_t groups, datasets;
    };
    std::vector<std::string> dataset_paths(Left& left) const;
    /// Throws the reason why an object cannot be opened: its link led to a file that is not allowed, or
    /// `otherwise`.
    [[noreturn]] void fail(const std::string& full, const char* otherwise) const;
    void require_own_links(const std::string& full) const;
};

class File : public Group {
public:
    /// Opens a file for reading. ConfigError: absent, no permission, not HDF5, truncated.
    static File open(const std::string& path);
    /// Opens an existing file for reading and writing.
    static File open_for_update(const std::string& path);
    /// Makes a new file, and replaces an old one. The same calls give the same bytes: no times are stored.
    static File create(const std::string& path);

    /// Allows external links to lead to these files, named as in the links. By default such links cannot be
    /// followed: their target may be a pipe, for which HDF5 would wait, or a file of another program.
    void allow_links_to(std::vector<std::string> files) { links_->allowed = std::move(files); }

    /// Flushes and closes the file; SystemError if that fails. Afterwards the object may only be destroyed.
    /// Without close() the destructor closes the file and ignores errors.
    void close();

private:
    using Group::Group;
    static File open_existing(const std::string& path, bool writable);
};

/// "HDF5 1.10.8"
std::string library_version();

}  // namespace coeus::hdf5
