// SPDX-License-Identifier: Apache-2.0
// The text of a JSON object: one of its fields, "text" unless another is named. Values of other fields are
// skipped and not judged, since programs write NaN, Infinity or other things there that are not JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

/// The white space of JSON.
constexpr const char* json_blanks = " \t\r\n";

struct JsonText {
    std::string text;             ///< valid UTF-8 if the object is
    int64_t lone_surrogates = 0;  ///< escapes of half a character, such as \ud83d, which became U+FFFD
    std::string flaw;             ///< why there is no usable text; "" if there is
};

/// The end of the JSON value that begins at `at`; std::string_view::npos if the text ends before it. Only
/// quotes and brackets count.
size_t json_value_end(std::string_view text, size_t at);

/// True if an object, which may be cut off, has this field before the cut, whatever its value is.
bool has_field(std::string_view object, std::string_view field);

/// The text; a flaw if the argument is not an object, has no such field (names the fields that it has) or
/// more than one, or if that is not a string.
JsonText json_text(std::string_view object, const std::string& field = "text");

}  // namespace coeus
