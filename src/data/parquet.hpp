// SPDX-License-Identifier: Apache-2.0
// Parquet files as JSON Lines: each row is an object with one field, so that all that holds for JSON Lines
// holds for them. Arrow's C++ library reads them, if the program was built with it (COEUS_ARROW).
#pragma once

#include "coeus/file/byte_stream.hpp"

#include <memory>
#include <string>

namespace coeus {

/// Whether this program was built with Arrow.
bool reads_parquet();

/// The rows of a file as lines {"FIELD": "text"}; null if a row has no text. ConfigError: the program was
/// built without Arrow (names the command that converts the file), the file is damaged, or it has no such
/// field of text at its top (names the fields that it has, and their types).
std::unique_ptr<ByteStream> open_parquet(const std::string& path, const std::string& field);

}  // namespace coeus
