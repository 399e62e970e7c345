// SPDX-License-Identifier: Apache-2.0
#include "coeus/hdf5/hdf5.hpp"

#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/system_calls.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>

using namespace coeus;
using Catch::Contains;

namespace {

template <class T>
std::vector<T> counted(int64_t n) {
    std::vector<T> values(size_t(n), T(0));
    std::iota(values.begin(), values.end(), T(3));
    return values;
}

template <class T>
std::span<const T> view(const std::vector<T>& values) {
    return values;
}

/// A small file with one group, two arrays and attributes.
std::string hdf5_sample(const test::TemporaryFolder& folder) {
    const std::string path = folder / "sample.h5";
    auto file = hdf5::File::create(path);
    file.create_dataset("model/a.weight", hdf5::Type::f32, {3, 5}).write(view(counted<float>(15)));
    file.create_dataset("tokens", hdf5::Type::u16, {40000}).write(view(counted<uint16_t>(40000)));
    file.set_attribute("step", 7);
    file.close();
    return path;
}

/// Runs `body` in a child process whose files may not grow beyond `bytes`; returns true if it returned true.
bool in_small_files(rlim_t bytes, const std::function<bool()>& body) {
    const pid_t child = fork();
    if (child == 0) {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{bytes, bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
        std::exit(body() ? 0 : 1);  // includes HDF5's own exit function, which must not fail
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEMPLATE_TEST_CASE("arrays of every type are read back", "[hdf5]", double, float, int64_t, int32_t, uint64_t,
                   uint32_t, uint16_t, uint8_t) {
    const test::TemporaryFolder folder;
    const std::string path = folder / "x.h5";
    const auto values = counted<TestType>(24);
    {
        auto file = hdf5::File::create(path);
        file.create_dataset("x", hdf5::type_of<TestType>(), {2, 3, 4}).write(view(values));
        file.close();
    }
    const auto file = hdf5::File::open(path);
    const auto x = file.dataset("x");
    CHECK(x.type() == hdf5::type_of<TestType>());
    CHECK(x.shape() == Shape{2, 3, 4});
    CHECK(x.read_all<TestType>() == values);
}

TEST_CASE("every flat range of an array can be written and read separately", "[hdf5]") {
    const test::TemporaryFolder folder;
    for (const Shape& shape :
         {Shape{7}, Shape{3, 5}, Shape{2, 3, 4}, Shape{2, 1, 3, 2}, Shape{}, Shape{1, 1}}) {
        const int64_t n = shape.count();
        const auto values = counted<int32_t>(n);
        for (int64_t first = 0; first <= n; ++first)
            for (int64_t count = 0; first + count <= n; ++count) {
                const std::string path = folder / "range.h5";
                auto file = hdf5::File::create(path);
                auto x = file.create_dataset("x", hdf5::Type::i32, shape);
                x.write(view(std::vector<int32_t>(size_t(n), -1)));
                x.write(view(values).subspan(size_t(first), size_t(count)), first);
                std::vector<int32_t> expected(size_t(n), -1), part(static_cast<size_t>(count));
                std::copy_n(values.begin() + first, count, expected.begin() + first);
                REQUIRE(x.read_all<int32_t>() == expected);
                x.read(std::span<int32_t>(part), first);
                REQUIRE(std::equal(part.begin(), part.end(), values.begin() + first));
            }
    }
}

namespace {

const std::vector<float> halves = {0.f, -0.f, 1.f, -2.5f, 0.15625f, 1024.f};

std::vector<bf16> halves_in_bf16() {
    return {halves.begin(), halves.end()};
}

/// A file that stores them as bfloat16 and as half precision.
std::string file_of_halves(const test::TemporaryFolder& folder) {
    const std::string path = folder / "half.h5";
    std::vector<f16> h;
    for (const float v : halves) h.push_back(to_f16(v));
    auto file = hdf5::File::create(path);
    file.create_dataset("b", hdf5::Type::bf16, {2, 3}).write(view(halves_in_bf16()));
    file.create_dataset("h", hdf5::Type::f16, {6}).write(view(h));
    file.close();
    return path;
}

}  // namespace

TEST_CASE("16-bit floats come back, as numbers and as bits", "[hdf5]") {
    const test::TemporaryFolder folder;
    const auto file = hdf5::File::open(file_of_halves(folder));
    CHECK(file.dataset("b").type() == hdf5::Type::bf16);
    CHECK(file.dataset("h").type() == hdf5::Type::f16);
    CHECK(file.dataset("b").read_all<float>() == halves);
    CHECK(file.dataset("h").read_all<float>() == halves);
    const auto bits = file.dataset("b").read_all<bf16>(), expected = halves_in_bf16();
    REQUIRE(bits.size() == expected.size());
    CHECK(std::memcmp(bits.data(), expected.data(), bits.size() * 2) == 0);
}

TEST_CASE("16-bit floats are numbers to other programs", "[hdf5]") {
    const test::TemporaryFolder folder;
    const auto dump = test::run_shell("h5dump " + file_of_halves(folder));
    if (dump.exit_code == 127) return test::skip("there is no h5dump (Debian: hdf5-tools)");
    CHECK_THAT(dump.output, Contains("0, -0, 1,") && Contains("-2.5, 0.15625, 1024"));
    // in both arrays
    CHECK(test::count_of("0, -0, 1,", dump.output) == 2);
}

TEST_CASE("an array can be mapped at its offset", "[hdf5]") {
    const test::TemporaryFolder folder;
    const std::string path = hdf5_sample(folder);
    const auto file = hdf5::File::open(path);
    const auto tokens = file.dataset("tokens");
    REQUIRE(tokens.offset().has_value());
    CHECK(*tokens.offset() % 4096 == 0);
    const std::string bytes = test::read_file(path);
    const auto values = counted<uint16_t>(40000);
    CHECK(std::memcmp(bytes.data() + *tokens.offset(), values.data(), 80000) == 0);

    auto empty = hdf5::File::create(folder / "empty.h5");
    const auto none = empty.create_dataset("none", hdf5::Type::u16, {0});
    CHECK_FALSE(none.offset().has_value());
    CHECK(none.read_all<uint16_t>().empty());
}

TEST_CASE("attributes of numbers and text", "[hdf5]") {
    const test::TemporaryFolder folder;
    const std::string long_text(100000, 'x');
    {
        auto file = hdf5::File::create(folder / "a.h5");
        file.set_attribute("int", int64_t(1) << 60);
        file.set_attribute("double", 0.1);
        file.set_attribute("text", "größer\nzweite Zeile");
        file.set_attribute("empty", "");
        file.set_attribute("long", long_text);
        auto group = file.create_group("train/deep");
        group.set_attribute("small", -3);
        file.close();
    }
    const auto file = hdf5::File::open(folder / "a.h5");
    CHECK(file.int_attribute("int") == int64_t(1) << 60);
    CHECK(file.string_attribute("text") == "größer\nzweite Zeile");
    CHECK(file.string_attribute("empty").empty());
    CHECK(file.string_attribute("long") == long_text);
    CHECK(file.group("train/deep").int_attribute("small") == -3);
    CHECK(file.has_attribute("int"));
    CHECK_FALSE(file.has_attribute("no"));
    CHECK_THROWS_WITH(file.int_attribute("no"), Contains("a.h5: / has no attribute 'no'"));
    CHECK_THROWS_WITH(file.int_attribute("text"), Contains("attribute 'text' of / is not an integer"));
    CHECK_THROWS_WITH(file.string_attribute("int"), Contains("attribute 'int' of / is not a string"));
    CHECK_THROWS_AS(file.int_attribute("double"), ConfigError);
}

TEST_CASE("names and presence", "[hdf5]") {
    const test::TemporaryFolder folder;
    const auto file = hdf5::File::open(hdf5_sample(folder));
    CHECK(file.names() == std::vector<std::string>{"model", "tokens"});
    CHECK(file.group("model").names() == std::vector<std::string>{"a.weight"});
    CHECK(file.dataset_paths() == std::vector<std::string>{"model/a.weight", "tokens"});
    CHECK(file.has("model/a.weight"));
    CHECK_FALSE(file.has("model/b"));
    CHECK_FALSE(file.has("no/group/here"));
}

TEST_CASE("the same calls give the same bytes: no times are stored", "[hdf5]") {
    const test::TemporaryFolder one, two;
    const auto before = uint32_t(time(nullptr));
    const std::string bytes = test::read_file(hdf5_sample(one));
    const auto after = uint32_t(time(nullptr));
    CHECK(bytes == test::read_file(hdf5_sample(two)));
    bool has_time = false;
    const size_t metadata = 2048;  // the counted values after it could look like a time
    for (size_t i = 0; i + 4 <= std::min(metadata, bytes.size()); ++i) {
        uint32_t word;
        std::memcpy(&word, bytes.data() + i, 4);
        has_time |= word >= before && word <= after;
    }
    CHECK_FALSE(has_time);
}

TEST_CASE("errors of a file are reported in words", "[hdf5]") {
    const test::TemporaryFolder folder;
    const std::string path = hdf5_sample(folder);
    SECTION("absent") {
        CHECK_THROWS_WITH(hdf5::File::open(folder / "no.h5"), Contains("no.h5: this file does not exist"));
        CHECK_THROWS_AS(hdf5::File::open(folder / "no.h5"), ConfigError);
    }
    SECTION("a folder") {
        CHECK_THROWS_WITH(hdf5::File::open(folder.path()), Contains("is a folder, not a file"));
    }
    SECTION("foreign or empty") {
        test::write_file(folder / "foreign.h5", "PK\3\4 this is something else entirely");
        CHECK_THROWS_WITH(hdf5::File::open(folder / "foreign.h5"),
                          Contains("foreign.h5 is not an HDF5 file"));
        test::write_file(folder / "empty.h5", "");
        CHECK_THROWS_WITH(hdf5::File::open(folder / "empty.h5"), Contains("empty.h5 is not an HDF5 file"));
    }
    SECTION("truncated") {
        const std::string bytes = test::read_file(path);
        for (size_t length : {bytes.size() - 1, bytes.size() / 2, size_t(4096), size_t(100)}) {
            test::write_file(folder / "short.h5", bytes.substr(0, length));
            CHECK_THROWS_WITH(hdf5::File::open(folder / "short.h5"), Contains("short.h5 is truncated"));
            CHECK_THROWS_AS(hdf5::File::open(folder / "short.h5"), ConfigError);
        }
        test::write_file(folder / "short.h5", bytes.substr(0, 20));
        CHECK_THROWS_WITH(hdf5::File::open(folder / "short.h5"), Contains("short.h5 is a damaged HDF5 file"));
    }
    SECTION("a damaged header") {
        std::string bytes = test::read_file(path);
        bytes[20] = char(bytes[20] ^ 1);
        test::write_file(folder / "bad.h5", bytes);
        CHECK_THROWS_WITH(hdf5::File::open(folder / "bad.h5"), Contains("bad.h5 is a damaged HDF5 file"));
    }
    SECTION("other names and types") {
        const auto file = hdf5::File::open(path);
        CHECK_THROWS_WITH(file.dataset("token"),
                          Contains("sample.h5 has no dataset /token; the nearest name is 'tokens'"));
        CHECK_THROWS_WITH(file.dataset("model/a.wieght"), Contains("the nearest name is 'a.weight'"));
        CHECK_THROWS_WITH(file.dataset("xyz/abc"), Contains("has no dataset /xyz/abc"));
        CHECK_THROWS_WITH(file.dataset("model"), Contains("/model is not a dataset"));
        CHECK_THROWS_WITH(file.group("xyz"), Contains("has no group /xyz"));
        CHECK_THROWS_WITH(file.dataset("tokens").read_all<float>(),
                          Contains("/tokens has elements of type uint16, but float32 is expected"));
        CHECK_THROWS_AS(file.dataset("tokens").read_all<float>(), ConfigError);
    }
    SECTION("reading beyond the end is a LogicError") {
        const auto tokens = hdf5::File::open(path).dataset("tokens");
        std::vector<uint16_t> two(2);
        CHECK_THROWS_AS(tokens.read(std::span<uint16_t>(two), 39999), LogicError);
    }
    SECTION("a folder that does not exist") {
        CHECK_THROWS_WITH(hdf5::File::create((folder / "no") / "x.h5"),
                          Contains("x.h5 cannot be created") && Contains("No such file or directory"));
        CHECK_THROWS_AS(hdf5::File::create((folder / "no") / "x.h5"), SystemError);
    }
}

TEST_CASE("HDF5: a file that cannot be read is neither damaged nor lacks its arrays") {
    const test::TemporaryFolder folder;
    const std::string path = folder / "a.h5";
    {
        auto file = hdf5::File::create(path);
        file.set_attribute("number", 5);
        file.create_group("group").set_attribute("number", 6);
    }
    const double before = read_patience();
    const int64_t good_reads = GENERATE(0, 1, 2, 3);
    test::SystemCalls calls;
    calls.read_error = EIO;
    const auto number = [&](int64_t failing_reads) {
        calls.good_reads = good_reads;
        calls.failing_reads = failing_reads;
        const auto file = hdf5::File::open(path);
        return file.has("group") ? file.group("group").int_attribute("number") : 0;
    };
    CHECK(number(4) == 6);
    set_read_patience(0.002);
    try {
        const int64_t found = number(1000);
        CHECK(found == 6);  // the file needed no more reads
    } catch (const ReadError& error) {
        CHECK(std::string(error.what()) == path + " cannot be read: Input/output error");
    }
    set_read_patience(before);
    CHECK((good_reads > 1 || calls.failing_reads < 1000));
}

TEST_CASE("files that are truncated or not HDF5 files are recognised", "[hdf5]") {
    const test::TemporaryFolder folder;
    const std::string path = folder / "x.h5", deck = folder / "my.toml";
    {
        auto file = hdf5::File::create(path);
        file.create_dataset("x", hdf5::Type::f64, {1000}).write(view(counted<double>(1000)));
        file.close();
    }
    const auto whole = int64_t(std::filesystem::file_size(path));
    std::filesystem::resize_file(path, 5000);
    CHECK_THROWS_WITH(hdf5::File::open(path), path + " is truncated: 5,000 of " + with_commas(whole) +
                                                  " bytes are there; make or copy it again");
    test::write_file(deck, "[model]\n");
    CHECK_THROWS_WITH(hdf5::File::open(deck),
                      deck + " is a deck, not an HDF5 file; the files of its run are in its job.dump_folder");
    test::write_file(path, "text");
    CHECK_THROWS_WITH(hdf5::File::open(path), path + " is not an HDF5 file");
}

TEST_CASE("a full disk while writing is a SystemError", "[hdf5]") {
    const test::TemporaryFolder folder;
    const std::string path = folder / "big.h5";
    CHECK(in_small_files(100000, [&] {
        try {
            auto file = hdf5::File::create(path);
            auto x = file.create_dataset("x", hdf5::Type::f64, {100000});
            x.write(view(counted<double>(100000)));
            file.close();
        } catch (const SystemError& error) {
            const std::string what = error.what();
            return what.find("big.h5") != std::string::npos &&
                   what.find("File too large") != std::string::npos;
        }
        return false;
    }));
}
