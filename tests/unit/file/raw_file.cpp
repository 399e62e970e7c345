// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/raw_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/file/json.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "support/catch.hpp"
#include "support/full_disk.hpp"
#include "support/support.hpp"
#include "support/system_calls.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <string_view>

using namespace coeus;
using Catch::Contains;

TEST_CASE("a file's bytes are written and read at positions", "[raw_file]") {
    const test::TemporaryFolder folder;
    const std::string path = folder / "x";
    {
        RawFile file = RawFile::create(path);
        file.write("world", 5, 6);
        file.write("hello ", 6, 0);
        file.sync();
        CHECK(file.size() == 11);
    }
    CHECK(test::read_file(path) == "hello world");
    const RawFile file = RawFile::open(path);
    char part[4];
    file.read(part, 4, 3);
    CHECK(std::string_view(part, 4) == "lo w");
    CHECK_THROWS_WITH(file.read(part, 4, 9), Contains("ends before byte 13"));
    RawFile update = RawFile::open_for_update(path);
    update.write("H", 1, 0);
    update.reserve(100000);
    CHECK(test::read_file(path).substr(0, 11) == "Hello world");
}

TEST_CASE("a lack of room on the disk is an error, and the bytes that fit are at their places",
          "[raw_file]") {
    const test::TemporaryFolder folder;
    RawFile file = RawFile::create(folder / "x");
    file.write("0123", 4, 0);
    {
        const test::FullDisk full(6);
        CHECK_THROWS_WITH(file.write("abcdef", 6, 2), Contains("x cannot be written: File too large"));
    }
    CHECK(test::read_file(folder / "x") == "01abcd");
}

TEST_CASE("a mapped file is its content", "[raw_file]") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "x", "content");
    test::write_file(folder / "empty", "");
    MappedFile file(folder / "x");
    const auto text = [&] {
        return std::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    };
    CHECK(text() == "content");
    CHECK(MappedFile(folder / "empty").bytes().empty());
    MappedFile moved = std::move(file);
    file = std::move(moved);
    CHECK(text() == "content");
    CHECK(free_bytes(folder.path()) > 0);
}

TEST_CASE("raw file: a page of a mapped file that cannot be read is an error and not a signal") {
    const test::TemporaryFolder folder;
    constexpr size_t size = size_t(3) << 20;
    test::write_file(folder / "x", std::string(size, 'a'));
    const MappedFile file(folder / "x");
    const auto read_in = [&](size_t from, size_t bytes) { file.read_in(file.bytes().subspan(from, bytes)); };
    read_in(0, size);
    CHECK(file.bytes()[size - 1] == std::byte('a'));
    file.release();
    std::filesystem::resize_file(folder / "x", size_t(1) << 20);  // a use of later pages would be SIGBUS
    set_read_patience(0.01);
    read_in(0, size_t(1) << 20);
    read_in(size, 0);
    CHECK_THROWS_AS(read_in((size_t(1) << 20) - 1, 2), ReadError);
    CHECK_THROWS_WITH(read_in(size - 1, 1), (folder / "x").string() + " cannot be read: Input/output error");
    set_read_patience(1);
}

TEST_CASE("pages are to be released after every 64 MiB", "[raw_file]") {
    constexpr int64_t limit = int64_t(64) << 20;
    PassingPages pages;
    CHECK_FALSE(pages.should_release(limit - 1));
    CHECK(pages.should_release(1));
    CHECK_FALSE(pages.should_release(limit - 1));
    CHECK(pages.should_release(3 * limit));
    CHECK_FALSE(pages.should_release(1));
}

TEST_CASE("publishing replaces the old file atomically", "[raw_file]") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "x", "old");
    test::write_file(folder / "x.part", "new");
    publish_file(folder / "x.part", folder / "x");
    CHECK(test::read_file(folder / "x") == "new");
    CHECK_FALSE(std::filesystem::exists(folder / "x.part"));
    CHECK_THROWS_WITH(publish_file(folder / "gone", folder / "x"),
                      Contains("gone cannot be renamed to") && Contains("No such file"));
}

