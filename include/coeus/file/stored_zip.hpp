// SPDX-License-Identifier: Apache-2.0
// Zip archives whose members are stored as they are, as torch.save writes them: where each member lies.
// Format: PKWARE's APPNOTE.TXT, with its 64-bit extension.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace coeus {

struct ZipMember {
    std::span<const std::byte> bytes;  ///< in place
    uint32_t crc = 0;                  ///< of the bytes, where nothing damaged them
};

/// CRC-32 of bytes, which go on where others ended.
uint32_t crc32_of(std::span<const std::byte> bytes, uint32_t before = 0);

/// The members by their names. ConfigError with `name`: no archive, damaged, compressed or
/// encrypted members.
std::map<std::string, ZipMember> members_of_stored_zip(std::span<const std::byte> archive,
                                                       const std::string& name);

}  // namespace coeus
