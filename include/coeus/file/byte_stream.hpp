// SPDX-License-Identifier: Apache-2.0
// A file's bytes from its beginning to its end; .gz and .zst are decompressed on the way, in little memory.
// zlib and libzstd stay in byte_stream.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace coeus {

enum class Packing { none, gzip, zstd };
/// By the ending of the name, in either case: .gz, .zst, .zstd.
Packing packing_of(const std::string& path);

class ByteStream {
public:
    virtual ~ByteStream() = default;
    ByteStream(const ByteStream&) = delete;
    ByteStream& operator=(const ByteStream&) = delete;

    /// Up to `size` bytes; 0 only at the end. ConfigError where compressed data is truncated, damaged, or not
    /// compressed at all.
    virtual size_t read(char* to, size_t size) = 0;
    /// Bytes of the file, as it is on the disk, read so far.
    virtual int64_t position() const = 0;

protected:
    ByteStream() = default;
};

/// ConfigError where the file cannot be read.
std::unique_ptr<ByteStream> open_stream(const std::string& path);

}  // namespace coeus
