// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/patient_io.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/system_calls.hpp"

#include <fcntl.h>
#include <unistd.h>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// The log goes to a file while this object lives.
class LogFile {
public:
    explicit LogFile(fs::path file) : file_(std::move(file)) { log::init({.file = file_, .quiet = true}); }
    ~LogFile() { log::init({}); }
    LogFile(const LogFile&) = delete;
    LogFile& operator=(const LogFile&) = delete;
    std::string text() const {
        log::flush();
        return read_file(file_);
    }

private:
    fs::path file_;
};

}  // namespace

TEST_CASE("patient io: what may pass is tried again, and nothing else") {
    int calls = 0;
    const auto failing = [&](int code, int times) {
        calls = 0;
        return patiently(
            "some file",
            [&] {
                errno = code;
                return ++calls > times ? 7 : -1;
            },
            1);
    };
    for (const int code : {ESTALE, EIO, EINTR, EMFILE, ENFILE, EAGAIN, ETIMEDOUT}) {
        INFO(code);
        CHECK(failing(code, 3) == 7);
        CHECK(calls == 4);
    }
    for (const int code : {ENOENT, EACCES, ENOSPC, ELOOP, EEXIST}) {
        INFO(code);
        CHECK(failing(code, 3) == -1);
        CHECK(errno == code);
        CHECK(calls == 1);
    }
    CHECK(failing(ENOENT, 0) == 7);
}

TEST_CASE("patient io: the patience ends, and one warning names file and reason") {
    const TemporaryFolder folder;
    const LogFile log(folder / "log");
    const std::string file = folder / "tokens.h5";
    const auto never = [](int code) {
        return [code] {
            errno = code;
            return -1;
        };
    };
    const double before = read_patience();
    set_read_patience(0.004);
    for (int i = 0; i < 2; ++i) {
        CHECK(patiently(file, never(EIO)) == -1);
        CHECK(errno == EIO);
    }
    CHECK(patiently(file, never(ESTALE)) == -1);
    CHECK(patiently(file, never(EINTR)) == -1);
    CHECK(patiently(file, never(ETIMEDOUT), 0.002) == -1);  // the caller warns
    set_read_patience(before);
    const std::string text = log.text();
    INFO(text);
    CHECK(count_of(file + " cannot be used: Input/output error. Trying again, for at most 0.004 s", text) ==
          1);
    CHECK(count_of(file + " cannot be used: Stale file handle. ", text) == 1);
    CHECK(count_of("Interrupted", text) == 0);
    CHECK(count_of("timed out", text) == 0);
}

TEST_CASE("patient io: files and folders are read whole, or the reason is given") {
    const TemporaryFolder folder;
    std::error_code failed;
    write_file(folder / "a", "text");
    write_file(folder / "empty", "");
    CHECK(text_patiently(folder / "a", failed) == "text");
    CHECK_FALSE(failed);
    CHECK(text_patiently(folder / "empty", failed).empty());
    CHECK_FALSE(failed);
    CHECK(text_patiently(folder / "absent", failed).empty());
    CHECK(failed == std::errc::no_such_file_or_directory);
    CHECK(text_patiently(folder.path(), failed).empty());
    CHECK(failed == std::errc::is_a_directory);
    CHECK(entries_patiently(folder.path(), failed).size() == 2);
    CHECK_FALSE(failed);
    CHECK(entries_patiently(folder / "absent", failed).empty());
    CHECK(failed == std::errc::no_such_file_or_directory);
    CHECK(status_patiently(folder / "a", failed).type() == fs::file_type::regular);
    CHECK(status_patiently(folder / "absent", failed).type() == fs::file_type::not_found);
    fs::create_symlink(folder / "loop", folder / "loop");
    CHECK(status_patiently(folder / "loop", failed).type() == fs::file_type::none);
    CHECK(failed == std::errc::too_many_symbolic_link_levels);
}

