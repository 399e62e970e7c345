// SPDX-License-Identifier: Apache-2.0
// Flags of the small commands: forms, defaults, and messages about mistakes.
#include "coeus/config/command_flags.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <filesystem>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

Flags flags(const std::string& words = "") {
    Flags all("weigh", "[FILE...] --scale NAME [...]", words, "Weighs files.");
    all.add("scale", "NAME", "", "which scale")
        .add("times", "N", "3", "how often")
        .add("part", "X", "0.5", "how much")
        .add_switch("loud", "say it");
    return all;
}

Flags parsed_flags(const std::vector<std::string>& arguments, const std::string& words = "") {
    Flags all = flags(words);
    all.parse(arguments);
    return all;
}

std::string error_of_flags(const std::vector<std::string>& arguments, const std::string& words = "") {
    try {
        const Flags all = parsed_flags(arguments, words);
        all.integer("times", -5, 9);
        all.number("part", 0, 1);
        all.required("scale");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("flags: forms and defaults") {
    const Flags none = parsed_flags({});
    CHECK_FALSE(none.given("scale"));
    CHECK(none.text("scale").empty());
    CHECK(none.integer("times", 0, 9) == 3);
    CHECK(none.number("part", 0, 1) == 0.5);
    CHECK_FALSE(none.given("loud"));
    const Flags all = parsed_flags(
        {"--scale", "kitchen", "a.txt", "--times=7", "--loud", "b.txt", "--part", "1e-1"}, "files");
    CHECK(all.required("scale") == "kitchen");
    CHECK(all.integer("times", 0, 9) == 7);
    CHECK(all.number("part", 0, 1) == 0.1);
    CHECK(all.given("loud"));
    CHECK(all.words() == std::vector<std::string>{"a.txt", "b.txt"});
    CHECK(parsed_flags({"--times=-5"}).integer("times", -5) == -5);
    CHECK(parsed_flags({"--times", "-5"}).integer("times", -5) == -5);
    CHECK(parsed_flags({"--scale=a=b --c"}).text("scale") == "a=b --c");
}

TEST_CASE("flags: a list keeps every value in order") {
    Flags list("weigh", "", "", "");
    list.add_list("end", "TEXT", "may be given several times").add("scale", "NAME", "", "");
    CHECK(list.texts("end").empty());
    list.parse({"--end=a, b", "--scale=x", "--end", "c", "--end=a, b"});
    CHECK(list.given("end"));
    CHECK(list.texts("end") == std::vector<std::string>{"a, b", "c", "a, b"});
    CHECK(list.text("scale") == "x");
}

TEST_CASE("flags: mistakes") {
    CHECK(error_of_flags({"--scale=x"}) == "no error");
    CHECK(error_of_flags({"--scael=x"}) ==
          "coeus weigh: unknown option --scael; did you mean --scale?; options: --scale, --times, --part, "
          "--loud");
    CHECK_THAT(error_of_flags({"--weight"}), Contains("unknown option --weight"));
    Flags generates("generate", "", "", "");
    generates.add("length", "N", "", "").add("lengths", "N", "", "");
    CHECK_THROWS_WITH(generates.parse({"--max-new-tokens=5"}), Contains("did you mean --length?"));
    CHECK(error_of_flags({"--sca=x"}).find("unknown option --sca") !=
          std::string::npos);  // abbreviations are not accepted
    CHECK(error_of_flags({}) == "coeus weigh needs --scale; see coeus help weigh");
    CHECK(error_of_flags({"--scale="}) == "coeus weigh: --scale needs a value");
    CHECK(error_of_flags({"--scale"}) == "coeus weigh: --scale needs a value");
    CHECK(error_of_flags({"--scale=x", "--scale=y"}) == "coeus weigh: --scale is given twice");
    CHECK(error_of_flags({"--loud=yes"}) == "coeus weigh: --loud takes no value");
    CHECK(error_of_flags({"a.txt"}) == "coeus weigh: unexpected argument 'a.txt'; see coeus help weigh");
    CHECK(error_of_flags({}, "a file") == "coeus weigh needs a file; see coeus help weigh");
    for (const std::vector<std::string>& words : {std::vector<std::string>{""}, {"a.txt", ""}})
        CHECK(error_of_flags(words, "a file") == "coeus weigh: an argument is empty; it needs a file");
    for (const char* wrong : {"x", "1.5", "10", "-6", "3 ", "99999999999999999999"})
        CHECK(error_of_flags({std::string("--times=") + wrong}) ==
              std::string(
                  "coeus weigh: --times must be a whole number of at least -5 and at most 9, but is \"") +
                  wrong + "\"");
    for (const char* wrong : {"x", "1.01", "-0.1", "nan", "inf", "0.5x"})
        CHECK(error_of_flags({std::string("--part=") + wrong}) ==
              std::string("coeus weigh: --part must be a number from 0 to 1, but is \"") + wrong + "\"");
    CHECK_THROWS_AS(flags().text("absent"), LogicError);
}

TEST_CASE("flags: what exists is replaced only with --force, and a link that leads nowhere exists") {
    namespace fs = std::filesystem;
    const TemporaryFolder folder;
    write_file(folder / "file", "");
    fs::create_directory(folder / "folder");
    fs::create_symlink("absent", folder / "dangling");
    fs::create_symlink("loop", folder / "loop");
    fs::create_symlink("file", folder / "link");
    fs::create_symlink("/dev/null", folder / "device");
    Flags careful = flags(), forced = flags();
    forced.add_force().parse({"--force"});
    careful.add_force().parse({});
    const auto why_not = [&](const Flags& given, const fs::path& path) -> std::string {
        try {
            given.require_replaceable(path.string());
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "";
    };
    for (const char* name : {"file", "folder", "link"})
        CHECK(why_not(careful, folder / name) ==
              (folder / name).string() + " already exists; --force replaces it");
    for (const char* name : {"dangling", "loop"})
        CHECK(why_not(careful, folder / name) ==
              (folder / name).string() +
                  " already exists: it is a link that leads nowhere; --force replaces it");
    for (const char* name : {"absent", "device"}) CHECK(why_not(careful, folder / name).empty());
    for (const char* name : {"file", "folder", "link", "dangling", "loop", "absent"})
        CHECK(why_not(forced, folder / name).empty());
}

TEST_CASE("flags: a file that is read is not replaced, however it is named") {
    namespace fs = std::filesystem;
    const TemporaryFolder folder;
    write_file(folder / "inner/file", "");
    write_file(folder / "inner2/file", "");
    fs::create_symlink("inner/file", folder / "link");
    fs::create_directory_symlink("inner", folder / "here");
    fs::create_hard_link(folder / "inner/file", folder / "hard");
    const auto why_not = [&](const fs::path& output, const fs::path& input) -> std::string {
        Flags force("weigh", "", "", "");
        force.add_force().parse({"--force"});
        try {
            force.require_not_read("--page", output.string(),
                                   {"", (folder / "absent").string(), input.string()});
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "";
    };
    const fs::path file = folder / "inner/file";
    for (const fs::path& output : {file, folder / "link", folder / "here/file", folder / "hard",
                                   folder / "inner/../here/./file", folder / "inner", folder / "here"})
        CHECK(why_not(output, file) == "coeus weigh: --page " + output.string() + " would replace " +
                                           file.string() + ", which the command reads; give another --page");
    CHECK_FALSE(why_not(file, folder / "link").empty());
    CHECK_FALSE(why_not(folder / "inner", folder / "inner").empty());
    for (const char* output : {"absent", "inner2/file", "inner2", "inner/new"})
        CHECK(why_not(folder / output, file).empty());
    CHECK(why_not(file, folder / "inner").empty());
    CHECK(why_not("/dev/null", "/dev/null").empty());
}

TEST_CASE("flags: two files are different, however they are named") {
    namespace fs = std::filesystem;
    const TemporaryFolder folder;
    write_file(folder / "file", "");
    fs::create_symlink("file", folder / "link");
    fs::create_symlink("loop", folder / "loop");
    fs::create_directory_symlink(".", folder / "here");
    const auto why_not = [&](const fs::path& first, const fs::path& second) -> std::string {
        Flags two("weigh", "", "", "");
        two.add("page", "FILE", "", "").add("table", "FILE", "", "").add("third", "FILE", "", "");
        two.parse({"--page", first.string(), "--table", second.string()});
        two.require_different_files("page", "third");
        try {
            two.require_different_files("page", "table");
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "";
    };
    const std::string new_file = (folder / "new").string();
    for (const fs::path& other :
         {folder / "new", folder / "here/new", folder / "here/../" / folder.path().filename() / "new"})
        CHECK(why_not(other, new_file) ==
              "coeus weigh: --page and --table name the same file, " + new_file + "; give them two names");
    CHECK_FALSE(why_not(folder / "file", folder / "link").empty());
    CHECK_FALSE(why_not("new", fs::current_path() / "new").empty());
    CHECK(why_not(folder / "new", folder / "newer").empty());
    CHECK(why_not(folder / "file", folder / "loop").empty());
}
