// SPDX-License-Identifier: Apache-2.0
// The texts of messages and errors.
#include "coeus/base/text.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cerrno>
#include <limits>

using namespace coeus;
using Catch::Contains;

TEST_CASE("the nearest name is a likely typing error, or none") {
    const std::vector<std::string> names = {"training.steps", "training.seq_len", "optimizer.lr",
                                            "model.dim"};
    CHECK(nearest_name("training.step", names) == "training.steps");
    CHECK(nearest_name("training.setps", names) == "training.steps");
    CHECK(nearest_name("trainig.seq_len", names) == "training.seq_len");
    CHECK(nearest_name("training.lr", names) == "optimizer.lr");  // right name, wrong section
    CHECK(nearest_name("steps", names) == "training.steps");
    CHECK(nearest_name("zzzzzzzz.qqqqqqqqqq", names).empty());
    CHECK(nearest_name("anything", {}).empty());
}

TEST_CASE("a shell reads a word of a command as it was") {
    CHECK(in_shell("/a/b-c_1.txt") == "/a/b-c_1.txt");
    CHECK(in_shell("").size() == 2);
    for (const std::string word : {"it's", "a b", "$(false)", "`x`", "\\", "", "a\"b", "*", "~", "#"})
        CHECK(run_shell("printf %s " + in_shell(word)).output == word);
}

TEST_CASE("numbers for people") {
    CHECK(counted(1, "line") == "1 line");
    CHECK(counted(0, "line") == "0 lines");
    CHECK(counted(1024, "line") == "1,024 lines");
    CHECK(counted(1, "entry", "entries") == "1 entry");
    CHECK(counted(2, "entry", "entries") == "2 entries");
    CHECK(with_commas(0) == "0");
    CHECK(with_commas(999) == "999");
    CHECK(with_commas(1000) == "1,000");
    CHECK(with_commas(8030261248) == "8,030,261,248");
    CHECK(with_commas(-999) == "-999");
    CHECK(with_commas(-123456) == "-123,456");
    CHECK(bytes_text(512) == "512 B");
    CHECK(bytes_text(12.0 * 1024 * 1024) == "12.0 MiB");
    CHECK(bytes_text(1.5 * 1024 * 1024 * 1024) == "1.50 GiB");
    CHECK(join({}, ", ").empty());
    CHECK(join({"a"}, ", ") == "a");
    CHECK(join({"a", "b", "c"}, ", ") == "a, b, c");
}

TEST_CASE("a text is wrapped at its spaces") {
    CHECK(wrapped("", 10).empty());
    CHECK(wrapped("one two three", 13) == "one two three");
    CHECK(wrapped(" one  two", 9) == " one  two");  // unchanged if it fits
    CHECK(wrapped("one two three", 12) == "one two\nthree");
    CHECK(wrapped("one two three", 7, "  ") == "one two\n  three");
    CHECK(wrapped("one two three", 6, "  ") == "one\n  two\n  three");
    CHECK(wrapped("  one two  three ", 8, "  ") ==
          "  one\n  two\n  three");  // the first indentation is the text's
    CHECK(wrapped("a incomprehensible b", 5) == "a\nincomprehensible\nb");
    CHECK(wrapped("at least 1. At most 2.", 8) == "at\nleast 1.\nAt\nmost 2.");  // "1." would be a list item
    CHECK(wrapped("one - two", 5) == "one -\ntwo");
    CHECK(wrapped("say `a b c` or `d`.", 8) == "say\n`a b c`\nor `d`.");              // code is not broken
    CHECK(wrapped("\xc3\xa4\xc3\xb6\xc3\xbc x", 5) == "\xc3\xa4\xc3\xb6\xc3\xbc x");  // characters, not bytes
}

TEST_CASE("sizes as people write them") {
    CHECK(parse_bytes("5GB") == 5'000'000'000);
    CHECK(parse_bytes("2GiB") == int64_t(2) << 30);
    CHECK(parse_bytes("0.5 GiB") == int64_t(1) << 29);
    CHECK(parse_bytes("200kb") == 200'000);
    CHECK(parse_bytes("3M") == 3'000'000);
    CHECK(parse_bytes("4096") == 4096);
    CHECK(parse_bytes("7B") == 7);
    for (const char* text :
         {"", "GB", "-1GB", "0", "0.2", "5 gigabytes", "5iB", "5GB ", "1e30", "nan", "inf", "5GBB", "99999P"})
        CHECK_FALSE(parse_bytes(text));
}

TEST_CASE("durations for people") {
    CHECK(duration_text(41) == "41 s");
    CHECK(duration_text(187) == "3 m 07 s");
    CHECK(duration_text(2 * 3600 + 5 * 60) == "2 h 05 m");
    CHECK(duration_text(4 * 86400 + 3 * 3600) == "4 d 03 h");
    CHECK(duration_text(std::numeric_limits<double>::quiet_NaN()) == "?");
    CHECK(duration_text(-1) == "?");
    CHECK(duration_text(1e18) == "?");
}

TEST_CASE("a system or logic error names its place in the source") {
    CHECK_THAT(SystemError("open failed").what(), Contains("open failed [") && Contains("text.cpp:"));
    CHECK_THAT(LogicError("odd").what(), Contains("internal error: odd [") && Contains("text.cpp:"));
    CHECK_NOTHROW(require(true, "fine"));
    CHECK_THROWS_AS(require(false, "broken"), LogicError);
    CHECK_THAT(errno_text(ENOSPC), Contains("No space left on device"));
}

TEST_CASE("a configuration error formats its values") {
    CHECK(std::string(ConfigError("{} = {}", "a.b", 3).what()) == "a.b = 3");
    CHECK(int(ExitCode::config) == 2);
    CHECK(int(ExitCode::stopped) == 75);
}

TEST_CASE("text for a terminal has no control characters, and stays on its line") {
    CHECK(printable("caf\u00e9 \u4e2d\U0001f600") == "caf\u00e9 \u4e2d\U0001f600");
    CHECK(printable("a\nb\tc\x7f") == "a\\x0ab\\x09c\\x7f");
    CHECK(printable("\033[2J") == "\\x1b[2J");
    CHECK(printable(std::string_view("\0x", 2)) == "\\x00x");
    CHECK(printable("\u0085 \u202e \u2066 \u2029") == "\\xc2\\x85 \\xe2\\x80\\xae \\xe2\\x81\\xa6 \u2029");
    CHECK(printable("\xff\xc3") == "\\xff\\xc3");
    CHECK(printable("\xe2\x82 x") == "\\xe2\\x82 x");
    CHECK(printable_lines("a\n\tb\r\033[8mc\033[2J\033[12") == "a\n\tb\\x0d\\x1b[8mc\\x1b[2J\\x1b[12");
    CHECK(printable("") == "");
}
