// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/raw_file.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/random_id.hpp"
#include "coeus/file/host_error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

namespace coeus {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const std::string& path, const char* what,
                       std::source_location where = std::source_location::current()) {
    fail_at_path(fmt::format("{} {}: {}", path, what, errno_text(errno)), errno, where);
}

// A file of a run is not opened through a link, which somebody may have planted.
[[noreturn]] void fail_at_link(const std::string& path, const char* what,
                               std::source_location where = std::source_location::current()) {
    if (errno == ELOOP)
        fail_at_path(
            fmt::format("{} {}: it is a symbolic link, which is not followed; remove it", path, what), ELOOP,
            where);
    fail(path, what, where);
}

}  // namespace

bool leads_somewhere(const fs::path& path) {
    if (exists_patiently(path)) return true;
    std::error_code failed;
    if (status_patiently(path, failed).type() == fs::file_type::none)
        throw PermissionError("{} cannot be read: {}", path.string(), failed.message());
    return false;
}

void require_file(const std::string& path, bool writable) {
    std::error_code failed;
    const fs::file_type type = status_patiently(path, failed).type();
    if (may_pass(failed.value()))
        throw ReadError(fmt::format("{} cannot be read: {}", path, errno_text(failed.value())));
    if (type == fs::file_type::not_found) throw ConfigError("{}: this file does not exist", path);
    if (type == fs::file_type::none) throw PermissionError("{} cannot be read: {}", path, failed.message());
    if (type == fs::file_type::directory) throw ConfigError("{} is a folder, not a file", path);
    if (type != fs::file_type::regular)
        throw ConfigError("{} is a pipe or a device, not a file; write its content to a file first", path);
    const auto may = [&](int how) { return patiently(path, [&] { return access(path.c_str(), how); }) == 0; };
    if (!may(R_OK)) throw PermissionError("{} cannot be read: {}", path, errno_text(errno));
    if (writable && !may(W_OK)) throw PermissionError("{} cannot be written: {}", path, errno_text(errno));
}

std::string read_error(const std::string& path) {
    const int descriptor = open_patiently(path, O_RDONLY | O_NONBLOCK);
    if (descriptor < 0) return errno == ENOENT ? "" : errno_text(errno);
    struct stat status;
    char first = 0;
    // a pipe or a device is not read here: other checks refuse it
    const bool failed = !status_of(descriptor, path, status) ||
                        ((S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) &&
                         read_patiently(descriptor, path, O_RDONLY, &first, 1, 0) < 0);
    std::string why = failed ? errno_text(errno) : "";
    ::close(descriptor);
    return why;
}

std::string read_text_file(const fs::path& file, int64_t most_bytes) {
    const auto refuse = [&](const std::string& why) {
        throw ConfigError("{}: cannot be read: {}", file.string(), why);
    };
    // without O_NONBLOCK, opening a pipe would wait
    const RawFile opened(open_patiently(file.string(), O_RDONLY | O_NONBLOCK), file.string(), O_RDONLY);
    struct stat status;
    if (opened.descriptor_ < 0 || !status_of(opened.descriptor_, opened.path_, status)) {
        const int code = errno;
        const std::string why = fmt::format("{}: cannot be read: {}", file.string(), errno_text(code));
        if (may_pass(code)) throw ReadError(why);
        if (code == EACCES || code == EPERM) throw PermissionError("{}", why);
        throw ConfigError("{}", why);
    }
    if (S_ISDIR(status.st_mode)) refuse("it is a folder");
    if (!S_ISREG(status.st_mode))
        refuse("it is a pipe or a device, not a file; write its content to a file first");
    if (status.st_size > most_bytes)
        refuse(fmt::format("it has {} bytes, more than the {} that such a file may have", status.st_size,
                           most_bytes));
    std::string text(size_t(status.st_size), '\0');
    opened.read(text.data(), status.st_size, 0);
    return text;
}

