// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/patient_io.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/stop_signals.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

namespace coeus {

namespace {

namespace fs = std::filesystem;

constexpr double longest_wait = 10;                     // seconds between two tries
constexpr double patience_to_stop = 10;                 // after a request to stop
constexpr int64_t largest_transfer = int64_t(1) << 30;  // Linux transfers at most 2 GiB - 4 KiB per call

std::atomic<double>& process_patience() {
    static std::atomic<double> seconds = 1;
    return seconds;
}

std::optional<double> patience_of_environment() {
    const char* const text = std::getenv("COEUS_READ_PATIENCE");
    if (!text) return std::nullopt;
    constexpr double most = 86400;
    double seconds = -1;
    const char* const end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, seconds);
    if (error != std::errc() || stop != end || !(seconds >= 0 && seconds <= most))
        throw ConfigError("COEUS_READ_PATIENCE = {}: must be a number of seconds from 0 to {:.0f}", text,
                          most);
    return seconds;
}

// True if a warning was not given before: a file that fails again and again is warned about once.
bool is_new(const std::string& warning) {
    static std::mutex& mutex = *new std::mutex;
    static std::set<std::string>& given = *new std::set<std::string>;
    const std::lock_guard lock(mutex);
    return given.insert(warning).second;
}

std::optional<FileIdentity> identity_now(int descriptor) {
    struct stat status = {};
    if (fstat(descriptor, &status) != 0) return std::nullopt;
    return FileIdentity{status.st_dev, status.st_ino};
}

// Replaces a stale descriptor by a new one of the same file. False and errno if that fails.
bool open_again(int descriptor, const std::string& path, int flags, std::optional<FileIdentity> before) {
    if (!before) before = identity_now(descriptor);
    const int opened = ::open(path.c_str(), flags | O_CLOEXEC);
    if (opened < 0) return false;
    const std::optional<FileIdentity> now = identity_now(opened);
    int reason = now ? 0 : errno;
    // another file has its name by now: it must not be taken for this one
    if (now && before && now != before) reason = ENOENT;
    if (reason == 0 && dup3(opened, descriptor, O_CLOEXEC) < 0) reason = errno;
    ::close(opened);
    errno = reason;
    return reason == 0;
}

// Calls move(place, bytes, offset) until all bytes are moved, or it returns 0. Returns the bytes moved, or -1
// and errno.
template <class Byte, class Move>
int64_t move_all(int descriptor, const std::string& path, int flags, Byte* place, int64_t bytes,
                 int64_t offset, double patience, const std::optional<FileIdentity>& identity,
                 const Move& move) {
    int64_t done = 0;
    while (done < bytes) {
        int stale = 0;
        const ssize_t moved = patiently(
            path,
            [&]() -> ssize_t {
                if (stale == ESTALE && !open_again(descriptor, path, flags, identity)) return -1;
                const ssize_t now = move(place + done, size_t(std::min(bytes - done, largest_transfer)),
                                         off_t(offset + done));
                stale = now < 0 ? errno : 0;
                return now;
            },
            patience);
        if (moved < 0) return -1;
        if (moved == 0) break;
        done += moved;
    }
    return done;
}

}  // namespace

bool may_pass(int code) {
    switch (code) {
        case EAGAIN:
        case EBUSY:
        case ECONNABORTED:
        case ECONNREFUSED:
        case ECONNRESET:
        case EHOSTDOWN:
        case EHOSTUNREACH:
        case EINTR:
        case EIO:
        case EMFILE:
        case ENETDOWN:
        case ENETUNREACH:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
        case ENOTCONN:
        case EREMOTEIO:
        case ESHUTDOWN:
        case ESTALE:
        case ETIMEDOUT: return true;
        default: return false;
    }
}

double read_patience() {
    static const std::optional<double> own = patience_of_environment();
    return own.value_or(process_patience());
}

void set_read_patience(double seconds) {
    process_patience() = seconds;
}

bool Tries::again(int code) {
    const double patience = stop_request() != 0 ? std::min(patience_, patience_to_stop) : patience_;
    const double left = patience - timer_.seconds();
    if (!may_pass(code) || left <= 0) return false;
    // a signal tells nothing about the file; who has less patience gives its own warning
    if (code != EINTR && patience_ >= read_patience() && !std::exchange(warned_, true)) {
        const std::string warning = fmt::format("{} cannot be used: {}. Trying again, for at most {:.6g} s",
                                                path_, errno_text(code), patience_);
        if (is_new(warning)) log::warn("{}", warning);
    }
    if (!recorded_) recorded_.emplace(OperationKind::patient, wait_for_file, std::source_location::current());
    sleep_seconds(std::min(next_wait_, left));
    next_wait_ = std::min(2 * next_wait_, longest_wait);
    return true;
}

void Tries::succeeded() {
    constexpr double long_time = 5;
    if (warned_ && timer_.seconds() > long_time)
        log::info("{} can be used again, after {:.0f} s", path_, timer_.seconds());
}

int open_patiently(const std::string& path, int flags, double patience) {
    return patiently(
        path, [&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); }, patience);
}

std::optional<FileIdentity> identity_of(int descriptor, const std::string& path) {
    struct stat status = {};
    if (!status_of(descriptor, path, status)) return std::nullopt;
    return FileIdentity{status.st_dev, status.st_ino};
}

bool status_of(int descriptor, const std::string& path, struct stat& status, double patience) {
    return patiently(
               path, [&] { return fstat(descriptor, &status); }, patience) == 0;
}

