// SPDX-License-Identifier: Apache-2.0
// Ownership of a folder: with locks, without them, on this host and on others.
#include "coeus/file/folder_owner.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/support.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Who = FolderOwner::Who;

Who on_host(const std::string& host) {
    Who who = Who::self();
    who.host = host;
    return who;
}

Who start_of_job(int64_t restart) {
    Who who = Who::self();
    who.job = "77";
    who.restart = restart;
    return who;
}

FolderOwner::Options without_locks(double beat, double patience) {
    return {.beat = beat, .patience = patience, .lock = [](int) { return ENOLCK; }};
}

constexpr double never = 1e6;  // seconds

// The log goes to a file while this object lives.
class LogInFile {
public:
    explicit LogInFile(const fs::path& file) : file_(file) { log::init({.file = file, .quiet = true}); }
    ~LogInFile() { log::init({}); }
    LogInFile(const LogInFile&) = delete;
    LogInFile& operator=(const LogInFile&) = delete;
    std::string text() const {
        log::flush();
        return read_file(file_);
    }
    /// How often a text was logged.
    int times(const std::string& text) const {
        const std::string all = this->text();
        int times = 0;
        for (size_t at = 0; (at = all.find(text, at)) != std::string::npos; ++at) ++times;
        return times;
    }

private:
    fs::path file_;
};

}  // namespace

TEST_CASE("folder owner: the second run is refused while the first one lives, and its owner is named") {
    const TemporaryFolder folder;
    {
        FolderOwner first(folder.path(), Who::self());
        REQUIRE(first.take());
        CHECK(first.lost_to() == "");
        const std::string process =
            fmt::format("process {} on host {}, since 20", getpid(), Who::self().host);
        CHECK_THROWS_WITH(
            FolderOwner(folder.path(), Who::self()).take(),
            Contains(folder.path().string() + " is used by another run, which is still alive: " + process) &&
                Contains("job.dump_folder"));
        // the refused run has not changed anything
        CHECK_NOTHROW(first.require_owned());
        // a start of another job does not wait either
        FolderOwner other_job(folder.path(), start_of_job(3));
        CHECK_THROWS_AS(other_job.take(), ConfigError);
    }
    FolderOwner next(folder.path(), Who::self());
    CHECK(next.take());
}

TEST_CASE("folder owner: an earlier start of the same job is waited for") {
    const TemporaryFolder folder;
    FolderOwner requeued(folder.path(), start_of_job(1));
    {
        FolderOwner earlier(folder.path(), start_of_job(0));
        REQUIRE(earlier.take());
        CHECK_FALSE(requeued.take());
        CHECK_THAT(requeued.waits_for(),
                   Contains("the end of an earlier start of this job (process ") && Contains("Slurm job 77"));
        // twice in the same start of the job
        CHECK_THROWS_AS(FolderOwner(folder.path(), start_of_job(0)).take(), ConfigError);
    }
    CHECK(requeued.take());
}

