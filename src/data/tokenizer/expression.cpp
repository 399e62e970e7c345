// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "expression.hpp"

#include "characters.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/utf8.hpp"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace coeus {

namespace {

constexpr uint32_t all_codes = 0x110000;
constexpr uint32_t first_surrogate = 0xd800, behind_surrogates = 0xe000;  // not in any text

// Characters, as bits of a table.
using Set = std::vector<bool>;

const std::array<const char*, 30> category_names = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

// The bits of the categories that a name stands for: "L", "Lu", "L&"; none if it is not a category.
uint32_t categories_of(const std::string& name) {
    if (name == "Any") return (1u << category_names.size()) - 1;
    if (name == "L&" || name == "LC") return categories_of("Lu") | categories_of("Ll") | categories_of("Lt");
    uint32_t bits = 0;
    for (size_t i = 0; i < category_names.size(); ++i)
        if (name == category_names[i] || (name.size() == 1 && name[0] == category_names[i][0]))
            bits |= 1u << i;
    return bits;
}

bool is_surrogate(uint32_t code) {
    return code >= first_surrogate && code < behind_surrogates;
}

Set set_of(uint32_t categories, bool complement) {
    Set set(all_codes);
    const std::span<const uint32_t> runs = category_runs();
    for (size_t i = 0; i < runs.size(); ++i) {
        const uint32_t end = i + 1 < runs.size() ? runs[i + 1] >> 5 : all_codes;
        const bool in = ((categories >> (runs[i] & 31)) & 1) != (complement ? 1u : 0u);
        std::fill(set.begin() + (runs[i] >> 5), set.begin() + end, in);
    }
    std::fill(set.begin() + first_surrogate, set.begin() + behind_surrogates, false);
    return set;
}

Set complement_of(Set set) {
    set.flip();
    std::fill(set.begin() + first_surrogate, set.begin() + behind_surrogates, false);
    return set;
}

// Every character that is assigned or may soon be, except those for private use.
struct AllCharacters {
    std::string text;
    std::vector<uint32_t> code_at;  // of each byte of the text, and of its end

