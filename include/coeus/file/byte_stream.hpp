// SPDX-License-Identifier: Apache-2.0
// ByteStream: the bytes of a file from beginning to end. gzip and zstd data are decompressed while they are
// read, with little memory. Only byte_stream.cpp uses zlib and libzstd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace coeus {

enum class Packing { none, gzip, zstd };
/// From the end of the name, in upper or lower case: .gz, .zst, .zstd.
Packing packing_of_name(const std::string& path);
/// From the first bytes: downloads often lose the end of their name, or are unpacked and keep it. The name
/// counts for bytes that are neither packed nor text, and for fewer than 4. ConfigError if the file cannot be
/// read.
Packing packing_of(const std::string& path);
/// The format that the first bytes of a file show, if text cannot begin like it: "bzip2 data", "a Parquet
/// file". Nothing for text, and for what open_stream() unpacks. ConfigError if the file cannot be read.
std::optional<std::string_view> foreign_content(const std::string& path);
/// Whether a file is Parquet, by its first bytes.
bool is_parquet(const std::string& path);

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
    /// Bytes at the end of the file that were left out, since they are not compressed data: gzip files of
    /// tapes, of broken downloads and of appended logs have such bytes, and gzip leaves them out too.
    virtual int64_t ignored_bytes() const { return 0; }

protected:
    ByteStream() = default;
};

/// ConfigError if the file cannot be read.
std::unique_ptr<ByteStream> open_stream(const std::string& path);

}  // namespace coeus
