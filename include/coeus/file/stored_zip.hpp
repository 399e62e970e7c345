// SPDX-License-Identifier: Apache-2.0
// Finds the members of zip archives whose members are stored without compression, as torch.save writes them.
// Format: PKWARE's APPNOTE.TXT, with its 64-bit extension.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace coeus {

struct ZipMember {
    std::span<const std::byte> bytes;  ///< within the archive
    uint32_t crc = 0;                  ///< CRC-32 of the bytes according to the archive
};

/// CRC-32 of bytes. `before`: the CRC-32 of the bytes that precede them.
uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before = 0);

/// The members by their names. ConfigError, with `name`: not an archive, damaged, compressed or encrypted
/// members.
std::map<std::string, ZipMember> members_of_stored_zip(std::span<const std::byte> archive,
                                                       const std::string& name);

}  // namespace coeus
