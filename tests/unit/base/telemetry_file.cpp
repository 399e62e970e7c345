// SPDX-License-Identifier: Apache-2.0
// Files of a run that cannot be written for a while: no partial record remains, and losses are counted.
#include "coeus/base/telemetry_file.hpp"

#include "coeus/base/log.hpp"
#include "support/catch.hpp"
#include "support/full_disk.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <optional>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// The log while this object lives.
class Said {
public:
    Said() { log::init({.file = file_.string(), .quiet = true}); }
    ~Said() { log::init({}); }
    Said(const Said&) = delete;
    Said& operator=(const Said&) = delete;
    std::string text() const { return read_file(file_); }

private:
    TemporaryFolder folder_;
    std::filesystem::path file_ = folder_ / "log";
};

}  // namespace

TEST_CASE("telemetry file: a partly written line is removed, and later lines follow") {
    const TemporaryFolder folder;
    const auto path = folder / "a.jsonl";
    const Said said;  // nothing is logged to a file while the disk is full
    std::optional<TelemetryFile> file(path);
    CHECK(file->append("{\"step\":1}"));
    {
        const FullDisk full(rlim_t(read_file(path).size()) + 4);  // a part of the next line fits
        CHECK_FALSE(file->append("{\"step\":2}"));
        CHECK(read_file(path) == "{\"step\":1}\n");
        CHECK_FALSE(file->append("{\"step\":3}"));
        CHECK(file->append("{}"));  // a line that fits is written
        CHECK_FALSE(file->append("{\"step\":4}"));
    }
    CHECK(file->append("{\"step\":5}"));
    CHECK(read_file(path) == "{\"step\":1}\n{}\n{\"step\":5}\n");
    const std::string name = path.string();
    const auto count = [&](const std::string& text) { return count_of(text, said.text()); };
    file.reset();
    CHECK(count("3 lines of " + name + " are lost: " + name + " cannot be written: File too large") == 1);
}

TEST_CASE("telemetry file: framed records follow complete ones, and the head comes first") {
    const TemporaryFolder folder;
    const auto path = folder / "events";
    TelemetryFile file(path, {.record = "record", .lines = false, .head = "HEAD"});
    {
        const FullDisk full(6);
        CHECK_FALSE(file.append("abcdef"));
        CHECK(read_file(path).empty());
    }
    CHECK(file.append("abcdef"));
    {
        const FullDisk full(12);
        CHECK_FALSE(file.append("ghi"));
    }
    CHECK(file.append("jkl"));
    CHECK(read_file(path) == "HEADabcdefjkl");
}

TEST_CASE(
    "telemetry file: an incomplete last line is ended, and a file that becomes writable again is continued") {
    const TemporaryFolder folder;
    const auto path = folder / "a.jsonl";
    write_file(path, "cut sho");
    TelemetryFile file(path);
    CHECK(file.append("next"));
    CHECK(read_file(path) == "cut sho\nnext\n");
    write_file(path, "");  // another program has emptied it
    CHECK(file.append("more"));
    CHECK(read_file(path) == "more\n");

    // its folder is missing for a while
    const Said said;
    TelemetryFile later(folder / "sub/b.jsonl");
    for (int i = 0; i < 3; ++i) CHECK_FALSE(later.append("1"));
    CHECK_THROWS_WITH(later.require_open(),
                      Contains("cannot write ") && Contains("sub/b.jsonl: No such file or directory"));
    std::filesystem::create_directory(folder / "sub");
    CHECK(later.append("2"));
    CHECK(read_file(folder / "sub/b.jsonl") == "2\n");
    CHECK_FALSE(TelemetryFile("/dev/full").append("1"));
    const std::string name = (folder / "sub/b.jsonl").string(), text = said.text();
    INFO(text);
    CHECK(
        count_of(name + " cannot be written: No such file or directory. Training continues; lost records are",
                 text) == 1);
    CHECK(count_of("Writing works again: 3 lines of " + name + " are lost", text) == 1);
    CHECK(count_of("/dev/full cannot be written: No space left on device. Training", text) == 1);
    CHECK(count_of("1 line of /dev/full is lost: /dev/full cannot be written: No space left", text) == 1);
}

TEST_CASE(
    "telemetry file: a log file that cannot be written is reported on the terminal, and written again "
    "later") {
    const TemporaryFolder folder;
    const auto path = folder / "rank_0.log";
    struct Restore {
        ~Restore() { log::init({}); }
    } const restore;
    log::init({.file = path.string(), .quiet = true});
    log::info("the first");
    const std::string before = read_file(path);
    {
        const FullDisk full(rlim_t(before.size()) + 1);
        log::info("the second");
        log::info("the third");
        CHECK(read_file(path) == before);
    }
    log::info("the fourth");
    const std::string after = read_file(path);
    CHECK_THAT(after, Contains("the first") && !Contains("the second") && !Contains("the third") &&
                          Contains("the fourth\n"));
    // the warning itself is the third lost line
    CHECK_THAT(after, Contains("Writing works again: 3 lines of " + path.string() + " are lost"));
}

TEST_CASE("telemetry file: a whole file that cannot be written leaves no partial file") {
    const TemporaryFolder folder;
    const auto path = folder / "trace.json";
    Losses losses("trace", "of the steps");
    {
        const FullDisk full(1000);
        CHECK_FALSE(losses.attempt([&] { write_whole_file(path, std::string(100000, 'x')); }));
        CHECK_FALSE(std::filesystem::exists(path));
    }
    CHECK(losses.attempt([&] { write_whole_file(path, std::string(100000, 'x')); }));
    CHECK(read_file(path).size() == 100000);
    CHECK(losses.count() == 1);
}
