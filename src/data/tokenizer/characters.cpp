// SPDX-License-Identifier: Apache-2.0
#include "characters.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace coeus {

namespace {

struct Character {
    utf8proc_int32_t code = -1;
    size_t bytes = 0;
};

Character first(std::string_view text) {
    Character c;
    if (!text.empty())
        c.bytes = size_t(utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                          utf8proc_ssize_t(text.size()), &c.code));
    return c;
}

Character last(std::string_view text) {
    size_t begin = text.size();
    while (begin > 0 && (uint8_t(text[--begin]) & 0xc0) == 0x80) {
    }
    return first(text.substr(begin));
}

bool is_white(utf8proc_int32_t code) {
    return (class_of(uint32_t(code)) & is_space) != 0;
}

bool is_mark(uint32_t code) {
    const Category category = category_of(code);
    return category == Category::Mn || category == Category::Mc || category == Category::Me;
}

bool is_word_or_joiner(uint32_t code) {
    return is_word(code) || code == 0x200c || code == 0x200d;
}

// The smallest first byte of a character that a normal form can change: no character below U+0300 has another
// form C, and no ASCII character has another form of any kind.
uint8_t first_that_may_change(NormalForm form) {
    return form == NormalForm::c ? 0xcc : 0xc2;
}

bool may_change(std::string_view text, NormalForm form) {
    const uint8_t least = first_that_may_change(form);
    return std::any_of(text.begin(), text.end(), [&](char byte) { return uint8_t(byte) >= least; });
}

utf8proc_option_t options_of(NormalForm form) {
    const bool compose = form == NormalForm::c || form == NormalForm::kc;
    const bool compatible = form == NormalForm::kc || form == NormalForm::kd;
    return utf8proc_option_t(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                             (compatible ? UTF8PROC_COMPAT : 0));
}

void append_normal(std::string_view text, NormalForm form, std::string& out) {
    utf8proc_uint8_t* composed = nullptr;
    const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                 utf8proc_ssize_t(text.size()), &composed, options_of(form));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, std::free);
    if (length < 0) throw SystemError(std::string("utf8proc_map: ") + utf8proc_errmsg(length));
    out.append(reinterpret_cast<const char*>(composed), size_t(length));
}

}  // namespace

Category category_of(uint32_t code) {
    const std::span<const uint32_t> runs = category_runs();
    const auto after = std::upper_bound(runs.begin(), runs.end(), code << 5 | 31);
    return Category(*(after - 1) & 31);
}

uint8_t class_of(uint32_t code) {
    switch (category_of(code)) {
        case Category::Lu:
        case Category::Lt: return is_letter | is_upper;
        case Category::Ll: return is_letter | is_lower;
        case Category::Lm:
        case Category::Lo: return is_letter | is_upper | is_lower;
        case Category::Mn:
        case Category::Mc:
        case Category::Me: return is_upper | is_lower;
        case Category::Nd:
        case Category::Nl:
        case Category::No: return is_number;
        case Category::Zs:
        case Category::Zl:
        case Category::Zp: return is_space;
        default: break;
    }
    if (code == '\r' || code == '\n') return is_space | is_line_end;
    return (code >= 0x09 && code <= 0x0d) || code == 0x85 ? is_space : 0;
}

bool is_word(uint32_t code) {
    switch (category_of(code)) {
        case Category::Lu:
        case Category::Ll:
        case Category::Lt:
        case Category::Lm:
        case Category::Lo:
        case Category::Mn:
        case Category::Mc:
        case Category::Me:
        case Category::Nd:
        case Category::Nl:
        case Category::Pc: return true;
        case Category::So:  // letters in circles and squares
            return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
                   (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
        default: return false;
    }
}

const uint8_t* character_classes() {
    static const std::vector<uint8_t> all = [] {
        std::vector<uint8_t> classes;
        for (uint32_t code = 0; code < classes_in_table; ++code) classes.push_back(class_of(code));
        return classes;
    }();
    return all.data();
}

size_t space_at_end(std::string_view text) {
    while (!text.empty()) {
        const Character c = last(text);
        if (!is_white(c.code)) break;
        text.remove_suffix(c.bytes);
    }
    return text.size();
}

size_t space_at_start(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const Character c = first(text.substr(at));
        if (!is_white(c.code)) break;
        at += c.bytes;
    }
    return at;
}

bool ends_in_word(std::string_view text) {
    return !text.empty() && is_word_or_joiner(uint32_t(last(text).code));
}

bool starts_in_word(std::string_view text) {
    return !text.empty() && is_word_or_joiner(uint32_t(first(text).code));
}

bool starts_in_mark(std::string_view text) {
    return !text.empty() && is_mark(uint32_t(first(text).code));
}

std::string unicode_version_of_utf8proc() {
    return utf8proc_unicode_version();
}

std::string_view in_normal_form(std::string_view text, NormalForm form, std::string& buffer) {
    if (!may_change(text, form)) return text;
    buffer.clear();
    // An ASCII character can combine with characters after it, but never with those before it: parts
    // begin there.
    for (size_t at = 0; at < text.size();) {
        size_t high = at;
        while (high < text.size() && uint8_t(text[high]) < 0x80) ++high;
        const size_t begin = high > at && high < text.size() ? high - 1 : high;
        buffer.append(text, at, begin - at);
        size_t end = high;
        while (end < text.size() && uint8_t(text[end]) >= 0x80) ++end;
        const std::string_view part = text.substr(begin, end - begin);
        if (may_change(part, form))
            append_normal(part, form, buffer);
        else
            buffer += part;
        at = end;
    }
    return buffer;
}

std::string_view in_lower_case(std::string_view text, std::string& buffer) {
    buffer.clear();
    for (Character c; !text.empty(); text.remove_prefix(c.bytes)) {
        c = first(text);
        append_utf8(buffer, char32_t(utf8proc_tolower(c.code)));
        if (c.code == 0x130) buffer += "\u0307";  // the only letter whose lower case is two characters
    }
    return buffer;
}

std::string_view without_marks(std::string_view text, std::string& buffer) {
    buffer.clear();
    for (Character c; !text.empty(); text.remove_prefix(c.bytes)) {
        c = first(text);
        if (!is_mark(uint32_t(c.code))) buffer.append(text, 0, c.bytes);
    }
    return buffer;
}

}  // namespace coeus
