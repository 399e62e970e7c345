// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/stored_zip.hpp"

#include "coeus/base/error.hpp"

#include <cstring>
#include <zlib.h>

namespace coeus {

namespace {

constexpr uint32_t local_signature = 0x04034b50, member_signature = 0x02014b50, end_signature = 0x06054b50;
constexpr uint32_t end64_signature = 0x06064b50, locator64_signature = 0x07064b50;
constexpr uint64_t end_bytes = 22, locator64_bytes = 20, member_bytes = 46, local_bytes = 30;
constexpr uint16_t extra64 = 1;  // the extra field with 64-bit sizes
constexpr uint32_t in_extra64 = 0xffffffff;

/// Little-endian numbers and texts in the archive.
class Bytes {
public:
    Bytes(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

    uint64_t size() const { return bytes_.size(); }
    [[noreturn]] void reject(const char* reason) const { throw ConfigError("{}: {}", name_, reason); }
    std::span<const std::byte> part(uint64_t at, uint64_t count) const {
        if (at > size() || count > size() - at) reject("a damaged or truncated zip archive");
        return bytes_.subspan(size_t(at), size_t(count));
    }
    template <class T>
    T number(uint64_t at) const {
        T value;
        std::memcpy(&value, part(at, sizeof value).data(), sizeof value);
        return value;
    }
    std::string text(uint64_t at, uint64_t count) const {
        const auto bytes = part(at, count);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

private:
    std::span<const std::byte> bytes_;
    const std::string& name_;
};

struct Directory {
    uint64_t offset, members;
};
// The record at the end of an archive has the place of the list of members. torch.save adds no comment after
// it.
Directory find_directory(const Bytes& bytes) {
    if (bytes.size() < end_bytes || bytes.number<uint32_t>(bytes.size() - end_bytes) != end_signature)
        bytes.reject("not a zip archive, or a truncated one");
    const uint64_t end = bytes.size() - end_bytes;
    if (end >= locator64_bytes && bytes.number<uint32_t>(end - locator64_bytes) == locator64_signature) {
        const auto end64 = bytes.number<uint64_t>(end - locator64_bytes + 8);
        if (bytes.number<uint32_t>(end64) != end64_signature) bytes.reject("a damaged zip archive");
        return {bytes.number<uint64_t>(end64 + 48), bytes.number<uint64_t>(end64 + 32)};
    }
    return {bytes.number<uint32_t>(end + 16), bytes.number<uint16_t>(end + 10)};
}

struct Member {
    uint64_t stored, size, local;
};
// The extra field has only those numbers that do not fit into 32 bits.
void read_extra64(const Bytes& bytes, uint64_t at, uint64_t end, Member& member) {
    while (at + 4 <= end) {
        const uint64_t next = at + 4 + bytes.number<uint16_t>(at + 2);
        if (bytes.number<uint16_t>(at) == extra64) {
            at += 4;
            for (uint64_t* value : {&member.size, &member.stored, &member.local})
                if (*value == in_extra64) {
                    *value = bytes.number<uint64_t>(at);
                    at += 8;
                }
            return;
        }
        at = next;
    }
}

}  // namespace

uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before) {
    return uint32_t(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::map<std::string, ZipMember> members_of_stored_zip(std::span<const std::byte> archive,
                                                       const std::string& name) {
    const Bytes bytes(archive, name);
    const Directory directory = find_directory(bytes);
    std::map<std::string, ZipMember> members;
    uint64_t at = directory.offset;
    for (uint64_t i = 0; i < directory.members; ++i) {
        if (bytes.number<uint32_t>(at) != member_signature) bytes.reject("a damaged zip archive");
        const auto flags = bytes.number<uint16_t>(at + 8), method = bytes.number<uint16_t>(at + 10);
        const auto name_length = bytes.number<uint16_t>(at + 28), extra = bytes.number<uint16_t>(at + 30),
                   comment = bytes.number<uint16_t>(at + 32);
        Member member{bytes.number<uint32_t>(at + 20), bytes.number<uint32_t>(at + 24),
                      bytes.number<uint32_t>(at + 42)};
        const uint64_t behind_name = at + member_bytes + name_length;
        read_extra64(bytes, behind_name, behind_name + extra, member);
        if (method != 0 || (flags & 1) != 0 || member.stored != member.size)
            bytes.reject("a zip archive with compressed or encrypted members");
        if (bytes.number<uint32_t>(member.local) != local_signature) bytes.reject("a damaged zip archive");
        const uint64_t data = member.local + local_bytes + bytes.number<uint16_t>(member.local + 26) +
                              bytes.number<uint16_t>(member.local + 28);
        members[bytes.text(at + member_bytes, name_length)] = {bytes.part(data, member.size),
                                                               bytes.number<uint32_t>(at + 16)};
        at = behind_name + extra + comment;
    }
    return members;
}

}  // namespace coeus