TEST_CASE("folder owner: without locks a run of this host lives as long as its process") {
    const TemporaryFolder folder;
    FolderOwner first(folder.path(), Who::self(), without_locks(0.01, never));
    REQUIRE(first.take());
    CHECK_THROWS_AS(FolderOwner(folder.path(), Who::self(), without_locks(0.01, never)).take(), ConfigError);

    // a process that has ended; and another process that has got its number
    const TemporaryFolder other;
    const pid_t child = fork();
    if (child == 0) {
        FolderOwner gone(other.path(), Who::self(), without_locks(0.01, never));
        _exit(gone.take() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    REQUIRE(status == 0);
    FolderOwner next(other.path(), Who::self(), without_locks(0.01, never));
    CHECK(next.take());
    const TemporaryFolder third;
    Who reused = Who::self();
    --reused.process_start;
    FolderOwner old(third.path(), reused, without_locks(0.01, never));
    REQUIRE(old.take());
    FolderOwner young(third.path(), Who::self(), without_locks(0.01, never));
    CHECK(young.take());
    CHECK(old.lost_to() == young.self().text());
}

TEST_CASE("folder owner: without locks a run of another host lives as long as it touches its file") {
    const TemporaryFolder folder;
    FolderOwner alive(folder.path(), on_host("n1"), without_locks(0.01, never));
    REQUIRE(alive.take());
    FolderOwner second(folder.path(), on_host("n2"), without_locks(0.01, never));
    const auto take = [&] {
        for (const Timer timer; timer.seconds() < patience(20); sleep_seconds(0.05))
            if (second.take()) return true;
        return false;
    };
    CHECK_THROWS_WITH(take(), Contains("on host n1"));
    CHECK_THAT(second.waits_for(), Contains("a sign of life of the run there (process "));
    CHECK(alive.lost_to() == "");
}

TEST_CASE(
    "folder owner: without locks a suspended run of another host loses its folder, and then changes "
    "nothing") {
    const TemporaryFolder folder;
    FolderOwner next(folder.path(), on_host("n2"), without_locks(0.01, 0.2));
    {
        FolderOwner suspended(folder.path(), on_host("n1"), without_locks(never, 0.2));
        // after a sleep of at most a second
        REQUIRE(suspended.take());
        CHECK_FALSE(next.take());
        bool taken = false;
        for (const Timer timer; !taken && timer.seconds() < patience(20); sleep_seconds(0.05))
            taken = next.take();
        REQUIRE(taken);
        CHECK_THROWS_WITH(suspended.require_owned(),
                          Contains("this run has lost its folder " + folder.path().string()) &&
                              Contains("on host n2") && Contains("it ends without writing to it"));
    }
    CHECK(next.lost_to() == "");
}

TEST_CASE("folder owner: a suspended run of another host sees that a run that has ended took its folder") {
    const TemporaryFolder folder;
    FolderOwner suspended(folder.path(), on_host("n1"), without_locks(never, 0.2));
    REQUIRE(suspended.take());
    {
        FolderOwner next(folder.path(), on_host("n2"), without_locks(0.01, 0.2));
        for (const Timer timer; !next.is_owned(); sleep_seconds(0.05)) {
            REQUIRE(timer.seconds() < patience(20));
            next.take();
        }
    }
    CHECK_THAT(suspended.lost_to(), Contains("on host n2") && Contains(", which has ended"));
    // it is in nobody's way
    FolderOwner third(folder.path(), on_host("n3"), without_locks(0.01, never));
    CHECK(third.take());
}

TEST_CASE("folder owner: a file that is not a note belongs to no run, and a link is not followed") {
    const TemporaryFolder folder;
    write_file(folder / ".owner", "{\"id\": 5}");
    {
        FolderOwner owner(folder.path(), Who::self());
        CHECK(owner.take());
    }
    CHECK_FALSE(std::filesystem::exists(folder / ".owner"));
    std::filesystem::remove(folder / ".owner");
    std::filesystem::create_symlink(folder / "elsewhere", folder / ".owner");
    CHECK_THROWS_WITH(FolderOwner(folder.path(), Who::self()).take(), Contains(".owner cannot be opened: "));
    CHECK_FALSE(std::filesystem::exists(folder / "elsewhere"));
}

TEST_CASE("folder owner: a file that cannot be read is not another run's") {
    const TemporaryFolder folder;
    const LogInFile log(folder / "log");
    const fs::path file = folder / ".owner";
    FolderOwner owner(folder.path(), Who::self());
    REQUIRE(owner.take());
    const std::string text = read_file(file);
    const auto spoil = GENERATE(0, 1, 2, 3);
    fs::remove(file);
    if (spoil == 0) fs::create_directory(file);
    if (spoil == 1) fs::create_symlink(file, file);
    if (spoil == 2) write_file(file, "");
    if (spoil == 3) write_file(file, text.substr(0, 20));
    CHECK_NOTHROW(owner.require_owned());
    CHECK_NOTHROW(owner.require_owned());
    CHECK_THAT(log.text(), Contains(file.string() + " cannot be read: ") && Contains("so it continues"));
    CHECK(log.times("cannot be read") == 1);
    // a text that stays damaged is written again
    if (spoil >= 2) CHECK(read_file(file) == text);
    CHECK(log.times("was damaged while this run uses the folder. The run wrote it again") == (spoil >= 2));
    // if it can be read again, the next failure is a new one
    fs::remove(file);
    write_file(file, text);
    CHECK(owner.lost_to().empty());
    write_file(file, "");
    CHECK_NOTHROW(owner.require_owned());
    CHECK(log.times("cannot be read") == 2);
}

TEST_CASE("folder owner: a file or folder that was removed is made again, unless another run has it") {
    const TemporaryFolder folder;
    const LogInFile log(folder / "log");
    const fs::path run = folder / "run", file = run / ".owner";
    const bool has_locks = GENERATE(true, false);
    fs::create_directory(run);
    {
        FolderOwner owner(run, Who::self(), has_locks ? FolderOwner::Options() : without_locks(0.01, never));
        REQUIRE(owner.take());
        const auto is_refused = [&] {
            FolderOwner other(run, Who::self(),
                              has_locks ? FolderOwner::Options() : without_locks(0.01, never));
            CHECK_THROWS_WITH(other.take(), Contains("another run, which is still alive: process "));
        };
        fs::remove(file);
        CHECK_NOTHROW(owner.require_owned());
        CHECK_THAT(log.text(), Contains(file.string() + " was removed while this run uses the folder. "));
        is_refused();
        fs::rename(run, folder / "elsewhere");
        CHECK_NOTHROW(owner.require_owned());
        CHECK(fs::exists(file));
        CHECK(log.times("was removed while") == 2);
        is_refused();
        // it cannot be made: a file has the folder's name
        fs::remove_all(run);
        write_file(run, "");
        CHECK_NOTHROW(owner.require_owned());
        CHECK_NOTHROW(owner.require_owned());
        CHECK(log.times("cannot be written again: ") == 1);
        fs::remove(run);
        CHECK_NOTHROW(owner.require_owned());
        is_refused();
        // another run takes the folder before this one looks
        fs::remove(file);
        FolderOwner next(run, Who::self());
        REQUIRE(next.take());
        CHECK_THROWS_WITH(owner.require_owned(), Contains("has lost its folder " + run.string()));
    }
    CHECK_FALSE(fs::exists(file));
}

TEST_CASE("folder owner: a process that does not want the folder sees whether a run has it") {
    const TemporaryFolder folder;
    const auto used = [&] { return FolderOwner(folder.path(), Who::self()).is_used(); };
    CHECK_FALSE(used());
    {
        FolderOwner first(folder.path(), Who::self());
        REQUIRE(first.take());
        CHECK(used());
        CHECK(used());
        CHECK_NOTHROW(first.require_owned());
    }
    CHECK_FALSE(used());
    const std::string left = R"({"id":"x","host":"n1","process":1,"process_start":1,"job":"",)"
                             R"("restart":0,"since":"")";
    write_file(folder / ".owner", left + "}");  // of a run that was killed
    CHECK_FALSE(used());

    // without locks, on another host: as long as the file is touched
    FolderOwner::Options options = without_locks(never, 0.5);
    options.lock_shared = options.lock;
    FolderOwner other(folder.path(), on_host("n1"), without_locks(never, never));
    REQUIRE(other.take());
    FolderOwner watching(folder.path(), Who::self(), options);
    CHECK(watching.is_used());
    sleep_seconds(0.6);  // longer than the patience
    fs::last_write_time(folder / ".owner", fs::file_time_type::clock::now());
    const double before = steady_seconds();
    CHECK(watching.is_used());
    const bool again = watching.is_used();  // the patience has begun again
    CHECK((again || steady_seconds() - before >= 0.5));
    while (watching.is_used()) sleep_seconds(0.05);
    CHECK_FALSE(watching.is_used());
    write_file(folder / ".owner", left + R"(,"ended":true})");
    CHECK_FALSE(watching.is_used());
}
