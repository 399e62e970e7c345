// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4), the encoding of tokens in tiktoken's files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace coeus {

/// The bytes, or nothing if the text is not base64 with padding.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace coeus
