// SPDX-License-Identifier: Apache-2.0
#include "support/pickle_writer.hpp"

#include "coeus/file/stored_zip.hpp"

#include <bit>
#include <span>

namespace coeus::test {

namespace {

template <class T>
std::string little_endian(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

namespace pickled {

Code none() {
    return "N";
}
Code boolean(bool value) {
    return value ? "\x88" : "\x89";
}
Code integer(int64_t value) {
    return "\x8a\x08" + little_endian(value);
}
Code real(double value) {
    return "G" + little_endian(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}
Code text(const std::string& value) {
    return "X" + little_endian(uint32_t(value.size())) + value;
}
Code tuple(const std::vector<Code>& elements) {
    Code all = "(";
    for (const Code& element : elements) all += element;
    return all + "t";
}
Code list(const std::vector<Code>& elements) {
    Code all = "](";
    for (const Code& element : elements) all += element;
    return all + "e";
}
Code dict(const std::vector<std::pair<Code, Code>>& items) {
    Code all = "}(";
    for (const auto& [key, value] : items) all += key + value;
    return all + "u";
}
Code global(const std::string& module, const std::string& name) {
    return text(module) + text(name) + "\x93";
}
Code call(const Code& function, const Code& arguments) {
    return function + arguments + "R";
}
Code instance(const Code& type, const Code& state) {
    return type + ")\x81" + state + "b";
}
Code persistent(const Code& id) {
    return id + "Q";
}
std::string pickle(const Code& value) {
    return "\x80\x04" + value + ".";
}

}  // namespace pickled

std::string stored_zip(const std::vector<std::pair<std::string, std::string>>& members) {
    std::string archive, directory;
    for (const auto& [name, content] : members) {
        const uint32_t crc = crc32_of(std::as_bytes(std::span(content))), size = uint32_t(content.size());
        const uint32_t at = uint32_t(archive.size());
        // versions and flags, method "stored", times, then the fields that both kinds of headers have
        const std::string both = little_endian(uint16_t(0)) + little_endian(uint16_t(0)) +
                                 little_endian(uint32_t(0)) + little_endian(crc) + little_endian(size) +
                                 little_endian(size) + little_endian(uint16_t(name.size())) +
                                 little_endian(uint16_t(0));
        archive += "PK\x03\x04" + little_endian(uint16_t(10)) + both + name + content;
        directory += "PK\x01\x02" + little_endian(uint16_t(10)) + little_endian(uint16_t(10)) + both +
                     little_endian(uint16_t(0)) + little_endian(uint32_t(0)) + little_endian(uint32_t(0)) +
                     little_endian(at) + name;
    }
    const auto count = uint16_t(members.size());
    const uint32_t at = uint32_t(archive.size());
    return archive + directory + "PK\x05\x06" + little_endian(uint32_t(0)) + little_endian(count) +
           little_endian(count) + little_endian(uint32_t(directory.size())) + little_endian(at) +
           little_endian(uint16_t(0));
}

}  // namespace coeus::test
