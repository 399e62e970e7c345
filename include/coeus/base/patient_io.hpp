// SPDX-License-Identifier: Apache-2.0
// Patience with a file system that fails for a while: a server of a network file system that restarts
// (ESTALE, EIO, ETIMEDOUT), a signal (EINTR), too many open files (EMFILE, ENFILE). A call that fails like
// this says nothing about the file, so it is made again, with growing waits, until the patience ends. The
// first failure of a file is a warning with the file's name and the reason. doc/guards.md lists which reads a
// run has, and what a failure of each does.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/base/flight_recorder.hpp"

#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <source_location>
#include <string>
#include <system_error>
#include <vector>

namespace coeus {

/// True for values of errno after which the same call may succeed later.
bool may_pass(int code);

/// How long a process tries again, in seconds. COEUS_READ_PATIENCE sets it. Otherwise it is 1, since the user
/// of a command waits for its answer, or what set_read_patience() has set. ConfigError if the variable is
/// not a number from 0 to 86,400.
double read_patience();
void set_read_patience(double seconds);
/// The patience of a training run: five minutes.
constexpr double run_patience = 300;
/// The patience for a file without which a run continues.
constexpr double short_patience = 0.5;

/// The name of the operation during which a thread waits between its tries.
inline constexpr const char* wait_for_file = "wait for an unreadable file";

/// The tries of one call.
class Tries {
public:
    explicit Tries(std::string path, double patience = read_patience())
        : path_(std::move(path)), patience_(patience) {}
    /// If the system's error `code` may pass and there is patience left: warns, waits and returns true. After
    /// a request to stop the patience is at most ten seconds.
    bool again(int code);
    /// Call it after a success. Logs how long the file could not be read, if that was long.
    void succeeded();

private:
    std::string path_;
    double patience_;
    double next_wait_ = 0.001;
    bool warned_ = false;
    Timer timer_;
    std::optional<Recorded> recorded_;  // the watchdog does not end a run while a rank waits here
};

/// Repeats call() as long as it returns a negative number and errno may pass. Returns its last result; errno
/// is that of the call.
template <class Call>
auto patiently(const std::string& path, const Call& call, double patience = read_patience()) {
    auto result = call();
    if (result >= 0) [[likely]]
        return result;
    int code = errno;
    for (Tries tries(path, patience); tries.again(code); code = errno)
        if (result = call(); result >= 0) {
            tries.succeeded();
            return result;
        }
    errno = code;
    return result;
}

/// open(2) with O_CLOEXEC.
int open_patiently(const std::string& path, int flags, double patience = read_patience());

/// fstat(2). Returns true, or false and errno.
bool status_of(int descriptor, const std::string& path, struct stat& status,
               double patience = read_patience());

/// Which file a name meant when it was opened.
struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const FileIdentity&) const = default;
};
/// Nothing if the system does not tell.
std::optional<FileIdentity> identity_of(int descriptor, const std::string& path);

/// An open file that is read at given positions. If the server of a network file system has forgotten it
/// (ESTALE), it is opened again; `flags` are those with which it was opened. If `identity` is given and its
/// name means another file by now: -1 and ENOENT. Without it the old handle is asked, which may not tell any
/// more. Returns the bytes that were read, fewer than asked for only at the end of the file, or -1 and errno.
/// Threads may share the descriptor.
int64_t read_patiently(int descriptor, const std::string& path, int flags, void* to, int64_t bytes,
                       int64_t offset, double patience = read_patience(),
                       const std::optional<FileIdentity>& identity = {});

/// The same for writing. Returns true, or false and errno.
bool write_patiently(int descriptor, const std::string& path, int flags, const void* from, int64_t bytes,
                     int64_t offset, double patience = read_patience(),
                     const std::optional<FileIdentity>& identity = {});

/// Type and permissions of a file, after links; file_type::not_found if it does not exist. If the system
/// cannot tell, file_type::none, and the reason in `failed`.
std::filesystem::file_status status_patiently(const std::filesystem::path& path, std::error_code& failed,
                                              double patience = read_patience());

/// Whether there is something, a file or a folder at a path, after links. A system that cannot tell for so
/// long that the patience ends does not mean "no": SystemError. Without permission to look, it is false.
bool exists_patiently(const std::filesystem::path& path);
bool is_file_patiently(const std::filesystem::path& path);
bool is_folder_patiently(const std::filesystem::path& path);

/// Whether two paths lead to the same file or folder. False if one does not exist.
bool are_same_patiently(const std::filesystem::path& one, const std::filesystem::path& other);

/// Bytes of a file, after links. SystemError if the system does not tell.
int64_t size_patiently(const std::filesystem::path& file);

/// The absolute name of a file or folder after all links; "" and the reason in `failed` if there is none.
std::filesystem::path real_path_patiently(const std::filesystem::path& path, std::error_code& failed);

/// Makes a folder and those above it, unless they exist; the reason in `failed` if it cannot.
void make_folders_patiently(const std::filesystem::path& folder, std::error_code& failed);
/// The same. If it cannot: a ConfigError if the path cannot be right (blames_path()), else a SystemError.
void make_folders_patiently(const std::filesystem::path& folder,
                            std::source_location where = std::source_location::current());

/// What is in a folder, in no order; the paths begin with `folder`. If it cannot be read to its end: nothing,
/// and the reason in `failed`.
std::vector<std::filesystem::path> entries_patiently(const std::filesystem::path& folder,
                                                     std::error_code& failed,
                                                     double patience = read_patience());

/// The same; SystemError if it cannot be read to its end.
std::vector<std::filesystem::path> entries_patiently(const std::filesystem::path& folder);

/// The whole content of a small file. If it cannot be read: "" and the reason in `failed`.
std::string text_patiently(const std::filesystem::path& file, std::error_code& failed,
                           double patience = read_patience());

}  // namespace coeus
