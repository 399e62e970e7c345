// SPDX-License-Identifier: Apache-2.0
// Files as bytes: positioned reads and writes, memory maps, and the step that makes a finished file visible
// under its name. Errors carry the path and the system's reason.
#pragma once

#include "coeus/base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace coeus {

/// ConfigError where the path is absent, a folder, or not readable (`writable`: nor writable) by this user.
void require_file(const std::string& path, bool writable = false);

/// The system cannot read a file (permission, an error of the disk), which says nothing of what it holds.
class ReadError : public SystemError {
public:
    explicit ReadError(const std::string& what) : SystemError(what, NoPlace{}) {}
};

/// Why the system cannot read a file that is there: "Permission denied", "Input/output error"; "" if its
/// first byte can be read, it is empty, or it is not there. Such an error says nothing of what the file
/// holds.
std::string read_error(const std::string& path);

/// The whole of a text file. ConfigError: absent, a folder, a pipe or a device (which need not end), more
/// than `most_bytes`, or not to be read.
std::string read_text_file(const std::filesystem::path& file, int64_t most_bytes);

/// An open file. Reads and writes name a position, so threads and processes may share one file.
class RawFile {
public:
    /// For reading. ConfigError where require_file says so.
    static RawFile open(const std::string& path);
    /// An existing file for reading and writing.
    static RawFile open_for_update(const std::string& path);
    /// A new file, over any old one. SystemError where it cannot be made.
    static RawFile create(const std::string& path);
    ~RawFile();
    RawFile(RawFile&& other) noexcept;
    RawFile& operator=(RawFile&& other) noexcept;

    const std::string& path() const { return path_; }
    int64_t size() const;
    /// Reads or writes everything, or throws SystemError; ReadError where the system cannot read.
    void read(void* to, int64_t bytes, int64_t offset) const;
    void write(const void* from, int64_t bytes, int64_t offset);
    /// Lets the system begin to fetch what will be read soon.
    void prefetch(int64_t bytes, int64_t offset) const;
    /// Reserves space for [0, bytes), so that a full disk is noticed before the first write; file systems
    /// that cannot reserve are left alone.
    void reserve(int64_t bytes);
    /// Cuts it off, or lengthens it without taking space; SystemError where a limit on the size of files
    /// forbids it.
    void resize(int64_t bytes);
    /// Returns when the content is on the disk.
    void sync();

private:
    friend std::string read_text_file(const std::filesystem::path& file, int64_t most_bytes);
    RawFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
    int descriptor_ = -1;
    std::string path_;
    int64_t written_ = 0;  // since the last sync()
};

/// A whole file in memory, read only, pages fetched when touched.
class MappedFile {
public:
    /// ConfigError where require_file says so; an empty file gives no bytes.
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    const std::string& path() const { return path_; }
    std::span<const std::byte> bytes() const { return bytes_; }
    /// Gives the pages that were read back to the system, which keeps them as long as it has room. What is
    /// read again is fetched again.
    void release() const;

private:
    std::string path_;
    std::span<const std::byte> bytes_;
};

/// Renames a complete, synced file to its final name and makes the name itself durable.
void publish_file(const std::string& part, const std::string& final_path);

/// Makes the names in a folder durable.
void sync_folder(const std::string& folder);

/// Reserves so many bytes in `files` new files of a folder, and gives them back: SystemError says what does
/// not allow it (disk, quota, limit on the size of a file). A file system that cannot reserve says nothing.
/// At most 64 files are held at once; it is tried three times in two seconds.
void require_reservable(const std::string& folder, int64_t bytes, int64_t files);

/// Bytes that this user may still write in the file system of an existing folder.
int64_t free_bytes(const std::string& folder);

}  // namespace coeus
