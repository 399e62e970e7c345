// SPDX-License-Identifier: Apache-2.0
// Files as bytes: reads and writes at given positions, memory maps, and the renaming of a complete file to
// its final name. Errors have the path and the system's reason.
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace coeus {

/// ConfigError if the path does not exist, is a folder, a pipe or a device, or is not readable (with
/// `writable`: not writable) by this user.
void require_file(const std::string& path, bool writable = false);

/// Whether a user's path leads to a file or a folder. PermissionError if it may not be looked at or its links
/// form a loop: this does not mean that it is absent.
bool leads_somewhere(const std::filesystem::path& path);

/// The system cannot read a file (no permission, a disk error). The contents of the file may be intact.
class ReadError : public SystemError {
public:
    explicit ReadError(const std::string& what) : SystemError(what, NoPlace{}) {}
};

/// Why the system cannot read an existing file: "Permission denied", "Input/output error". "" if its first
/// byte can be read, or if the file is empty or does not exist. The contents of a file with such an error may
/// be intact.
std::string read_error(const std::string& path);

/// The contents of a text file, read patiently. ConfigError: absent, a folder, a pipe or a device (which may
/// never end), more than `most_bytes` bytes, or not readable.
std::string read_text_file(const std::filesystem::path& file, int64_t most_bytes);

/// An open file. Reads and writes name a position, so threads and processes may share one file. All calls
/// have the patience of base/patient_io.hpp.
class RawFile {
public:
    /// Opens a file for reading. ConfigError as require_file().
    static RawFile open(const std::string& path);
    /// Opens an existing file for reading and writing. SystemError if it cannot, or if the path is a symbolic
    /// link.
    static RawFile open_for_update(const std::string& path);
    /// Makes a new file, and replaces an old one or a symbolic link. SystemError if it cannot be made.
    static RawFile create(const std::string& path);
    ~RawFile();
    RawFile(RawFile&& other) noexcept;
    RawFile& operator=(RawFile&& other) noexcept;

    const std::string& path() const { return path_; }
    int64_t size() const;
    /// Reads `bytes` bytes from `offset`. ReadError if the system cannot read; another SystemError if the
    /// file ends before.
    void read(void* to, int64_t bytes, int64_t offset) const;
    /// The same without an entry in the flight recorder, for many small reads.
    void read_small(void* to, int64_t bytes, int64_t offset) const;
    /// Writes `bytes` bytes at `offset`. SystemError if not all can be written.
    void write(const void* from, int64_t bytes, int64_t offset);
    /// Asks the system to begin to read bytes that will be needed soon.
    void prefetch(int64_t bytes, int64_t offset) const;
    /// Reserves space for [0, bytes), so that a full disk is noticed before the first write (SystemError).
    /// Does nothing on file systems that cannot reserve space.
    void reserve(int64_t bytes);
    /// Truncates the file, or extends it without taking space. SystemError if it exceeds a limit on the size
    /// of files.
    void resize(int64_t bytes);
    /// Returns when the contents are on disk. SystemError if that fails.
    void sync();

private:
    friend std::string read_text_file(const std::filesystem::path& file, int64_t most_bytes);
    RawFile(int descriptor, std::string path, int flags)
        : descriptor_(descriptor), path_(std::move(path)), flags_(flags) {
        if (descriptor_ >= 0) identity_ = identity_of(descriptor_, path_);
    }
    int descriptor_ = -1;
    std::string path_;
    int flags_ = 0;  // of open(2)
    std::optional<FileIdentity> identity_;
    int64_t written_ = 0;  // bytes written since the last sync()
};

/// A whole file mapped into memory, read-only. Its pages are read when they are used. A page that cannot be
/// read then ends the process by SIGBUS: call read_in() before.
class MappedFile {
public:
    /// ConfigError as require_file(). An empty file has no bytes.
    explicit MappedFile(const std::string& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    const std::string& path() const { return path_; }
    std::span<const std::byte> bytes() const { return bytes_; }
    /// Reads a part of bytes() now, with the patience of base/patient_io.hpp. ReadError if that fails to the
    /// end. Costs little for a part that was read in before. Linux before 5.14 cannot do that; there it does
    /// nothing.
    void read_in(std::span<const std::byte> part) const;
    /// Returns the pages that were read to the system, which may keep them in its cache. Pages that are used
    /// again are read again.
    void release() const;

private:
    static constexpr size_t chunk = size_t(1) << 20;  // bytes that are read in together
    std::string path_;
    std::span<const std::byte> bytes_;
    std::unique_ptr<std::atomic<bool>[]> is_in_;  // for each chunk; any thread may read
};

/// Tells a reader of mapped files when to release their pages. Mapped pages that have been read stay in
/// memory. A reader that passes once through large files would at last hold them whole. It calls
/// should_release() after each read.
class PassingPages {
public:
    /// Counts bytes that were read. True if most_bytes or more were read since it was last true: the reader
    /// then calls MappedFile::release().
    bool should_release(int64_t bytes);

private:
    static constexpr int64_t most_bytes = int64_t(64) << 20;  // 64 MiB
    int64_t since_release_ = 0;
};

/// Renames a complete, synced file to its final name and syncs the name to disk. SystemError if it cannot.
void publish_file(const std::string& part, const std::string& final_path);

/// Syncs the names of a folder's files to disk. SystemError if it cannot.
void sync_folder(const std::string& folder);

/// Reserves `bytes` bytes in `files` new files of a folder together, and releases them. SystemError, with the
/// reason (disk, quota, limit on the size of a file), if it cannot. Does nothing on a file system that cannot
/// reserve space. It holds at most 64 files at the same time, and tries three times within two seconds.
void require_reservable(const std::string& folder, int64_t bytes, int64_t files);

/// Bytes that this user may still write to the file system of an existing folder.
int64_t free_bytes(const std::string& folder);

}  // namespace coeus
