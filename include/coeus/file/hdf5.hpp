// SPDX-License-Identifier: Apache-2.0
// HDF5 files: checkpoints and token files. Owners of handles, contiguous datasets, attributes; <hdf5.h> stays
// in src/file. A file that the user gave and that is wrong (missing, foreign, truncated, other names or
// types) is a ConfigError; a call that fails while writing is a SystemError. Both name the file and carry
// HDF5's own words. HDF5 is called from one thread only.
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

/// Stored element types, little endian. `other`: anything else (big endian, strings, compounds).
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

/// Owns one HDF5 identifier (hid_t, an int64) of an object of a file; closes it quietly.
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
    /// Gives the identifier up.
    int64_t release() { return std::exchange(id_, -1); }

private:
    int64_t id_;
    int (*close_)(int64_t);
};

/// What groups and datasets share: a place in a file, and attributes.
class Object {
public:
    /// Path of the file, for messages.
    const std::string& file() const { return file_; }
    /// Path inside the file: "/model/norm.weight".
    const std::string& name() const { return name_; }

    /// Strings are stored as variable-length UTF-8. An attribute is written once. SystemError where it fails.
    void set_attribute(const std::string& name, std::integral auto value) {
        set_int_attribute(name, int64_t(value));
    }
    void set_attribute(const std::string& name, double value);
    void set_attribute(const std::string& name, const std::string& value);
    bool has_attribute(const std::string& name) const;
    /// ConfigError where it is absent or of another kind (numbers of any width are converted).
    int64_t int_attribute(const std::string& name) const;
    std::string string_attribute(const std::string& name) const;

protected:
    Object(Handle handle, std::string file, std::string name)
        : handle_(std::move(handle)), file_(std::move(file)), name_(std::move(name)) {}
    Handle handle_;
    std::string file_, name_;

private:
    void set_int_attribute(const std::string& name, int64_t value);
};

/// An array. Rows are the product of all extents but the last (Shape::rows), so that a part of a tensor in
/// FSDP's layout is one range of rows whatever its rank.
class Dataset : public Object {
public:
    Type type() const { return type_; }
    const Shape& shape() const { return shape_; }
    /// Position of the first byte in the file. Empty where the array is chunked, compressed, external,
    /// without elements or not yet allocated.
    std::optional<int64_t> offset() const;
    /// The file in which it is stored: another one than file() where a link led there.
    std::string stored_in() const;

    /// Reads elements [first, first + out.size()) of the flattened array. HDF5 converts the width, never
    /// between integers and floats: that is a ConfigError.
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
    void read_elements(void* out, Type memory, int64_t first, int64_t count) const;
    void write_elements(const void* in, Type memory, int64_t first, int64_t count);

private:
    friend class Group;
    Dataset(Handle handle, std::string file, std::string name);
    void require_own_storage() const;
    Type type_ = Type::other;
    Shape shape_;
};

/// Other files to which links of a file may lead, and the one to which a link led that is not among them.
struct Links {
    std::vector<std::string> allowed;  ///< as the links name them
    std::string refused;
};

class Group : public Object {
public:
    /// Opens a group below this one; the path may have several parts. ConfigError where it is absent.
    Group group(const std::string& path) const;
    /// Opens an array; where it is absent the ConfigError names the nearest name there is.
    Dataset dataset(const std::string& path) const;
    bool has(const std::string& path) const;
    /// Names of the direct members in alphabetical order.
    std::vector<std::string> names() const;
    /// Paths, relative to this group, of all arrays below it, in alphabetical order within each group.
    /// ConfigError: more than 32 levels of groups, 4096 groups or 2^20 arrays, which links can make of a few.
    std::vector<std::string> dataset_paths() const;

    Group create_group(const std::string& path);
    /// A contiguous array whose space in the file is allocated at once and not filled; groups on the path are
    /// made. Elements never written read as zero on most file systems, but nothing promises so.
    Dataset create_dataset(const std::string& path, Type type, const Shape& shape);
    /// Lets `path` mean the object `target` of another file, whose name is relative to the folder of this
    /// one.
    void create_external_link(const std::string& path, const std::string& file, const std::string& target);

protected:
    Group(Handle handle, std::string file, std::string name, std::shared_ptr<Links> links)
        : Object(std::move(handle), std::move(file), std::move(name)), links_(std::move(links)) {}
    std::shared_ptr<Links> links_;  // of the file

private:
    /// What dataset_paths() may still visit.
    struct Left {
        int64_t groups, datasets;
    };
    std::vector<std::string> dataset_paths(Left& left) const;
    /// Why an object cannot be opened: its link led to a file that is not allowed, or `otherwise`.
    [[noreturn]] void fail(const std::string& full, const char* otherwise) const;
    void require_own_links(const std::string& full) const;
};

class File : public Group {
public:
    /// For reading. ConfigError: absent, no permission, not HDF5, truncated.
    static File open(const std::string& path);
    /// For reading and writing of an existing file.
    static File open_for_update(const std::string& path);
    /// Makes the file anew, over any old one. The same calls give the same bytes: no times are stored.
    static File create(const std::string& path);

    /// Lets external links lead to these files, named as the links name them. Without it they lead nowhere:
    /// what HDF5 finds at their end may be a pipe, for which it waits, or a file of another program.
    void allow_links_to(std::vector<std::string> files) { links_->allowed = std::move(files); }

    /// Flushes and closes with a check, after which only destruction is allowed; without it the destructor
    /// closes without a check.
    void close();

private:
    using Group::Group;
    static File open_existing(const std::string& path, bool writable);
};

/// "HDF5 1.10.8"
std::string library_version();

}  // namespace coeus::hdf5