TEST_CASE("patient io: a system that cannot tell whether a file exists does not say that it is absent") {
    const TemporaryFolder folder;
    const std::string file = folder / "a";
    write_file(file, "");
    CHECK(exists_patiently(file));
    CHECK(is_file_patiently(file));
    CHECK_FALSE(is_folder_patiently(file));
    CHECK(is_folder_patiently(folder.path()));
    CHECK_FALSE(exists_patiently(folder / "b"));
    CHECK_FALSE(exists_patiently(file + "/c"));
    SystemCalls calls;
    calls.look_error = ESTALE;
    for (const auto look : {exists_patiently, is_file_patiently}) {
        calls.failing_looks = 3;
        CHECK(look(file));
        CHECK(calls.failing_looks == 0);
    }
    calls.failing_looks = 3;
    CHECK(are_same_patiently(file, fs::path(file).parent_path() / "." / fs::path(file).filename()));
    CHECK(calls.failing_looks == 0);
    CHECK_FALSE(are_same_patiently(file, file + "_absent"));
    CHECK_FALSE(are_same_patiently(file, fs::path(file).parent_path()));
    set_read_patience(0.01);
    calls.failing_looks = 1'000'000;
    for (const auto look : {exists_patiently, is_file_patiently, is_folder_patiently}) {
        CHECK_THROWS_AS(look(file), SystemError);
        CHECK_THROWS_WITH(look(file), Contains(file + " cannot be read: Stale file handle"));
    }
    CHECK_THROWS_AS(are_same_patiently(file, file), SystemError);
    CHECK_THROWS_AS(size_patiently(file), SystemError);
    calls.look_error = EACCES;
    CHECK_FALSE(exists_patiently(file));
    set_read_patience(1);
}

TEST_CASE("patient io: bytes are read and written at their place, to the end of the file") {
    const TemporaryFolder folder;
    const std::string file = folder / "a";
    const int descriptor = open_patiently(file, O_RDWR | O_CREAT);
    REQUIRE(descriptor >= 0);
    CHECK(write_patiently(descriptor, file, O_RDWR, "abcdef", 6, 2));
    std::string text(10, '-');
    CHECK(read_patiently(descriptor, file, O_RDWR, text.data(), 10, 4) == 4);
    CHECK(text == "cdef------");
    close(descriptor);
    CHECK(read_patiently(descriptor, file, O_RDWR, text.data(), 1, 0) == -1);
    CHECK(errno == EBADF);
}

TEST_CASE("patient io: a stale handle is opened again, unless another file has the name") {
    const TemporaryFolder folder;
    const std::string file = folder / "a";
    write_file(file, "abc");
    const int descriptor = open_patiently(file, O_RDONLY);
    REQUIRE(descriptor >= 0);
    std::string text(3, '-');
    std::optional<FileIdentity> identity;
    const auto read_all = [&](int error, int64_t times) {
        SystemCalls calls;
        calls.read_error = error;
        calls.failing_reads = times;
        lseek(descriptor, 2, SEEK_SET);  // a new handle begins at 0
        return read_patiently(descriptor, file, O_RDONLY, text.data(), 3, 0, 0.05, identity);
    };
    CHECK(read_all(EIO, 3) == 3);
    CHECK(lseek(descriptor, 0, SEEK_CUR) == 2);
    CHECK(read_all(ESTALE, 2) == 3);
    CHECK(lseek(descriptor, 0, SEEK_CUR) == 0);
    CHECK(text == "abc");
    write_file(folder / "b", "xyz");
    fs::rename(folder / "b", file);
    CHECK(read_all(ESTALE, 1) == -1);
    CHECK(errno == ENOENT);
    // a handle that the server has forgotten cannot be asked: here it tells of the new file
    identity = identity_of(descriptor, file);
    REQUIRE(identity);
    const int renamed = open_patiently(file, O_RDONLY);
    dup2(renamed, descriptor);
    close(renamed);
    CHECK(read_all(ESTALE, 1) == -1);
    CHECK(errno == ENOENT);
    identity = identity_of(descriptor, file);
    CHECK(read_all(ESTALE, 1) == 3);
    CHECK(text == "xyz");
    close(descriptor);
}

TEST_CASE("patient io: a link in the place of a file of a run is not followed") {
    const TemporaryFolder folder;
    const fs::path victim = folder / "victim", link = folder / "link";
    write_file(victim, "work");
    const auto plant = [&](const fs::path& at) {
        fs::remove(at);
        fs::create_symlink(victim, at);
    };
    plant(link);
    TelemetryFile lines(link);
    CHECK_THROWS_WITH(lines.require_open(), Contains("cannot write " + link.string() +
                                                     ": it is a symbolic link, and a run does not "));
    CHECK_FALSE(lines.append("1"));
    plant(folder / "link.part");
    write_whole_file(link, "new");
    CHECK(read_file(link) == "new");
    CHECK_FALSE(fs::is_symlink(link));
    CHECK(files_in(folder.path()) == std::vector<std::string>{"link", "victim"});
    CHECK(read_file(victim) == "work");
}
