// SPDX-License-Identifier: Apache-2.0
// Whether a text is JSON, by the structure of its beginning. Values do not count: one bad line does not make
// a file another one.
#pragma once

#include <string_view>

namespace coeus {

enum class JsonForm {
    none,         ///< other text
    lines,        ///< most of the first lines are objects, and some have a field "text"
    other_lines,  ///< most of the first lines are objects, and none has a field "text"
    value         ///< an array of objects, or an object over several lines, with a field "text"
};

/// The form of a text of which `begin` is the beginning, or all of it if `whole`. A line that `begin` cuts
/// off does not count.
JsonForm json_form(std::string_view begin, bool whole);

}  // namespace coeus
