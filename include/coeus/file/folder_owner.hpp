// SPDX-License-Identifier: Apache-2.0
// FolderOwner: gives a folder to one run while that run lives. The file `.owner` in the folder describes the
// run: a random id, host, process, job and start.
//
// If the file system has locks, the run holds a lock (flock) on the file, which ends with the process. If it
// has none (some NFS), a thread touches the file every few seconds. Then an owner on the same host is dead if
// its process is gone, and an owner on another host if it no longer touches its file.
//
// In both cases the owner reads the file again before it publishes something: a run that was suspended may
// have lost its folder in the meantime. Only the id of another run says so. A file that cannot be read says
// nothing, and one that was removed is written again: both are warnings.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace coeus {

class FolderOwner {
public:
    struct Who {
        std::string id, host, job;  ///< job: id of the Slurm job; "" outside of Slurm
        int64_t restart = 0;        ///< how often Slurm had requeued the job before this start
        int64_t process = 0;
        int64_t process_start = 0;  ///< in clock ticks of the host; a later process may get the same number
        std::string since;          ///< UTC, "2026-11-24 02:31:05"
        bool has_ended = false;     ///< it left its note for a run that may wake up
        /// This process.
        static Who self();
        /// "process 4711 on host n1, Slurm job 12, since 2026-11-24 02:31:05 UTC"
        std::string text() const;
    };
    struct Options {
        double beat = 5;       ///< seconds between touches; used if the file system has no locks
        double patience = 30;  ///< seconds without a touch after which an owner counts as dead
        /// Locks a descriptor without waiting. Returns 0 or errno.
        std::function<int(int)> lock = flock_now;
        /// The same for is_used(), which lets go at once.
        std::function<int(int)> lock_shared = flock_shared_now;
    };
    static int flock_now(int descriptor);
    static int flock_shared_now(int descriptor);

    /// Does not take the folder yet. The folder exists.
    FolderOwner(std::filesystem::path folder, Who self, Options options);
    FolderOwner(std::filesystem::path folder, Who self)
        : FolderOwner(std::move(folder), std::move(self), Options()) {}
    /// Gives the folder back and removes the file, unless another run has it now. If it took the folder from
    /// a run of another host that may only have been suspended, the file stays and says that this run has
    /// ended.
    ~FolderOwner();
    FolderOwner(const FolderOwner&) = delete;
    FolderOwner& operator=(const FolderOwner&) = delete;

    /// Tries once to take the folder. False: it has to wait, as waits_for() describes; call again a second
    /// later. ConfigError, with a description of the other run, if another run has it. SystemError if the
    /// file cannot be written.
    bool take();
    /// "the end of an earlier start of this job (process ...)", or a sign of life of a run that may be dead.
    const std::string& waits_for() const { return waits_for_; }
    bool is_owned() const { return owned_; }
    /// Description of the run that has the folder instead of this run; "" if no other run is known to have
    /// it. Reads one small file. If that fails, it warns once, with the reason; if the file or the folder is
    /// gone, it makes them again. Any thread may call it.
    std::string lost_to();
    /// SystemError if another run has the folder. `saved`: a sentence for its message.
    void require_owned(const std::function<std::string()>& saved = {});

    /// Whether a run has the folder and lives, for a process that does not want the folder. Without locks, a
    /// run on another host is dead if it no longer touches its file; ask every few seconds then. True if that
    /// is not known yet, or if the file cannot be read.
    bool is_used();

    const Who& self() const { return self_; }
    const std::filesystem::path& folder() const { return folder_; }

private:
    std::filesystem::path file() const { return folder_ / ".owner"; }
    int open_and_lock();
    enum class Life { over, unknown, goes_on };
    Life life_of(const Who& other);
    void write(const std::string& text) const;
    void write_again(const char* what_happened);
    void give_back();
    void say_once(const std::string& text);
    void touch_now_and_then();

    std::filesystem::path folder_;
    Who self_;
    Options options_;
    int descriptor_ = -1;
    bool owned_ = false;
    bool may_wake_ = false;     // the run that had the folder before may only have been suspended
    std::mutex look_;           // of those that look at the file while the run continues
    std::string said_;          // the last warning about the file
    int looks_at_no_text_ = 0;  // one after the other
    std::string waits_for_;
    std::string watched_;       // id of the watched run, and its last touch
    double watched_since_ = 0;  // seconds of the steady clock
    std::mutex mutex_;
    std::condition_variable ending_;
    bool ends_ = false;
    std::thread thread_;
};

}  // namespace coeus
