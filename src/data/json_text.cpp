// SPDX-License-Identifier: Apache-2.0
#include "json_text.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/utf8.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace coeus {

namespace {

constexpr size_t most_named = 8;
constexpr char32_t replacement_character = 0xFFFD;
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// The four hexadecimal digits at a place of a text.
std::optional<char32_t> hexadecimal(std::string_view text, size_t at) {
    if (at + 4 > text.size()) return std::nullopt;
    uint32_t value = 0;
    const char* const end = text.data() + at + 4;
    if (std::from_chars(text.data() + at, end, value, 16).ptr != end) return std::nullopt;
    return value;
}

char plain_escape(char c) {
    constexpr std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    const size_t at = letters.find(c);
    return at == std::string_view::npos ? '\0' : meant[at];
}

// A string without its quotes; none if JSON does not allow it.
std::optional<JsonText> unescaped(std::string_view quoted) {
    JsonText out;
    out.text.reserve(quoted.size());
    for (size_t at = 0; at < quoted.size();) {
        const size_t plain = std::min(quoted.find('\\', at), quoted.size());
        for (size_t i = at; i < plain; ++i)
            if (uint8_t(quoted[i]) < 0x20) return std::nullopt;
        out.text.append(quoted, at, plain - at);
        at = plain;
        if (at == quoted.size()) break;
        if (at + 1 == quoted.size()) return std::nullopt;
        const char c = quoted[at + 1];
        at += 2;
        if (c != 'u') {
            const char meant = plain_escape(c);
            if (meant == '\0') return std::nullopt;
            out.text += meant;
            continue;
        }
        const std::optional<char32_t> unit = hexadecimal(quoted, at);
        if (!unit) return std::nullopt;
        at += 4;
        char32_t character = *unit;
        if (character >= 0xD800 && character < 0xE000) {
            const std::optional<char32_t> low = character < 0xDC00 && quoted.substr(at).starts_with("\\u")
                                                    ? hexadecimal(quoted, at + 2)
                                                    : std::nullopt;
            if (low && *low >= 0xDC00 && *low < 0xE000) {
                character = 0x10000 + ((character - 0xD800) << 10) + (*low - 0xDC00);
                at += 6;
            } else {
                character = replacement_character;
                ++out.lone_surrogates;
            }
        }
        append_utf8(out.text, character);
    }
    return out;
}

std::string how_to_name(const std::string& field) {
    return fmt::format("--field {} (in a deck, training.text_field) reads {}", field.empty() ? "NAME" : field,
                       field.empty() ? "the field of that name" : "that one");
}

// Why an object has no usable text.
struct Flaw {
    std::string reason;
};

// Reads the parts of one object. Throws Flaw.
class Scanner {
public:
    Scanner(std::string_view text, const std::string& field) : text_(text), field_(field) {}