TEST_CASE("files that cannot be opened", "[raw_file]") {
    const test::TemporaryFolder folder;
    CHECK_THROWS_WITH(RawFile::open(folder / "no"), Contains("no: this file does not exist"));
    CHECK_THROWS_AS(RawFile::open(folder / "no"), ConfigError);
    CHECK_THROWS_WITH(MappedFile(folder.path()), Contains("is a folder, not a file"));
    CHECK_THROWS_WITH(MappedFile("/dev/null"),
                      "/dev/null is a pipe or a device, not a file; write its content to a file first");
    CHECK_THROWS_WITH(RawFile::create((folder / "no") / "x"),
                      Contains("x cannot be created: No such file or directory"));
    CHECK_THROWS_AS(RawFile::open_for_update(folder / "no"), SystemError);
    CHECK_THROWS_AS(free_bytes(folder / "no"), SystemError);
    // paths that cannot be right are mistakes of the user, not failures of the system
    std::filesystem::create_symlink("loop", folder / "loop");
    test::write_file(folder / "file", "");
    const std::string loop = folder / "loop";
    for (const std::string& path : {loop, (folder / std::string(300, 'x')).string(),
                                    (folder / "file").string() + "/x", folder.path().string()}) {
        CAPTURE(path);
        CHECK_THROWS_AS(RawFile::open(path), ConfigError);
        if (path != loop) {  // links are replaced, or not followed
            CHECK_THROWS_AS(RawFile::open_for_update(path), ConfigError);
            CHECK_THROWS_AS(RawFile::create(path), ConfigError);
        }
        CHECK_THROWS_AS(MappedFile(path), ConfigError);
        CHECK_THROWS_AS(read_text_file(path, 1), ConfigError);
    }
    CHECK_THROWS_WITH(RawFile::open((folder / "loop").string()),
                      Contains("loop cannot be read: Too many levels of symbolic links"));
}

TEST_CASE("raw file: a link in the place of a new file is replaced, not followed") {
    const test::TemporaryFolder folder;
    const std::filesystem::path victim = folder / "victim", link = folder / "link";
    const auto plant = [&] {
        test::write_file(victim, "work");
        std::filesystem::remove(link);
        std::filesystem::create_symlink(victim, link);
    };
    const auto check = [&] {
        CHECK(test::read_file(victim) == "work");
        CHECK_FALSE(std::filesystem::is_symlink(link));
    };
    plant();
    CHECK_THROWS_WITH(
        RawFile::open_for_update(link),
        Contains(
            "link cannot be opened for writing: it is a symbolic link, which is not followed; remove it"));
    RawFile::create(link).write("new", 3, 0);
    CHECK(test::read_file(link) == "new");
    check();
    plant();
    hdf5::File::create(link).close();
    CHECK_NOTHROW(hdf5::File::open(link));
    check();
    plant();
    std::filesystem::create_symlink(victim, folder / "link.part");
    write_json(Json(1), link);
    CHECK(test::read_file(link) == "1\n");
    check();
}

TEST_CASE("text file: a pipe, a device and a file that is too long are refused immediately") {
    const test::TemporaryFolder folder;
    const std::string file = folder / "a.txt", pipe = folder / "pipe";
    test::write_file(file, "four");
    CHECK(read_text_file(file, 4) == "four");
    CHECK_THROWS_WITH(read_text_file(file, 3),
                      file + ": cannot be read: it has 4 bytes, more than the 3 that such a file may have");
    CHECK_THROWS_WITH(read_text_file(folder / "none", 3),
                      Contains("none: cannot be read: No such file or directory"));
    CHECK_THROWS_WITH(read_text_file(folder.path(), 3), Contains("cannot be read: it is a folder"));
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    for (const std::string& endless : {pipe, std::string("/dev/zero")}) {
        CHECK_THROWS_AS(read_text_file(endless, 3), ConfigError);
        CHECK_THROWS_WITH(
            read_text_file(endless, 3),
            endless +
                ": cannot be read: it is a pipe or a device, not a file; write its content to a "
                "file first");
    }
    CHECK(read_error(pipe).empty());
    CHECK(read_error(folder.path()) == "Is a directory");
}

TEST_CASE("raw file: short or interrupted writes continue where they stopped") {
    const test::TemporaryFolder folder;
    const std::string path = (folder / "bytes").string();
    std::string text;
    for (int i = 0; i < 1000; ++i) text += char('a' + i * i % 26);
    {
        test::SystemCalls calls;
        calls.most_bytes = 7;
        calls.interrupts = true;
        RawFile file = RawFile::create(path);
        file.write(text.data(), int64_t(text.size()), 3);
        CHECK(calls.noted().size() == 2 * 143);  // pieces of 7 bytes, each after an interruption
    }
    CHECK(test::read_file(path) == std::string(3, '\0') + text);
}

TEST_CASE("raw file: a published file's folder is synchronised after the rename") {
    const test::TemporaryFolder folder;
    const std::string part = (folder / "file.part").string(), path = (folder / "file").string();
    test::write_file(part, "text");
    const test::SystemCalls calls;
    publish_file(part, path);
    const std::string name = folder.path().filename().string();
    CHECK(calls.noted() == std::vector<std::string>{"rename file", "fsync " + name});
}
