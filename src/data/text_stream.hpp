// SPDX-License-Identifier: Apache-2.0
// A text file, perhaps compressed, as valid UTF-8 in pieces: a byte order mark is left out, what is not UTF-8
// becomes U+FFFD and is counted, other encodings that show at the beginning are refused by name.
#pragma once

#include "coeus/file/byte_stream.hpp"
#include "text_flaws.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace coeus {

class TextStream {
public:
    /// ConfigError where the file cannot be read.
    explicit TextStream(const std::string& path);

    /// Appends about `bytes` of text, at least 1 unless the file ends. ConfigError: UTF-16, UTF-32, binary.
    void append(std::string& text, size_t bytes);
    bool at_end() const { return at_end_; }
    /// Bytes of the file on the disk read so far.
    int64_t file_position() const { return bytes_->position(); }
    /// Of what was read so far.
    const TextFlaws& flaws() const { return flaws_; }

private:
    void check_beginning();
    std::string path_;
    std::unique_ptr<ByteStream> bytes_;
    std::string raw_;  // read, and not given out: the beginning of a character at most
    bool begun_ = false, at_end_ = false;
    TextFlaws flaws_;
};

}  // namespace coeus
