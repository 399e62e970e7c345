// SPDX-License-Identifier: Apache-2.0
// Whether a text is JSON, by the structure of its beginning. Values do not count: one bad line does not make
// a file another one.
#pragma once

#include <string_view>

namespace coeus {

enum class JsonForm {
    none,         ///< other text
    lines,        ///< most of the first lines are objects, and some have the field of the text
    other_lines,  ///< most of the first lines are objects, and none has that field
    value         ///< an array of objects, or an object over several lines, with that field
};

/// The form of a text of which `begin` is the beginning, or all of it if `whole`. A line that `begin` cuts
/// off does not count. `field`: the name of the field with the text.
JsonForm json_form(std::string_view begin, bool whole, std::string_view field = "text");

}  // namespace coeus