RawFile RawFile::open(const std::string& path) {
    require_file(path);
    const Recorded recorded("open", 0, path);
    const int descriptor = open_patiently(path, O_RDONLY);
    // require_file() has found it, so that what fails now is the system
    if (descriptor < 0) throw ReadError(fmt::format("{} cannot be opened: {}", path, errno_text(errno)));
    return {descriptor, path, O_RDONLY};
}

RawFile RawFile::open_for_update(const std::string& path) {
    const Recorded recorded("open", 0, path);
    const int descriptor = open_patiently(path, O_RDWR | O_NOFOLLOW);
    if (descriptor < 0) fail_at_link(path, "cannot be opened for writing");
    return {descriptor, path, O_RDWR | O_NOFOLLOW};
}

RawFile RawFile::create(const std::string& path) {
    const Recorded recorded("open", 0, path);
    // A link in its place is replaced, not followed. O_EXCL makes sure that the file is a new one.
    constexpr int flags = O_RDWR | O_NOFOLLOW, attempts = 16;
    int descriptor = -1;
    for (int i = 0; i < attempts; ++i) {
        if (unlink(path.c_str()) != 0 && errno != ENOENT) break;
        descriptor = open_patiently(path, flags | O_CREAT | O_EXCL);
        if (descriptor >= 0 || errno != EEXIST) break;
    }
    if (descriptor < 0) fail(path, "cannot be created");
    return {descriptor, path, flags};
}

RawFile::~RawFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

RawFile::RawFile(RawFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      flags_(other.flags_),
      identity_(other.identity_),
      written_(other.written_) {}

RawFile& RawFile::operator=(RawFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(path_, other.path_);
    std::swap(flags_, other.flags_);
    std::swap(identity_, other.identity_);
    std::swap(written_, other.written_);
    return *this;
}

int64_t RawFile::size() const {
    struct stat status;
    if (!status_of(descriptor_, path_, status))
        throw ReadError(fmt::format("{} has an unknown size: {}", path_, errno_text(errno)));
    return status.st_size;
}

void RawFile::read(void* to, int64_t bytes, int64_t offset) const {
    const Recorded recorded("read", bytes, path_);
    read_small(to, bytes, offset);
}

void RawFile::read_small(void* to, int64_t bytes, int64_t offset) const {
    const int64_t done =
        read_patiently(descriptor_, path_, flags_, to, bytes, offset, read_patience(), identity_);
    if (done < 0) throw ReadError(fmt::format("{} cannot be read: {}", path_, errno_text(errno)));
    if (done < bytes) throw SystemError(fmt::format("{} ends before byte {}", path_, offset + bytes));
}

void RawFile::prefetch(int64_t bytes, int64_t offset) const {
    posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);  // only advice: errors do not matter
}

void RawFile::write(const void* from, int64_t bytes, int64_t offset) {
    const Recorded recorded(operation_name::write, bytes, path_);
    written_ += bytes;
    if (!write_patiently(descriptor_, path_, flags_, from, bytes, offset, read_patience(), identity_))
        fail(path_, "cannot be written");
}

void RawFile::reserve(int64_t bytes) {
    if (bytes <= 0) return;
    const Recorded recorded("reserve", bytes, path_);
    while (fallocate(descriptor_, 0, 0, bytes) != 0) {
        if (errno == EINTR) continue;
        if (errno == EOPNOTSUPP || errno == ENOSYS) return;
        fail(path_, "cannot be written");
    }
}

void RawFile::resize(int64_t bytes) {
    if (ftruncate(descriptor_, bytes) != 0) fail(path_, "cannot be written");
}

