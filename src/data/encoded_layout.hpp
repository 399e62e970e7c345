// SPDX-License-Identifier: Apache-2.0
// The structure of a file of encoded images.
#pragma once

#include "coeus/data/encoded_file.hpp"

#include <filesystem>

namespace coeus {

/// The attribute `format` of such a file.
inline constexpr const char* encoded_format = "encoded images";

/// Reads and checks everything that needs no elements. ConfigError as EncodedFile().
EncodedFile::Layout encoded_layout(const std::filesystem::path& path);

}  // namespace coeus
