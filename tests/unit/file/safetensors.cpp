// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/safetensors.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/write_safetensors.hpp"

#include <algorithm>
#include <cstring>

using namespace coeus;
using Catch::Contains;

namespace {

/// A file with this header and so many bytes of data.
std::string with_header(const test::TemporaryFolder& folder, const std::string& header, size_t data_bytes) {
    const auto length = uint64_t(header.size());
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    const std::string path = folder / "made.safetensors";
    test::write_file(path, bytes + header + std::string(data_bytes, '\1'));
    return path;
}

std::string message_of(const std::string& path) {
    try {
        Safetensors::open(path);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "opened without complaint";
}

std::string sample(const test::TemporaryFolder& folder, const std::string& name = "sample.safetensors") {
    static std::vector<float> a = {1, 2, 3, 4, 5, 6};
    static std::vector<int64_t> b = {-1, int64_t(1) << 40};
    const std::string path = folder / name;
    test::write_safetensors(
        path, {{"a", Tensor(a.data(), Dtype::f32, {2, 3})}, {"b", Tensor(b.data(), Dtype::i64, {2})}});
    return path;
}

}  // namespace

TEST_CASE("safetensors: written values are read back", "[safetensors]") {
    const test::TemporaryFolder folder;
    std::vector<double> d = {0.1, -1e300, 3};
    std::vector<f16> h = {to_f16(0.5f), to_f16(-3.f)};
    std::vector<bf16> b = {bf16(1.5f)};
    std::vector<int32_t> i = {-7, 8};
    std::vector<uint8_t> u = {255, 0, 1};
    std::vector<float> scalar = {2.25f};
    const std::string path = folder / "x.safetensors";
    test::write_safetensors(path,
                            {{"u", Tensor(u.data(), Dtype::u8, {3, 1})},
                             {"d", Tensor(d.data(), Dtype::f64, {1, 3})},
                             {"h", Tensor(h.data(), Dtype::f16, {2})},
                             {"b", Tensor(b.data(), Dtype::bf16, {1, 1, 1, 1})},
                             {"i", Tensor(i.data(), Dtype::i32, {2})},
                             {"f", Tensor(u.data(), Dtype::fp8_e4m3, {3})},
                             {"none", Tensor(nullptr, Dtype::f32, {0, 5})}},
                            {{"format", "pt"}});
    const Safetensors file = Safetensors::open(path);
    CHECK(file.names() == std::vector<std::string>{"b", "d", "f", "h", "i", "none", "u"});
    CHECK(file.entry("b").shape == Shape{1, 1, 1, 1});
    CHECK(file.entry("f").dtype == Dtype::fp8_e4m3);
    CHECK(file.entry("f").data[0] == std::byte(255));
    CHECK_THROWS_WITH(file.read_all<float>("f"), Contains("'f' has elements of type float8_e4m3"));
    CHECK(file.read_all<double>("d") == d);
    CHECK(file.read_all<float>("h") == std::vector<float>{0.5f, -3.f});
    CHECK(file.read_all<double>("b") == std::vector<double>{1.5});
    CHECK(file.read_all<int64_t>("i") == std::vector<int64_t>{-7, 8});
    CHECK(file.read_all<uint8_t>("u") == u);
    CHECK(file.read_all<float>("none").empty());
    float part[2];
    file.read("d", Tensor(part, Dtype::f32, {2}), 1);
    CHECK(part[1] == 3.f);
    std::vector<bf16> rounded(3);
    file.read("d", Tensor(rounded.data(), Dtype::bf16, {3}));
    CHECK(float(rounded[2]) == 3.f);
    CHECK_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_CASE("safetensors: other programs' files", "[safetensors]") {
    const auto folder = test::golden("models/llama3_gqa");
    if (folder.empty()) return;
    const Safetensors model = Safetensors::open(folder);
    CHECK(model.names().size() == 21);
    CHECK(model.entry("model.layers.1.self_attn.k_proj.weight").shape == Shape{32, 64});
    const Safetensors batch = Safetensors::open(folder / "batch.safetensors");
    const auto tokens = batch.read_all<int64_t>("tokens");
    CHECK(int64_t(tokens.size()) == batch.entry("tokens").shape.count());
    CHECK(*std::max_element(tokens.begin(), tokens.end()) < 272);
}

TEST_CASE("safetensors: several files with an index are one set", "[safetensors]") {
    const auto whole_folder = test::golden("models/llama3_gqa");
    const auto bf16_folder = test::golden("models/sharded_bf16");
    const auto f16_folder = test::golden("models/sharded_f16");
    if (whole_folder.empty() || bf16_folder.empty() || f16_folder.empty()) return;
    const Safetensors whole = Safetensors::open(whole_folder);
    const Safetensors sharded = Safetensors::open(bf16_folder);
    const Safetensors half = Safetensors::open(f16_folder);
    REQUIRE(sharded.names() == whole.names());
    for (const std::string& name : whole.names()) {
        const auto exact = whole.read_all<float>(name), b = sharded.read_all<float>(name),
                   h = half.read_all<float>(name);
        for (size_t i = 0; i < exact.size(); ++i) {
            REQUIRE(b[i] == float(bf16(exact[i])));
            REQUIRE(h[i] == to_float(to_f16(exact[i])));
        }
    }
}

TEST_CASE("safetensors: errors are reported in words", "[safetensors]") {
    const test::TemporaryFolder folder;
    SECTION("absent and foreign") {
        CHECK_THAT(message_of(folder / "no.safetensors"),
                   Contains("no.safetensors: this file does not exist"));
        CHECK_THAT(message_of(folder.path()), Contains("has neither model.safetensors nor"));
        test::write_file(folder / "x", "hello");
        CHECK_THAT(message_of(folder / "x"),
                   Contains("not a safetensors file, or truncated: it has only 5 bytes"));
        test::write_file(folder / "x", std::string(100, 'z'));
        CHECK_THAT(message_of(folder / "x"), Contains("x is not a safetensors file"));
        CHECK_THAT(message_of(with_header(folder, "{nonsense}", 0)), Contains("made.safetensors"));
    }
    SECTION("truncated") {
        const std::string bytes = test::read_file(sample(folder));
        for (size_t length = 0; length < bytes.size(); ++length) {
            test::write_file(folder / "short", bytes.substr(0, length));
            INFO(length);
            CHECK_THAT(message_of(folder / "short"), Contains("truncated"));
        }
        test::write_file(folder / "long", bytes + "x");
        CHECK_THAT(message_of(folder / "long"), Contains("has 1 bytes that belong to no tensor"));
    }
    SECTION("a header that contradicts itself") {
        const auto entry = [](const char* name, const char* dtype, const char* shape, int begin, int end) {
            return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype,
                               shape, begin, end);
        };
        const auto made = [&](const std::string& inner, size_t bytes) {
            return message_of(with_header(folder, "{" + inner + "}", bytes));
        };
        CHECK_THAT(made(entry("w", "F32", "[2]", 0, 8), 8), Contains("opened without complaint"));
        CHECK_THAT(made(entry("w", "Q7", "[2]", 0, 8), 8), Contains("w.dtype must be one of F64, F32"));
        CHECK_THAT(
            made(entry("w", "F32", "[3]", 0, 8), 8),
            Contains(
                "tensor 'w' of shape [3] and dtype float32 needs 12 bytes, but its data_offsets span 8"));
        CHECK_THAT(made(entry("w", "F32", "[-2]", 0, 8), 8),
                   Contains("w.shape must have extents that are not negative"));
        CHECK_THAT(made(entry("w", "F32", "[4294967296,4294967296]", 0, 8), 8),
                   Contains("w.shape must have extents"));
        CHECK_THAT(made(entry("w", "F32", "[1,1,1,1,2]", 0, 8), 8),
                   Contains("w.shape must have at most 4 extents"));
        CHECK_THAT(made(entry("w", "F32", "[2]", 8, 0), 8), Contains("w.data_offsets must be two positions"));
        CHECK_THAT(made(entry("v", "F32", "[2]", 0, 8) + "," + entry("w", "F32", "[2]", 4, 12), 12),
                   Contains("tensor 'w' overlaps tensor 'v'"));
        CHECK_THAT(made(entry("v", "F32", "[2]", 0, 8) + "," + entry("w", "F32", "[2]", 12, 20), 20),
                   Contains("there is a gap between tensor 'v' and tensor 'w'"));
        CHECK_THAT(made(R"("w":{"shape":[2],"data_offsets":[0,8]})", 8), Contains("w.dtype"));
        // an offset larger than any address
        CHECK_THAT(made(R"("w":{"dtype":"F32","shape":[2],"data_offsets":[9223372036854775799,)"
                        R"(9223372036854775807]})",
                        8),
                   Contains("there is a gap between the header and tensor 'w'"));
    }
    SECTION("an index") {
        sample(folder);
        const auto index = [&](const std::string& map) {
            test::write_file(folder / "i.json", R"({"weight_map":{)" + map + "}}");
            return message_of(folder / "i.json");
        };
        CHECK_THAT(index(R"("a":"sample.safetensors")"), Contains("opened without complaint"));
        // a tensor that no file has is an error when it is asked for
        CHECK_THAT(index(R"("c":"sample.safetensors")"), Contains("opened without complaint"));
        const Safetensors file = Safetensors::open(folder / "i.json");
        CHECK(file.ghosts() == std::vector<std::string>{"c"});
        CHECK_FALSE(file.has("c"));
        CHECK_THROWS_WITH(file.entry("c"),
                          Contains("i.json names tensor 'c' in ") && Contains(", which does not have it"));
        CHECK(Safetensors::open(folder / "sample.safetensors").ghosts().empty());
        test::write_safetensors(folder / "other.safetensors", {});
        CHECK_THAT(index(R"("b":"sample.safetensors","a":"other.safetensors")"),
                   Contains("names tensor 'a' in ") && Contains("other.safetensors, which does not have it"));
        CHECK_THAT(index(R"("a":"gone.safetensors")"),
                   Contains("gone.safetensors: this file does not exist"));
        for (const char* elsewhere : {"../sample.safetensors", "/sample.safetensors", "..", ""})
            CHECK_THAT(index(fmt::format(R"("a":"{}")", elsewhere)),
                       Contains("weight_map.a must be the name of a file in the same folder"));
        sample(folder, "again.safetensors");
        CHECK_THAT(index(R"("a":"sample.safetensors","b":"again.safetensors")"), Contains("appears twice"));
    }
    SECTION("names and types asked for") {
        const Safetensors file = Safetensors::open(sample(folder));
        CHECK_THROWS_WITH(file.entry("aa"), Contains("has no tensor 'aa'; the nearest name is 'a'"));
        CHECK_THROWS_WITH(file.read_all<float>("b"),
                          Contains("tensor 'b' has elements of type int64, but float32 is expected"));
        CHECK_THROWS_WITH(file.read_all<int32_t>("a"),
                          Contains("tensor 'a' has elements of type float32, but int32 is expected"));
        float seven[7];
        CHECK_THROWS_AS(file.read("a", Tensor(seven, Dtype::f32, {7})), LogicError);
    }
    SECTION("a folder that does not exist") {
        CHECK_THROWS_AS(test::write_safetensors((folder / "no") / "x", {}), SystemError);
    }
}
