// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/stored_zip.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/pickle_writer.hpp"

using namespace coeus;
using Catch::Contains;

namespace {

std::string content(const ZipMember& member) {
    return {reinterpret_cast<const char*>(member.bytes.data()), member.bytes.size()};
}
auto members_of(const std::string& archive) {
    return members_of_stored_zip(std::as_bytes(std::span(archive)), "a file");
}

}  // namespace

TEST_CASE("stored zip: members in place, with their checksums") {
    const std::string archive =
        test::stored_zip({{"a/data.pkl", "hello"}, {"a/data/0", std::string(300, 'x')}});
    const auto members = members_of(archive);
    REQUIRE(members.size() == 2);
    CHECK(content(members.at("a/data.pkl")) == "hello");
    CHECK(content(members.at("a/data/0")) == std::string(300, 'x'));
    for (const auto& [name, member] : members) {
        CHECK(crc32_of(member.bytes) == member.crc);
        CHECK(crc32_of(member.bytes.subspan(3), crc32_of(member.bytes.first(3))) == member.crc);
    }
    CHECK(crc32_of(std::as_bytes(std::span("123456789", 9))) == 0xcbf43926);  // the check value of CRC-32
    CHECK(members_of(test::stored_zip({})).empty());
}

TEST_CASE("stored zip: damage is refused, wherever it is") {
    const std::string archive = test::stored_zip({{"a/data.pkl", "hello"}, {"a/data/0", "elements"}});
    CHECK_THROWS_WITH(members_of(""), Contains("a file: not a zip archive, or a truncated one"));
    for (size_t size = 0; size < archive.size(); ++size)
        CHECK_THROWS_AS(members_of(archive.substr(0, size)), ConfigError);
    std::string compressed = archive;
    compressed[archive.find("PK\x01\x02") + 10] = 8;
    CHECK_THROWS_WITH(members_of(compressed), Contains("compressed or encrypted members"));
    const RandomStream random(1, "bytes");
    for (uint64_t i = 0; i < 20000; ++i) {
        std::string bytes = archive;
        bytes[size_t(random.uniform(2 * i) * double(bytes.size()))] =
            char(int(random.uniform(2 * i + 1) * 256));
        try {
            for (const auto& [name, member] : members_of(bytes)) CHECK(member.bytes.size() <= bytes.size());
        } catch (const ConfigError&) {
        }
    }
}