    AllCharacters() {
        add(0, first_surrogate);
        add(behind_surrogates, classes_in_table);
        add(0xe0000, 0xe1000);
        code_at.push_back(0xe1000);
    }

private:
    void add(uint32_t begin, uint32_t end) {
        for (uint32_t code = begin; code < end; ++code) {
            append_utf8(text, code);
            code_at.resize(text.size(), code);
        }
    }
};

// The characters that an item, such as \p{L}, matches in this machine's PCRE2, and those that it does not.
struct InPcre2 {
    Set in = Set(all_codes), out = Set(all_codes);
    explicit InPcre2(const std::string& item);
};

InPcre2::InPcre2(const std::string& item) {
    static const AllCharacters all;
    int error = 0;
    size_t offset = 0;
    pcre2_code* const pattern = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(item.data()), item.size(),
                                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    require(pattern != nullptr, "PCRE2 knows the general categories");
    pcre2_jit_compile(pattern, PCRE2_JIT_COMPLETE);
    pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
    for (const uint32_t code : all.code_at) out[code] = true;
    size_t at = 0;
    while (pcre2_match(pattern, reinterpret_cast<PCRE2_SPTR>(all.text.data()), all.text.size(), at,
                       PCRE2_NO_UTF_CHECK, data, nullptr) > 0) {
        const size_t begin = pcre2_get_ovector_pointer(data)[0];
        in[all.code_at[begin]] = true;
        out[all.code_at[begin]] = false;
        at = pcre2_get_ovector_pointer(data)[1];
    }
    pcre2_match_data_free(data);
    pcre2_code_free(pattern);
}

std::string ranges_of(const Set& set) {
    std::string text;
    for (uint32_t code = 0; code < all_codes;) {
        if (!set[code]) {
            ++code;
            continue;
        }
        const uint32_t begin = code;
        while (code < all_codes && set[code]) ++code;
        text += fmt::format("\\x{{{:x}}}", begin);
        if (code > begin + 1) text += fmt::format("-\\x{{{:x}}}", code - 1);
    }
    return text;
}

// The inside of a class that matches `wanted`. A long list of ranges is slow in PCRE2 before 10.45, so the
// list has only what PCRE2's own item lacks, unless the item has more than is wanted.
std::string inside_of_class(const std::string& item, const Set& wanted) {
    const InPcre2 there(item);
    Set missing(all_codes);
    for (uint32_t code = 0; code < all_codes; ++code) {
        if (there.in[code] && !wanted[code]) return ranges_of(wanted);
        missing[code] = there.out[code] && wanted[code];
    }
    return item + ranges_of(missing);
}

// The same, found once for each item.
std::string inside_once(const std::string& item, const std::function<Set()>& wanted) {
    static std::mutex mutex;
    static std::map<std::string, std::string> known;
    const std::lock_guard lock(mutex);
    auto& inside = known[item];
    if (inside.empty()) inside = inside_of_class(item, wanted());
    return inside;
}

const char* const white_space =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
const char* const hexadecimal = "0-9A-Fa-f";

std::string of_categories(const std::string& name, bool complement) {
    return inside_once(fmt::format("\\{}{{{}}}", complement ? 'P' : 'p', name),
                       [&] { return set_of(categories_of(name), complement); });
}

std::string of_all_categories(const std::vector<std::string>& names) {
    std::string inside;
    for (const std::string& name : names) inside += of_categories(name, false);
    return inside;
}

// Letters in circles and squares, which are symbols.
std::string symbols_in_words() {
    static const std::string ranges = [] {
        Set set = set_of(categories_of("So"), false);
        for (uint32_t code = 0; code < all_codes; ++code) set[code] = set[code] && is_word(code);
        return ranges_of(set);
    }();
    return ranges;
}

// [:word:]
std::string of_words() {
    return of_all_categories({"L", "M", "Nd", "Nl", "Pc"}) + symbols_in_words();
}

// Oniguruma's own table of Latin-1 has superscripts and fractions in \w, but not in [:word:].
const char* const only_in_escape_w = R"(\xb2\xb3\xb9\xbc-\xbe)";

bool is_in_escape_w(uint32_t code) {
    return is_word(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 || (code >= 0xbc && code <= 0xbe);
}

Set set_where(bool (*is)(uint32_t)) {
    Set set(all_codes);
    for (uint32_t code = 0; code < all_codes; ++code) set[code] = !is_surrogate(code) && is(code);
    return set;
}

bool is_white_space(uint32_t code) {
    return (class_of(code) & is_space) != 0;
}
bool is_hexadecimal(uint32_t code) {
    return code < 0x80 && std::isxdigit(int(code)) != 0;
}

// \s, \D, ...: the inside of a class; "" for another escape.
std::string inside_of_escape(char escape) {
    const auto complement = [&](bool (*is)(uint32_t)) {
        return inside_once(std::string("\\") + escape, [&] { return complement_of(set_where(is)); });
    };
    switch (escape) {
        case 's': return white_space;
        case 'S': return complement(is_white_space);
        case 'd': return of_categories("Nd", false);
        case 'D': return of_categories("Nd", true);
        case 'w': return of_words() + only_in_escape_w;
        case 'W': return complement(is_in_escape_w);
        case 'h': return hexadecimal;
        case 'H': return complement(is_hexadecimal);
        default: return "";
    }
}

// [:digit:], ...: the inside of a class; "" for a name that is not known, and for alpha, alnum, upper and
// lower, which need properties that the table of Unicode does not have.
std::string inside_of_posix(const std::string& name) {
    static const std::vector<std::string> graph = {"L", "M", "N", "P", "S", "Cf", "Co"};
    if (name == "word") return of_words();
    if (name == "digit") return of_categories("Nd", false);
    if (name == "punct") return of_all_categories({"P", "S"});
    if (name == "space") return white_space;
    if (name == "blank") return R"(\x09)" + of_categories("Zs", false);
    if (name == "cntrl") return of_categories("Cc", false);
    if (name == "graph") return of_all_categories(graph);
    if (name == "print") return of_all_categories(graph) + of_categories("Zs", false);
    if (name == "xdigit") return hexadecimal;
    if (name == "ascii") return R"(\x00-\x7f)";
    return "";
}

class Rewriter {
public:
    Rewriter(const std::string& expression, const std::string& where) : in_(expression), where_(where) {}

    std::string run() {
        while (at_ < in_.size()) {
            if (in_class_)
                in_class();
            else
                outside_of_class();
        }
        return std::move(out_);
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw ConfigError("{}: the regular expression \"{}\" has {}, which is not supported", where_, in_,
                          what);
    }

    void copy(size_t count) {
        out_.append(in_, at_, count);
        at_ += count;
    }

    void in_class() {
        if (in_[at_] == '\\' && at_ + 1 < in_.size()) return escape();
        if (in_[at_] == '[') return posix();
        if (in_.compare(at_, 2, "&&") == 0) refuse("an intersection (&&)");
        in_class_ = in_[at_] != ']';
        copy(1);
    }

    void outside_of_class() {
        const char c = in_[at_];
        if (c == '{') return interval();
        if (c == '+' || c == '*' || c == '?') return copy(1);
        if (c == '(') return begin_group();
        if (c == ')') return end_group();
        atom_ = out_.size();
        if (c == '\\' && at_ + 1 < in_.size()) return escape();
        if (c == '[') return begin_class();
        copy(1);
        while (at_ < in_.size() && (uint8_t(in_[at_]) & 0xc0) == 0x80) copy(1);
    }

    void begin_class() {
        in_class_ = true;
        copy(in_.compare(at_, 2, "[^") == 0 ? 2 : 1);
        if (at_ < in_.size() && in_[at_] == ']') copy(1);  // a bracket at the beginning is a character
    }

    // [:digit:] in a class
    void posix() {
        const size_t end = in_.find(":]", at_);
        if (in_.compare(at_, 2, "[:") != 0 || end == std::string::npos) refuse("a class inside of a class");
        const std::string inside = inside_of_posix(in_.substr(at_ + 2, end - at_ - 2));
        if (inside.empty()) refuse("the class " + in_.substr(at_, end + 2 - at_));
        out_ += inside;
        at_ = end + 2;
    }

    // Options of a group: a dot matches line ends with m in Oniguruma, and with s in PCRE2.
    void begin_group() {
        groups_.push_back(out_.size());
        copy(1);
        if (in_.compare(at_, 1, "?") != 0) return;
        const size_t end = in_.find_first_not_of("imx-", at_ + 1);
        if (end == std::string::npos || (in_[end] != ':' && in_[end] != ')')) return copy(1);
        for (const char option : in_.substr(at_, end - at_)) out_ += option == 'm' ? 's' : option;
        at_ = end;
    }

    void end_group() {
        if (!groups_.empty()) {
            atom_ = groups_.back();
            groups_.pop_back();
        }
        copy(1);
    }

    // {2}, {2,}, {2,3}, {,3}. Oniguruma repeats x{2,3}+ as (?:x{2,3})+ and x{2}? as (?:x{2})?; in PCRE2 they
    // are possessive and lazy.
    void interval() {
        const size_t end = in_.find_first_not_of("0123456789,", at_ + 1);
        const std::string inside = in_.substr(at_ + 1, end - at_ - 1);
        if (end == std::string::npos || in_[end] != '}' || inside.find_first_of("0123456789") == inside.npos)
            return copy(1);
        const char next = end + 1 < in_.size() ? in_[end + 1] : '\0';
        out_ += (inside[0] == ',' ? "{0" : "{") + inside + "}";
        at_ = end + 1;
        if (next != '+' && !(next == '?' && inside.find(',') == inside.npos)) return;
        out_.insert(atom_, "(?:");
        out_ += std::string(")") + next;
        ++at_;
    }

    void put(const std::string& inside) { out_ += in_class_ ? inside : "[" + inside + "]"; }

    // \p{L}, \p{^L}, \pL: its name, and whether it is a complement. Nothing if it is not a general category.
    struct Property {
        std::string name;
        bool complement;
        size_t bytes;
    };
    std::optional<Property> property() const {
        if (in_[at_ + 1] != 'p' && in_[at_ + 1] != 'P') return std::nullopt;
        Property found{"", in_[at_ + 1] == 'P', 3};
        if (in_.compare(at_ + 2, 1, "{") == 0) {
            const size_t end = in_.find('}', at_);
            if (end == std::string::npos) return std::nullopt;
            found.name = in_.substr(at_ + 3, end - at_ - 3);
            found.bytes = end + 1 - at_;
            if (found.name.starts_with('^')) {
                found.complement = !found.complement;
                found.name.erase(0, 1);
            }
        } else {
            found.name = in_.substr(at_ + 2, 1);
        }
        return categories_of(found.name) != 0 ? std::optional(found) : std::nullopt;
    }

    void escape() {
        if (const auto found = property()) {
            // outside of a class, the complement of a short list is faster than a long list
            if (in_class_)
                out_ += of_categories(found->name, found->complement);
            else
                out_ += (found->complement ? "[^" : "[") + of_categories(found->name, false) + "]";
            at_ += found->bytes;
            return;
        }
        const char escaped = in_[at_ + 1];
        if (in_.compare(at_ + 1, 2, "x{") == 0)
            return copy(std::min(in_.find('}', at_), in_.size() - 1) + 1 - at_);
        if (!in_class_ && (escaped == 'b' || escaped == 'B')) {
            const std::string word = "[" + inside_of_escape('w') + "]";
            const char *const then = escaped == 'b' ? "!" : "=", *const otherwise =
                                                                     escaped == 'b' ? "=" : "!";
            out_ += fmt::format("(?:(?<={0})(?{1}{0})|(?<!{0})(?{2}{0}))", word, then, otherwise);
        } else if (!in_class_ && std::isupper(static_cast<unsigned char>(escaped)) != 0 &&
                   !inside_of_escape(escaped).empty()) {
            out_ += "[^" + inside_of_escape(char(escaped | 0x20)) + "]";
        } else if (const std::string inside = inside_of_escape(escaped); !inside.empty()) {
            put(inside);
        } else {
            return copy(2);
        }
        at_ += 2;
    }

    const std::string &in_, &where_;
    std::string out_;
    size_t at_ = 0;
    bool in_class_ = false;
    size_t atom_ = 0;             // where in out_ begins what a quantifier repeats
    std::vector<size_t> groups_;  // where in out_ the open groups begin
};

}  // namespace

std::string expression_for_pcre2(const std::string& expression, const std::string& where) {
    return Rewriter(expression, where).run();
}

std::string expression_for(std::string_view text) {
    std::string expression;
    for (const char c : text) {
        if (std::ispunct(static_cast<unsigned char>(c)) != 0) expression += '\\';
        expression += c;
    }
    return expression;
}

}  // namespace coeus