int64_t read_patiently(int descriptor, const std::string& path, int flags, void* to, int64_t bytes,
                       int64_t offset, double patience, const std::optional<FileIdentity>& identity) {
    return move_all(descriptor, path, flags & ~(O_CREAT | O_EXCL | O_TRUNC), static_cast<char*>(to), bytes,
                    offset, patience, identity,
                    [&](void* place, size_t size, off_t at) { return pread(descriptor, place, size, at); });
}

bool write_patiently(int descriptor, const std::string& path, int flags, const void* from, int64_t bytes,
                     int64_t offset, double patience, const std::optional<FileIdentity>& identity) {
    const int64_t done = move_all(
        descriptor, path, flags & ~(O_CREAT | O_EXCL | O_TRUNC), static_cast<const char*>(from), bytes,
        offset, patience, identity,
        [&](const void* place, size_t size, off_t at) { return pwrite(descriptor, place, size, at); });
    if (done >= 0 && done < bytes) errno = ENOSPC;
    return done == bytes;
}

fs::file_status status_patiently(const fs::path& path, std::error_code& failed, double patience) {
    fs::file_status status;
    patiently(
        path.string(),
        [&] {
            status = fs::status(path, failed);
            const bool unknown = status.type() == fs::file_type::none;
            if (unknown) errno = failed.value();
            return unknown ? -1 : 0;
        },
        patience);
    return status;
}

namespace {

fs::file_type known_type(const fs::path& path) {
    std::error_code failed;
    const fs::file_type type = status_patiently(path, failed).type();
    if (may_pass(failed.value()))
        throw SystemError(fmt::format("{} cannot be read: {}", path.string(), errno_text(failed.value())));
    return type;
}

}  // namespace

bool exists_patiently(const fs::path& path) {
    const fs::file_type type = known_type(path);
    return type != fs::file_type::not_found && type != fs::file_type::none;
}

bool is_file_patiently(const fs::path& path) {
    return known_type(path) == fs::file_type::regular;
}

bool is_folder_patiently(const fs::path& path) {
    return known_type(path) == fs::file_type::directory;
}

bool are_same_patiently(const fs::path& one, const fs::path& other) {
    const auto identity = [](const fs::path& path) -> std::optional<FileIdentity> {
        struct stat status = {};
        if (patiently(path.string(), [&] { return stat(path.c_str(), &status); }) == 0)
            return FileIdentity{status.st_dev, status.st_ino};
        if (may_pass(errno))
            throw SystemError(fmt::format("{} cannot be read: {}", path.string(), errno_text(errno)));
        return std::nullopt;
    };
    const std::optional<FileIdentity> first = identity(one);
    return first && first == identity(other);
}

int64_t size_patiently(const fs::path& file) {
    struct stat status = {};
    if (patiently(file.string(), [&] { return stat(file.c_str(), &status); }) != 0)
        throw SystemError(fmt::format("{} cannot be read: {}", file.string(), errno_text(errno)));
    return status.st_size;
}

fs::path real_path_patiently(const fs::path& path, std::error_code& failed) {
    fs::path real;
    patiently(path.string(), [&] {
        real = fs::canonical(path, failed);
        errno = failed.value();
        return failed ? -1 : 0;
    });
    return real;
}

void make_folders_patiently(const fs::path& folder, std::error_code& failed) {
    patiently(folder.string(), [&] {
        fs::create_directories(folder, failed);
        errno = failed.value();
        return failed ? -1 : 0;
    });
}

void make_folders_patiently(const fs::path& folder, std::source_location where) {
    std::error_code failed;
    make_folders_patiently(folder, failed);
    if (failed)
        fail_at_path(fmt::format("{} cannot be created: {}", folder.string(), failed.message()),
                     failed.value(), where);
}

std::vector<fs::path> entries_patiently(const fs::path& folder, std::error_code& failed, double patience) {
    std::vector<fs::path> all;
    patiently(
        folder.string(),
        [&] {
            all.clear();
            // the iterator of a range-based loop would throw at its second error
            for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
                all.push_back(at->path());
            errno = failed.value();
            return failed ? -1 : 0;
        },
        patience);
    if (failed) all.clear();
    return all;
}

std::vector<fs::path> entries_patiently(const fs::path& folder) {
    std::error_code failed;
    std::vector<fs::path> all = entries_patiently(folder, failed);
    if (failed) throw SystemError(fmt::format("{} cannot be listed: {}", folder.string(), failed.message()));
    return all;
}

std::string text_patiently(const fs::path& file, std::error_code& failed, double patience) {
    failed.clear();
    // without O_NONBLOCK, opening a pipe would wait
    const int descriptor = open_patiently(file.string(), O_RDONLY | O_NONBLOCK, patience);
    struct stat status = {};
    std::string text;
    int64_t bytes = -1;
    if (descriptor >= 0 && status_of(descriptor, file.string(), status, patience)) {
        if (!S_ISREG(status.st_mode)) {
            errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        } else {
            text.resize(size_t(status.st_size));
            bytes =
                read_patiently(descriptor, file.string(), O_RDONLY, text.data(), status.st_size, 0, patience);
        }
    }
    if (bytes < 0) failed.assign(errno, std::generic_category());
    if (descriptor >= 0) ::close(descriptor);
    text.resize(size_t(std::max<int64_t>(bytes, 0)));
    return text;
}

}  // namespace coeus
