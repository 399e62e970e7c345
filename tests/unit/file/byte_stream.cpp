// SPDX-License-Identifier: Apache-2.0
// Compressed files made by zlib and libzstd, read in pieces of any size, then damaged.
#include "coeus/file/byte_stream.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <unistd.h>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

std::string unpacked(const std::filesystem::path& file, size_t piece = 1000) {
    const auto stream = open_stream(file.string());
    std::string all, buffer(piece, 0);
    while (const size_t got = stream->read(buffer.data(), piece)) all.append(buffer, 0, got);
    CHECK(stream->read(buffer.data(), piece) == 0);
    CHECK(stream->position() == int64_t(std::filesystem::file_size(file)));
    return all;
}

std::string problem(const std::filesystem::path& file) {
    try {
        unpacked(file);
        return "none";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

// Text that compresses poorly, so that the files are longer than a buffer.
std::string text_of(size_t bytes) {
    std::string text;
    for (uint64_t i = 1; text.size() < bytes; ++i) text += std::to_string(i * 0x9E3779B97F4A7C15u) + '\n';
    return text;
}

// Returns "" if the program is missing; then the case is skipped.
std::string pack(const TemporaryFolder& folder, const std::string& program, const std::string& text) {
    write_file(folder / "text", text);
    const Outcome outcome =
        run_shell(program + " -c " + (folder / "text").string() + " > " + (folder / "packed").string());
    if (outcome.exit_code == 127) {
        skip("there is no " + program.substr(0, program.find(' ')));
        return "";
    }
    INFO(outcome.output);
    REQUIRE(outcome.exit_code == 0);
    return read_file(folder / "packed");
}

// Tests files packed by `program`; `format` is its name in messages.
void check_format(const std::string& program, const std::string& ending, const std::string& format) {
    const TemporaryFolder folder;
    const std::string text = text_of(700'000), packed = pack(folder, program, text);
    if (packed.empty()) return;
    const auto file = folder / ("a" + ending);
    const auto with = [&](const std::string& content) {
        write_file(file, content);
        return file;
    };
    for (const size_t piece : {1u, 997u, 131072u, 1u << 20}) CHECK((unpacked(with(packed), piece) == text));
    CHECK((unpacked(with(packed + packed), 4096) == text + text));
    const std::string empty = pack(folder, program, "");
    CHECK(unpacked(with(empty)).empty());
    CHECK((unpacked(with(empty + packed + empty)) == text));
    // the data end exactly at the end of an output buffer
    CHECK((unpacked(with(packed), text.size()) == text));

    const std::string name = file.string();
    for (const size_t bytes : {size_t(0), size_t(1), size_t(11), packed.size() / 2, packed.size() - 1})
        CHECK(problem(with(packed.substr(0, bytes))) ==
              name + " is truncated: its " + format + " data is incomplete, at byte " +
                  std::to_string(bytes) + "; download or compress it again");
    CHECK_THAT(problem(with(packed + packed.substr(0, packed.size() / 3))), Contains(" is truncated: its "));
    CHECK(problem(with("\1\2\3\4 is neither packed nor text.")) ==
          name + " is not " + format + " data, although its name says so");
    std::string damaged = packed;
    for (size_t i = packed.size() / 2; i < packed.size() / 2 + 40; ++i) damaged[i] = char(~damaged[i]);
    CHECK_THAT(problem(with(damaged)), Contains(name + " is damaged near byte ") && Contains(format));
    damaged = packed;
    damaged[packed.size() - 5] = char(~damaged[packed.size() - 5]);  // for gzip: in the checksum
    CHECK_THAT(problem(with(damaged)), Contains(name + " is damaged near byte "));
    if (format != "gzip")
        CHECK_THAT(problem(with(packed + "garbage that is no member")),
                   Contains(name + " is damaged near byte "));
}

}  // namespace

TEST_CASE("byte stream: the format follows from the ending of the name") {
    CHECK(packing_of_name("a.gz") == Packing::gzip);
    CHECK(packing_of_name("a.txt.GZ") == Packing::gzip);
    CHECK(packing_of_name("b.zst") == Packing::zstd);
    CHECK(packing_of_name("b.zstd") == Packing::zstd);
    CHECK(packing_of_name("c.gz.txt") == Packing::none);
    CHECK(packing_of_name("gz") == Packing::none);
}

TEST_CASE("byte stream: plain files") {
    const TemporaryFolder folder;
    write_file(folder / "a.txt", "hello");
    write_file(folder / "b.txt", "");
    for (const size_t piece : {1, 3, 5, 100}) CHECK(unpacked(folder / "a.txt", piece) == "hello");
    CHECK(unpacked(folder / "b.txt").empty());
    CHECK(problem(folder / "none") == (folder / "none").string() + ": this file does not exist");
}

TEST_CASE("byte stream: gzip, one member or several, and damaged ones") {
    check_format("gzip", ".gz", "gzip");
}

TEST_CASE("byte stream: zstd, one member or several, and damaged ones") {
    check_format("zstd -q", ".zst", "zstd");
}

TEST_CASE("byte stream: zeros that pad a gzip file are not a member") {
    const TemporaryFolder folder;
    const std::string packed = pack(folder, "gzip", "text");
    if (packed.empty()) return;
    write_file(folder / "padded.gz", packed + std::string(1000, '\0'));
    CHECK(unpacked(folder / "padded.gz") == "text");
}

TEST_CASE("byte stream: bytes after the last member of a gzip file are left out and counted") {
    const TemporaryFolder folder;
    const std::string packed = pack(folder, "gzip", "text");
    if (packed.empty()) return;
    const auto read = [&](const std::string& content) {
        write_file(folder / "a.gz", content);
        CHECK(unpacked(folder / "a.gz") == "text");
        const auto stream = open_stream((folder / "a.gz").string());
        std::string buffer(100, 0);
        while (stream->read(buffer.data(), buffer.size()) > 0) {
        }
        return stream->ignored_bytes();
    };
    CHECK(read(packed) == 0);
    CHECK(read(packed + std::string(1000, '\0')) == 0);
    // more than a buffer; a part of the mark of a member
    for (const std::string& garbage : {std::string("x"), std::string("\x1F"), std::string("\x1Fx"),
                                       std::string(600'000, 'x'), std::string("x") + packed})
        for (const size_t zeros : {0, 1, 1000}) {
            CAPTURE(garbage.size(), zeros);
            CHECK(read(packed + std::string(zeros, '\0') + garbage) == int64_t(garbage.size()));
        }
    // a member that begins in one piece of the file and continues in the next
    const size_t buffer = 256 << 10;
    write_file(folder / "a.gz", packed + std::string(buffer - packed.size() - 1, '\0') + packed);
    CHECK(unpacked(folder / "a.gz") == "texttext");
}

TEST_CASE("byte stream: the first bytes tell the format of a file whose name does not") {
    const TemporaryFolder folder;
    const auto packing = [&](const std::string& content) {
        write_file(folder / "a.jsonl", content);
        return packing_of((folder / "a.jsonl").string());
    };
    using namespace std::string_literals;
    CHECK(packing("\x1F\x8B\x08\0\0\0"s) == Packing::gzip);
    CHECK(packing("\x28\xB5\x2F\xFD\x24") == Packing::zstd);
    CHECK(packing("\x5A\x2A\x4D\x18\1\0\0\0x"s) == Packing::zstd);  // a frame that is skipped comes first
    for (const char* name : {"b.gz", "b.zst"}) {
        CAPTURE(name);
        const auto named = [&](const std::string& content) {
            write_file(folder / name, content);
            return packing_of((folder / name).string());
        };
        const Packing by_name = packing_of_name(name);
        CHECK(named("\x1F\x8B\x08\0\0\0"s) == Packing::gzip);
        CHECK(named("\x28\xB5\x2F\xFD\x24") == Packing::zstd);
        // unpacked while it was downloaded
        CHECK(named("{\"text\": \"a\"}\n") == Packing::none);
        CHECK(named(std::string(63, 'x') + "\u00e9") == Packing::none);  // cut within a character
        for (const std::string& other :
             {""s, "{"s, "\x1F\x8B"s, "abc"s, "\1\2\3\4"s, "text\0"s, "caf\xe9 au lait"s})
            CHECK(named(other) == by_name);
    }
    for (const std::string& text : {""s, "{"s, "text"s, "\x1F\x8B"s, "\x1F\x8B text"s, "\x28\xB5\x2F"s})
        CHECK(packing(text) == Packing::none);
}
