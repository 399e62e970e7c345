// SPDX-License-Identifier: Apache-2.0
// Reads a text file, which may be compressed, in pieces of valid UTF-8. A byte order mark is removed. Bytes
// that are not UTF-8 become U+FFFD and are counted. Another encoding that is recognised at the beginning
// causes an error that names it.
#pragma once

#include "coeus/file/byte_stream.hpp"
#include "text_flaws.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// UTF-16 or UTF-32, known by a byte order mark, or by the NUL bytes beside the first characters if these are
/// ASCII.
struct WideEncoding {
    const char* name;
    bool marked;  ///< by a byte order mark
};
/// The encoding of a text that begins with these bytes; nothing for others.
std::optional<WideEncoding> wide_encoding(std::string_view begin);

class TextStream {
public:
    /// `name`: the name of the file in messages.
    TextStream(std::unique_ptr<ByteStream> bytes, const std::string& name);

    /// Appends about `bytes` of text, at least 1 unless the file ends. ConfigError: UTF-16, UTF-32 or a
    /// binary file.
    void append(std::string& text, size_t bytes);
    bool at_end() const { return at_end_; }
    /// Number of bytes of the file on disk that were read so far.
    int64_t file_position() const { return bytes_->position(); }
    /// Bytes after the last member of a gzip file, at its end.
    int64_t ignored_bytes() const { return bytes_->ignored_bytes(); }
    /// Flaws of the text that was read so far.
    const TextFlaws& flaws() const { return flaws_; }

private:
    void check_beginning();
    std::string name_;
    std::unique_ptr<ByteStream> bytes_;
    std::string raw_;  // read, but not returned: at most the beginning of a character
    bool begun_ = false, at_end_ = false;
    TextFlaws flaws_;
};

}  // namespace coeus
