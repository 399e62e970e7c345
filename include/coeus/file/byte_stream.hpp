// SPDX-License-Identifier: Apache-2.0
// ByteStream: the bytes of a file from beginning to end. Files .gz and .zst are decompressed while they are
// read, with little memory. Only byte_stream.cpp uses zlib and libzstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace coeus {

enum class Packing { none, gzip, zstd };
/// From the end of the name, in upper or lower case: .gz, .zst, .zstd.
Packing packing_of(const std::string& path);

class ByteStream {
public:
    virtual ~ByteStream() = default;
    ByteStream(const ByteStream&) = delete;
    ByteStream& operator=(const ByteStream&) = delete;

    /// Reads up to `size` bytes and returns their number; 0 only at the end. ConfigError if compressed data
    /// is truncated, damaged, or not compressed at all.
    virtual size_t read(char* to, size_t size) = 0;
    /// Bytes of the file on disk (compressed, if it is) that were read so far.
    virtual int64_t position() const = 0;

protected:
    ByteStream() = default;
};

/// ConfigError if the file cannot be read.
std::unique_ptr<ByteStream> open_stream(const std::string& path);

}  // namespace coeus
