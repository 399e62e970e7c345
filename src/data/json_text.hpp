// SPDX-License-Identifier: Apache-2.0
// The text of a JSON object: its field "text". Values of other fields are skipped and not judged, since
// programs write NaN, Infinity or other things there that are not JSON.
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

/// True if an object, which may be cut off, has a field "text" before the cut, whatever its value is.
bool has_field_text(std::string_view object);

/// The text; a flaw if the argument is not an object, has no field "text" (names the fields that it has) or
/// more than one, or if that is not a string.
JsonText json_text(std::string_view object);

}  // namespace coeus
