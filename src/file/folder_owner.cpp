// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/folder_owner.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/host_name.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/random_id.hpp"
#include "coeus/file/json.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace coeus {

namespace {

namespace fs = std::filesystem;

// The number at the beginning of a text; 0 if there is none.
int64_t number_in(std::string_view text) {
    int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// When a process began, in clock ticks of its host; 0: the process does not exist.
int64_t start_of_process(int64_t process) {
    std::ifstream in(fmt::format("/proc/{}/stat", process));
    std::stringstream text;
    text << in.rdbuf();
    // the name, in brackets, may contain spaces and brackets
    const std::string all = text.str();
    std::istringstream fields(
        all.substr(all.rfind(')') == std::string::npos ? all.size() : all.rfind(')') + 1));
    std::string field;
    constexpr int number = 20;  // the field with the start, counted after the name
    for (int i = 0; i < number; ++i) fields >> field;
    return number_in(field);
}

std::string now_text() {
    const time_t now = time(nullptr);
    tm utc = {};
    gmtime_r(&now, &utc);
    std::array<char, 32> text = {};
    strftime(text.data(), text.size(), "%F %T", &utc);
    return text.data();
}

std::string text_of(const FolderOwner::Who& who) {
    Json note = Json::object();
    note.set("id", who.id)
        .set("host", who.host)
        .set("process", who.process)
        .set("process_start", who.process_start)
        .set("job", who.job)
        .set("restart", who.restart)
        .set("since", who.since);
    if (who.has_ended) note.set("ended", true);
    std::string text = note.text();
    // padded, so that the next owner's text overwrites all of it
    constexpr size_t usual_bytes = 511;
    if (text.size() < usual_bytes) text.resize(usual_bytes, ' ');
    return text + "\n";
}

constexpr double one_look = 0.05;  // patience, in seconds, for a look that is made again a moment later

struct Note {
    std::optional<FolderOwner::Who> who;  // none: the file is empty, absent, not valid or cannot be read
    std::string touched;                  // time of the last touch
    int reason = 0;                       // errno, if the file cannot be read
};

// Opens the file each time, since network file systems then ask their server.
Note read_note(const fs::path& file, double patience) {
    Note note;
    const int descriptor = open_patiently(file.string(), O_RDONLY | O_NONBLOCK, patience);
    if (descriptor < 0) {
        note.reason = errno;
        return note;
    }
    struct stat status = {};
    std::array<char, 4096> text = {};
    const int64_t bytes = status_of(descriptor, file.string(), status, patience)
                              ? read_patiently(descriptor, file.string(), O_RDONLY, text.data(),
                                               int64_t(text.size()), 0, patience)
                              : -1;
    if (bytes < 0) note.reason = errno;
    close(descriptor);
    note.touched = fmt::format("{}.{}", status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    if (bytes <= 0) return note;
    try {
        const JsonDocument document = JsonDocument::parse({text.data(), size_t(bytes)}, file.string());
        const JsonView root = document.root();
        note.who = FolderOwner::Who{.id = root.string("id"),
                                    .host = root.string("host"),
                                    .job = root.string("job"),
                                    .restart = root.integer("restart"),
                                    .process = root.integer("process"),
                                    .process_start = root.integer("process_start"),
                                    .since = root.string("since"),
                                    .has_ended = root.boolean("ended", false)};
    } catch (const ConfigError&) {
        // the file is being written, or damaged: only the lock counts then
    }
    return note;
}

bool has_no_locks(int reason) {
    return reason == ENOLCK || reason == ENOSYS || reason == EOPNOTSUPP || reason == EINVAL;
}

}  // namespace

FolderOwner::Who FolderOwner::Who::self() {
    const char *job = std::getenv("SLURM_JOB_ID"), *restart = std::getenv("SLURM_RESTART_COUNT");
    return {.id = random_id(),
            .host = host_name(),
            .job = job ? job : "",
            .restart = number_in(restart ? restart : ""),
            .process = getpid(),
            .process_start = start_of_process(getpid()),
            .since = now_text()};
}

std::string FolderOwner::Who::text() const {
    return fmt::format("process {} on host {}{}, since {} UTC", process, host,
                       job.empty() ? "" : ", Slurm job " + job, since);
}

namespace {

int flock_as(int kind, int descriptor) {
    while (flock(descriptor, kind | LOCK_NB) != 0)
        if (errno != EINTR) return errno;
    return 0;
}

}  // namespace

int FolderOwner::flock_now(int descriptor) {
    return flock_as(LOCK_EX, descriptor);
}

int FolderOwner::flock_shared_now(int descriptor) {
    return flock_as(LOCK_SH, descriptor);
}

FolderOwner::FolderOwner(fs::path folder, Who self, Options options)
    : folder_(std::move(folder)), self_(std::move(self)), options_(std::move(options)) {}

FolderOwner::~FolderOwner() {
    if (thread_.joinable()) {
        {
            const std::lock_guard lock(mutex_);
            ends_ = true;
        }
        ending_.notify_all();
        thread_.join();
    }
    if (owned_) give_back();
    if (descriptor_ >= 0) close(descriptor_);
}

void FolderOwner::give_back() {
    const Note note = read_note(file(), short_patience);
    if (!note.who || note.who->id != self_.id) return;
    std::error_code ignored;
    if (!may_wake_) {
        fs::remove(file(), ignored);
        return;
    }
    // the run that had the folder before may only have been suspended: it must still see that it lost the
    // folder
    Who ended = self_;
    ended.has_ended = true;
    try {
        write(text_of(ended));
    } catch (const SystemError&) {
        // this run's id stays
    }
}

bool FolderOwner::take() {
    const int reason = open_and_lock();
    const Note note = read_note(file(), read_patience());
    if (note.reason != 0 && note.reason != ENOENT)
        throw SystemError(fmt::format("{} cannot be read: {}", file().string(), errno_text(note.reason)));
    Life life = note.who && !note.who->has_ended ? life_of(*note.who) : Life::over;
    if (reason == 0) life = Life::over;
    if (reason == EWOULDBLOCK) life = Life::goes_on;
    const std::string who = note.who ? note.who->text() : "its file .owner cannot be read";
    if (life == Life::unknown) {
        waits_for_ =
            fmt::format("a sign of life of the run there ({}), at most {:.0f} s", who, options_.patience);
        return false;
    }
    if (life == Life::goes_on) {
        if (note.who && !self_.job.empty() && note.who->job == self_.job &&
            note.who->restart < self_.restart) {
            waits_for_ = fmt::format("the end of an earlier start of this job ({})", who);
            return false;
        }
        throw ConfigError(
            "{} is used by another run, which is still alive: {}. Wait until that run has ended, stop it, or "
            "choose other folders for this run (job.dump_folder, checkpoint.folder)",
            folder_.string(), who);
    }
    may_wake_ = reason != 0 && note.who && note.who->host != self_.host;
    write(text_of(self_));
    owned_ = true;
    if (reason != 0) {
        // if two runs took it at the same time, the one that wrote last has it
        sleep_seconds(std::min(1.0, options_.beat));
        if (const Note now = read_note(file(), read_patience()); !now.who || now.who->id != self_.id) {
            owned_ = false;
            return take();
        }
        thread_ = std::thread([this] { touch_now_and_then(); });
    }
    return true;
}

// Returns errno of locking; 0: locked.
int FolderOwner::open_and_lock() {
    while (true) {
        if (descriptor_ < 0) descriptor_ = open_patiently(file().string(), O_RDWR | O_CREAT | O_NOFOLLOW);
        if (descriptor_ < 0)
            fail_at_path(
                fmt::format("{} cannot be opened: {}", file().string(),
                            errno == ELOOP ? "it is a symbolic link, which is not followed; remove it"
                                           : errno_text(errno)),
                errno);
        int reason = options_.lock(descriptor_);
        if (reason == EWOULDBLOCK) {  // is_used() of another process has the lock for a moment
            sleep_seconds(one_look);
            reason = options_.lock(descriptor_);
        }
        if (reason != 0 && reason != EWOULDBLOCK && !has_no_locks(reason))
            throw SystemError(fmt::format("{} cannot be locked: {}", file().string(), errno_text(reason)));
        struct stat own = {}, named = {};
        const int absent =
            patiently(file().string(), [&] { return stat(file().c_str(), &named); }) == 0 ? 0 : errno;
        if (absent != 0 && absent != ENOENT)
            throw SystemError(fmt::format("{} cannot be read: {}", file().string(), errno_text(absent)));
        if (absent == 0 && status_of(descriptor_, file().string(), own) && own.st_ino == named.st_ino &&
            own.st_dev == named.st_dev)
            return reason;
        // its owner has ended and removed the file
        close(descriptor_);
        descriptor_ = -1;
    }
}

// Used without locks. An owner on this host lives as long as its process. An owner on another host lives if
// it touches its file while this process watches: the clocks of two hosts are not compared.
FolderOwner::Life FolderOwner::life_of(const Who& other) {
    if (other.host == self_.host)
        return start_of_process(other.process) == other.process_start ? Life::goes_on : Life::over;
    const std::string seen = other.id + read_note(file(), read_patience()).touched;
    const bool first_look = watched_.empty(), changed = watched_ != seen;
    watched_ = seen;
    if (first_look || changed) watched_since_ = steady_seconds();
    if (!first_look && changed) return Life::goes_on;
    return steady_seconds() - watched_since_ < options_.patience ? Life::unknown : Life::over;
}

bool FolderOwner::is_used() {
    const Note note = read_note(file(), read_patience());
    if (note.reason == ENOENT || note.reason == ENOTDIR || (note.who && note.who->has_ended)) return false;
    const int descriptor = open_patiently(file().string(), O_RDONLY | O_NONBLOCK, one_look);
    if (descriptor < 0) return errno != ENOENT;
    const int reason = options_.lock_shared(descriptor);
    close(descriptor);  // and with it the lock
    if (reason == 0) return false;
    if (reason == EWOULDBLOCK || !note.who) return true;
    return life_of(*note.who) != Life::over;
}

std::string FolderOwner::lost_to() {
    const std::lock_guard lock(look_);
    const Note note = read_note(file(), one_look);
    if (note.who && note.who->id != self_.id)
        return note.who->text() + (note.who->has_ended ? ", which has ended" : "");
    const bool is_absent = note.reason == ENOENT || note.reason == ENOTDIR;
    const bool has_no_text = !note.who && note.reason == 0;
    looks_at_no_text_ = has_no_text ? looks_at_no_text_ + 1 : 0;
    if (note.who) {
        said_.clear();
    } else if (is_absent) {
        write_again("was removed");
    } else if (looks_at_no_text_ > 1) {  // a run that takes the folder writes its text at once
        std::error_code ignored;
        fs::remove(file(), ignored);
        write_again("was damaged");
    } else {
        say_once(fmt::format(
            "{} cannot be read: {}. No other run has the folder as far as this run knows, so it continues",
            file().string(), has_no_text ? "it has no text of a run" : errno_text(note.reason)));
    }
    return "";
}

// The file was damaged, or it or its whole folder was removed or renamed, for example by a script that cleans
// up.
void FolderOwner::write_again(const char* what_happened) {
    std::error_code ignored;
    fs::create_directories(folder_, ignored);  // if that fails, so does the next line
    const int descriptor = open_patiently(file().string(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, one_look);
    const int reason = descriptor < 0 ? errno : options_.lock(descriptor);
    // another run takes the folder at this moment: the next look sees its id
    const bool is_taken = reason == EEXIST || reason == EWOULDBLOCK;
    std::string why = reason == 0 || has_no_locks(reason) ? "" : errno_text(reason);
    if (why.empty()) try {
            // in one step, since the thread that touches the file uses the descriptor
            dup3(descriptor, descriptor_, O_CLOEXEC);
            write(text_of(self_));
        } catch (const SystemError& error) {
            why = error.what();
        }
    if (descriptor >= 0) close(descriptor);
    const std::string what =
        fmt::format("{} {} while this run uses the folder", file().string(), what_happened);
    if (why.empty())
        log::warn("{}. The run wrote it again and continues. What else was removed there is lost", what);
    else if (!is_taken)
        say_once(fmt::format("{}, and cannot be written again: {}. The run continues", what, why));
}

void FolderOwner::say_once(const std::string& text) {
    if (std::exchange(said_, text) != text) log::warn("{}", text);
}

void FolderOwner::require_owned(const std::function<std::string()>& saved) {
    if (const std::string other = lost_to(); !other.empty())
        throw SystemError(fmt::format(
            "this run has lost its folder {} to another run ({}) while it was suspended; it ends without "
            "writing to it{}",
            folder_.string(), other, saved ? ". " + saved() : ""));
}

void FolderOwner::write(const std::string& text) const {
    const bool written = write_patiently(descriptor_, file().string(), O_RDWR | O_NOFOLLOW, text.data(),
                                         int64_t(text.size()), 0, short_patience) &&
                         ftruncate(descriptor_, off_t(text.size())) == 0 && fsync(descriptor_) == 0;
    if (!written)
        throw SystemError(fmt::format("{} cannot be written: {}", file().string(), errno_text(errno)));
}

void FolderOwner::touch_now_and_then() {
    std::unique_lock lock(mutex_);
    while (!ending_.wait_for(lock, std::chrono::duration<double>(options_.beat), [&] { return ends_; }))
        futimens(descriptor_, nullptr);
}

}  // namespace coeus
