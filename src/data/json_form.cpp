// SPDX-License-Identifier: Apache-2.0
#include "json_form.hpp"

#include "json_text.hpp"

#include <algorithm>

namespace coeus {

namespace {

constexpr int most_parts = 16;  // lines or elements that decide

// True for {"
bool begins_object(std::string_view text) {
    if (!text.starts_with("{")) return false;
    const size_t name = text.find_first_not_of(json_blanks, 1);
    return name != text.npos && text[name] == '"';
}

// Among the first lines. A line that begins an object and does not end it counts nowhere: it may be cut
// short, or begin an object over several lines.
struct LineCounts {
    int objects = 0, with_text = 0, others = 0;
};

LineCounts count_lines(std::string_view text, bool whole, std::string_view field) {
    LineCounts counts;
    for (int i = 0; i < most_parts && !text.empty();) {
        const size_t end = text.find('\n');
        if (end == text.npos && !whole) break;
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        line.remove_prefix(std::min(line.find_first_not_of(json_blanks), line.size()));
        if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
        if (line.empty()) continue;
        ++i;
        if (!begins_object(line)) {
            ++counts.others;
        } else if (json_value_end(line, 0) != line.npos) {
            ++counts.objects;
            counts.with_text += has_field(line, field);
        }
    }
    return counts;
}

// True if one of the first elements of an array is an object with this field.
bool array_has(std::string_view array, std::string_view field) {
    size_t at = 0;
    for (int i = 0; i < most_parts; ++i) {
        at = array.find_first_not_of(json_blanks, at + 1);  // after [ or a comma
        if (at == array.npos) return false;
        if (begins_object(array.substr(at)) && has_field(array.substr(at), field)) return true;
        const size_t end = json_value_end(array, at);
        at = end == array.npos ? end : array.find_first_not_of(json_blanks, end);
        if (at == array.npos || array[at] != ',') return false;
    }
    return false;
}

}  // namespace

JsonForm json_form(std::string_view begin, bool whole, std::string_view field) {
    begin.remove_prefix(std::min(begin.find_first_not_of(json_blanks), begin.size()));
    if (begin.starts_with("[")) return array_has(begin, field) ? JsonForm::value : JsonForm::none;
    if (!begins_object(begin)) return JsonForm::none;
    const LineCounts lines = count_lines(begin, whole, field);
    if (lines.objects > lines.others) {
        if (lines.with_text > 0) return JsonForm::lines;
        // a single object may be any file of JSON
        return lines.objects > 1 ? JsonForm::other_lines : JsonForm::none;
    }
    // over several lines, or cut off
    const bool continues = std::min(begin.find('\n'), begin.size()) < json_value_end(begin, 0);
    return continues && has_field(begin, field) ? JsonForm::value : JsonForm::none;
}

}  // namespace coeus
