// SPDX-License-Identifier: Apache-2.0
#include "characters.hpp"

#include "coeus/base/error.hpp"

#include <utf8proc.h>

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

bool is_of_words(utf8proc_int32_t code) {
    switch (utf8proc_category(code)) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default:
            // joiners, and circled and squared letters, which are symbols with the property Alphabetic
            return code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
                   (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
                   (code >= 0x1f170 && code <= 0x1f189);
    }
}

// Every character below U+0300 is its own normal form. In UTF-8, all others begin with a byte of at least
// 0xcc.
bool may_change(std::string_view text) {
    for (const char byte : text)
        if (uint8_t(byte) >= 0xcc) return true;
    return false;
}

void append_nfc(std::string_view text, std::string& out) {
    utf8proc_uint8_t* composed = nullptr;
    const utf8proc_ssize_t length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), utf8proc_ssize_t(text.size()),
                     &composed, utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, std::free);
    if (length < 0) throw SystemError(std::string("utf8proc_map: ") + utf8proc_errmsg(length));
    out.append(reinterpret_cast<const char*>(composed), size_t(length));
}

}  // namespace

uint8_t class_of(uint32_t code) {
    switch (utf8proc_category(utf8proc_int32_t(code))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LT: return is_letter | is_upper;
        case UTF8PROC_CATEGORY_LL: return is_letter | is_lower;
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO: return is_letter | is_upper | is_lower;
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME: return is_upper | is_lower;
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_NO: return is_number;
        case UTF8PROC_CATEGORY_ZS:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP: return is_space;
        default: break;
    }
    if (code == '\r' || code == '\n') return is_space | is_line_end;
    return (code >= 0x09 && code <= 0x0d) || code == 0x85 ? is_space : 0;
}

const uint8_t* character_classes() {
    static const std::vector<uint8_t> all = [] {
        std::vector<uint8_t> classes;
        for (uint32_t code = 0; code < 0x10000; ++code) classes.push_back(class_of(code));
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
    return !text.empty() && is_of_words(last(text).code);
}

bool starts_in_word(std::string_view text) {
    return !text.empty() && is_of_words(first(text).code);
}

std::string_view in_nfc(std::string_view text, std::string& buffer) {
    if (!may_change(text)) return text;
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
        if (may_change(part))
            append_nfc(part, buffer);
        else
            buffer += part;
        at = end;
    }
    return buffer;
}

}  // namespace coeus