    JsonText read() {
        // files that were joined have one in the middle
        if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
        skip_blanks();
        if (!takes('{')) refuse_value(text_.substr(at_), "");
        std::optional<JsonText> found;
        std::vector<std::string> fields;
        std::string likely;  // the field with the longest text
        size_t longest = 0;
        skip_blanks();
        for (bool first = true; !takes('}'); first = false) {
            if (!first) {
                require(takes(','), "a comma or } must follow a value");
                skip_blanks();
            }
            const std::string key = string("the name of a field").text;
            skip_blanks();
            require(takes(':'), "a colon must follow the name of a field");
            skip_blanks();
            if (key != field_) {
                if (fields.size() < most_named) fields.push_back("\"" + key + "\"");
                const size_t begin = at_;
                skip_value();
                if (text_[begin] == '"' && at_ - begin > longest) likely = key, longest = at_ - begin;
            } else if (found) {
                throw Flaw{fmt::format("the key \"{}\" appears twice in one object", field_)};
            } else {
                if (at_ == text_.size() || text_[at_] != '"') refuse_value(value(), field_);
                found = string(field_);
            }
            skip_blanks();
        }
        skip_blanks();
        require(at_ == text_.size(), "there is more text after the object");
        if (found) return std::move(*found);
        throw Flaw{fmt::format(
            "has no field \"{}\"{}", field_,
            fields.empty() ? "" : fmt::format(", only {}; {}", join(fields, ", "), how_to_name(likely)))};
    }

private:
    void require(bool holds, std::string_view rule) const {
        if (!holds) throw Flaw{fmt::format("not valid JSON: {}, at byte {}", rule, at_ + 1)};
    }
    void skip_blanks() { at_ = std::min(text_.find_first_not_of(json_blanks, at_), text_.size()); }
    bool takes(char c) {
        const bool is_there = at_ < text_.size() && text_[at_] == c;
        at_ += is_there;
        return is_there;
    }
    std::string_view value() const {
        const size_t end = json_value_end(text_, at_);
        require(end != std::string_view::npos, "the text ends within a value that begins");
        require(end > at_, "a value must follow");
        return text_.substr(at_, end - at_);
    }
    void skip_value() { at_ += value().size(); }
    JsonText string(std::string_view what) {
        require(at_ < text_.size() && text_[at_] == '"', fmt::format("{} must be in quotes", what));
        const std::string_view quoted = value();
        std::optional<JsonText> text = unescaped(quoted.substr(1, quoted.size() - 2));
        require(text.has_value(),
                fmt::format("{} has an escape or a control character that JSON does not have", what));
        at_ += quoted.size();
        return std::move(*text);
    }
    // A value of another kind than is needed.
    [[noreturn]] void refuse_value(std::string_view value, const std::string& path) const {
        // the JSON library skips it
        require(!value.starts_with(byte_order_mark), "a byte order mark is not a value");
        const std::string place;
        try {
            const JsonDocument document = JsonDocument::parse(value, place);
            const JsonView view(document.root().value(), place, path);
            path.empty() ? void(view.items()) : void(view.string());
        } catch (const ConfigError& error) {
            const std::string_view reason = error.what();
            throw Flaw{std::string(reason.substr(reason.starts_with(": ") ? 2 : 0))};
        }
        throw LogicError("a value of the right kind was refused");
    }

    std::string_view text_;
    std::string field_;
    size_t at_ = 0;
};

}  // namespace

size_t json_value_end(std::string_view text, size_t at) {
    int64_t depth = 0;
    bool quoted = false;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted) {
            if (c == '\\') ++at;
            quoted = c != '"';
            if (quoted || depth > 0) continue;
            return at + 1;
        }
        if (c == '"') quoted = true;
        const bool closing = c == '}' || c == ']';
        if (depth == 0 && (closing || c == ',')) return at;  // after a number or a word
        if (c == '{' || c == '[') ++depth;
        if (closing && --depth == 0) return at + 1;
    }
    return std::string_view::npos;
}

bool has_field(std::string_view object, std::string_view field) {
    size_t at = object.find('{');
    while (at != object.npos) {
        const size_t name = object.find_first_not_of(json_blanks, at + 1);
        if (name == object.npos || object[name] != '"') return false;
        const size_t end = json_value_end(object, name);
        const size_t colon = end == object.npos ? end : object.find_first_not_of(json_blanks, end);
        if (colon == object.npos || object[colon] != ':') return false;
        if (object.substr(name + 1, end - name - 2) == field) return true;
        const size_t value = object.find_first_not_of(json_blanks, colon + 1);
        at = value == object.npos ? value : json_value_end(object, value);
        if (at != object.npos) at = object.find_first_not_of(json_blanks, at);
        if (at != object.npos && object[at] != ',') return false;
    }
    return false;
}

JsonText json_text(std::string_view object, const std::string& field) {
    try {
        return Scanner(object, field).read();
    } catch (Flaw& flaw) {
        return {.flaw = std::move(flaw.reason)};
    }
}

}  // namespace coeus