void RawFile::sync() {
    const Recorded recorded("sync", std::exchange(written_, 0), path_);
    if (fsync(descriptor_) != 0) fail(path_, "cannot be written to the disk");
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
    require_file(path);
    const int descriptor = open_patiently(path, O_RDONLY);
    if (descriptor < 0) fail(path, "cannot be opened");
    struct stat status;
    if (!status_of(descriptor, path, status)) {
        const int reason = errno;
        ::close(descriptor);
        errno = reason;
        fail(path, "has an unknown size");
    }
    if (status.st_size > 0) {
        const auto size = size_t(status.st_size);
        void* const start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (start == MAP_FAILED) {
            const int reason = errno;
            ::close(descriptor);
            errno = reason;
            fail(path, "cannot be mapped");
        }
        bytes_ = {static_cast<const std::byte*>(start), size};
        is_in_ = std::make_unique<std::atomic<bool>[]>(size / chunk + 1);
    }
    ::close(descriptor);
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::read_in(std::span<const std::byte> part) const {
    if (part.empty()) return;
    const auto first = size_t(part.data() - bytes_.data());
    for (size_t i = first / chunk; i * chunk < first + part.size(); ++i) {
        if (is_in_[i]) continue;
        auto* const place = const_cast<std::byte*>(bytes_.data()) + i * chunk;
        const size_t bytes = std::min(chunk, bytes_.size() - i * chunk);
        const int done = patiently(path_, [&] {
            const int result = madvise(place, bytes, MADV_POPULATE_READ);
            if (result != 0 && errno == EFAULT) errno = EIO;  // a use of the page would be SIGBUS
            return result;
        });
        if (done != 0 && errno != EINVAL)
            throw ReadError(fmt::format("{} cannot be read: {}", path_, errno_text(errno)));
        is_in_[i] = true;
    }
}

void MappedFile::release() const {
    if (bytes_.empty()) return;
    madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
    for (size_t i = 0; i <= bytes_.size() / chunk; ++i) is_in_[i] = false;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      is_in_(std::move(other.is_in_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    std::swap(is_in_, other.is_in_);
    return *this;
}

bool PassingPages::should_release(int64_t bytes) {
    since_release_ += bytes;
    if (since_release_ < most_bytes) return false;
    since_release_ = 0;
    return true;
}

void publish_file(const std::string& part, const std::string& final_path) {
    const Recorded recorded("rename", 0, final_path);
    if (patiently(part, [&] { return rename(part.c_str(), final_path.c_str()); }) != 0)
        fail(part, ("cannot be renamed to " + final_path).c_str());
    const fs::path parent = fs::path(final_path).parent_path();
    sync_folder(parent.empty() ? "." : parent.string());
}

void sync_folder(const std::string& folder) {
    const Recorded recorded("sync", 0, folder);
    const int descriptor = open_patiently(folder, O_RDONLY | O_DIRECTORY);
    if (descriptor < 0) fail(folder, "cannot be opened");
    // some network file systems refuse to sync a folder; the file is renamed nevertheless
    const bool failed = fsync(descriptor) != 0 && errno != EINVAL && errno != EBADF;
    const int reason = errno;
    ::close(descriptor);
    errno = reason;
    if (failed) fail(folder, "cannot be written to the disk");
}

namespace {

void reserve_for_a_moment(const std::string& folder, int64_t bytes, int64_t files) {
    constexpr int64_t most_held = 64;  // far below the limit on open files of a process
    std::vector<RawFile> held;
    for (int64_t i = 0; i < std::min(files, most_held); ++i) {
        const std::string path = fmt::format("{}/.room.{}.{}", folder, random_id(), i);
        RawFile& file = held.emplace_back(RawFile::create(path));
        unlink(path.c_str());  // its space is released when it is closed, even if this process is killed
        file.reserve(bytes / files);
    }
}

}  // namespace

void require_reservable(const std::string& folder, int64_t bytes, int64_t files) {
    // other runs that start now may hold their reservations at the same time
    for (int more_tries = 2;; --more_tries) try {
            return reserve_for_a_moment(folder, bytes, files);
        } catch (const SystemError&) {
            if (more_tries == 0) throw;
            sleep_seconds(1);
        }
}

int64_t free_bytes(const std::string& folder) {
    struct statvfs status;
    if (statvfs(folder.c_str(), &status) != 0) fail(folder, "has an unknown amount of free space");
    return int64_t(status.f_bavail) * int64_t(status.f_frsize);
}

}  // namespace coeus
