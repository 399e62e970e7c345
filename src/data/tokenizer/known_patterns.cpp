// SPDX-License-Identifier: Apache-2.0
// Each regular expression is a list of alternatives, of which the first that matches applies. The functions
// try them in order. Instead of backtracking, the code computes its result directly.
#include "known_patterns.hpp"

#include "characters.hpp"

#include <cstdint>
#include <string_view>

namespace coeus {

namespace {

class Text {
public:
    explicit Text(std::string_view text)
        : bytes_(reinterpret_cast<const uint8_t*>(text.data())),
          size_(text.size()),
          classes_(character_classes()) {}

    size_t size() const { return size_; }
    bool is(size_t at, char byte) const { return at < size_ && bytes_[at] == uint8_t(byte); }
    /// The class of the character at a position; 0 at the end.
    uint8_t kind(size_t at) const {
        return at < size_ && bytes_[at] < 0x80 ? classes_[bytes_[at]] : kind_of_wide(at);
    }
    size_t behind(size_t at) const {
        const uint8_t lead = bytes_[at];
        return at + (lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
    }

    /// The end of a run of characters that are in one of these classes, or in none of them.
    size_t run_of(uint8_t classes, size_t at) const {
        while (true) {
            while (at < size_ && bytes_[at] < 0x80 && (classes_[bytes_[at]] & classes)) ++at;
            if (at == size_ || bytes_[at] < 0x80 || !(kind_of_wide(at) & classes)) return at;
            at = behind(at);
        }
    }
    size_t run_of_none(uint8_t classes, size_t at) const {
        while (at < size_ && !(kind(at) & classes)) at = behind(at);
        return at;
    }
    /// The end of at most `most` numbers.
    size_t numbers(size_t at, int most) const {
        for (; most > 0 && (kind(at) & is_number); --most) at = behind(at);
        return at;
    }
    /// [\r\n]*, and [\r\n/]*
    size_t line_ends(size_t at) const {
        while (is(at, '\r') || is(at, '\n')) ++at;
        return at;
    }
    size_t line_ends_and_slashes(size_t at) const {
        while (is(at, '\r') || is(at, '\n') || is(at, '/')) ++at;
        return at;
    }

    /// 's|'t|'re|'ve|'m|'ll|'d: the end of the match, or `at` if there is none.
    size_t contraction(size_t at) const {
        if (!is(at, '\'')) return at;
        if (is(at + 1, 's') || is(at + 1, 't') || is(at + 1, 'm') || is(at + 1, 'd')) return at + 2;
        const bool three =
            ((is(at + 1, 'r') || is(at + 1, 'v')) && is(at + 2, 'e')) || (is(at + 1, 'l') && is(at + 2, 'l'));
        return three ? at + 3 : at;
    }
    /// The same in upper or lower case; U+017F is an s.
    size_t contraction_in_any_case(size_t at) const {
        if (!is(at, '\'')) return at;
        if (is(at + 1, '\xc5') && is(at + 2, '\xbf')) return at + 3;
        const char first = lower(at + 1), second = lower(at + 2);
        if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
        const bool three =
            ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
        return three ? at + 3 : at;
    }

    /// \s+(?!\S)|\s+ at the beginning of white space: a run without its last character, which belongs to
    /// the text after it.
    size_t space(size_t at) const {
        size_t end = at, last = at;
        for (; kind(end) & is_space; end = behind(end)) last = end;
        return end == size_ || last == at ? end : last;
    }
    /// \s*[\r\n]+|\s+(?!\S)|\s+: up to the run's last line end, if it has one.
    size_t space_or_lines(size_t at) const {
        size_t end = at, last = at, lines = at;
        for (; kind(end) & is_space; end = behind(end)) {
            last = end;
            if (kind(end) & is_line_end) lines = end + 1;
        }
        if (lines > at) return lines;
        return end == size_ || last == at ? end : last;
    }

private:
    char lower(size_t at) const { return at < size_ ? char(bytes_[at] | 0x20) : '\0'; }

    uint8_t kind_of_wide(size_t at) const {
        if (at >= size_) return 0;
        const uint8_t* b = bytes_ + at;
        if (b[0] < 0x80) return classes_[b[0]];
        if (b[0] < 0xe0) return classes_[(b[0] & 0x1f) << 6 | (b[1] & 0x3f)];
        if (b[0] < 0xf0) return classes_[(b[0] & 0x0f) << 12 | (b[1] & 0x3f) << 6 | (b[2] & 0x3f)];
        const uint32_t code =
            (b[0] & 0x07u) << 18 | (b[1] & 0x3fu) << 12 | (b[2] & 0x3fu) << 6 | (b[3] & 0x3fu);
        return code < classes_in_table ? classes_[code] : class_of(code);
    }

    const uint8_t* bytes_;
    size_t size_;
    const uint8_t* classes_;
};

constexpr uint8_t word_or_space = is_letter | is_number | is_space;

struct Gpt2 {
    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    static size_t piece(const Text& text, size_t at) {
        if (const size_t end = text.contraction(at); end > at) return end;
        const size_t begin = text.is(at, ' ') ? at + 1 : at;
        if (begin < text.size()) {
            const uint8_t kind = text.kind(begin);
            if (kind & is_letter) return text.run_of(is_letter, begin);
            if (kind & is_number) return text.run_of(is_number, begin);
            if (!(kind & is_space)) return text.run_of_none(word_or_space, begin);
        }
        return text.space(at);
    }
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
template <int digits>
struct Llama3 {
    static size_t piece(const Text& text, size_t at) {
        const uint8_t kind = text.kind(at);
        if (kind & is_letter) return text.run_of(is_letter, at);
        if (kind & is_number) return text.numbers(at, digits);
        if (const size_t end = text.contraction_in_any_case(at); end > at) return end;
        const size_t next = text.behind(at);
        const uint8_t next_kind = text.kind(next);
        if (!(kind & is_line_end) && (next_kind & is_letter)) return text.run_of(is_letter, next);
        if (!(kind & is_space)) return text.line_ends(text.run_of_none(word_or_space, next));
        if (text.is(at, ' ') && next < text.size() && !(next_kind & word_or_space))
            return text.line_ends(text.run_of_none(word_or_space, next));
        return text.space_or_lines(at);
    }
};

// With U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and W = [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
// [^\r\n\p{L}\p{N}]?U*W+(?i:'s|...)?|[^\r\n\p{L}\p{N}]?U+W*(?i:'s|...)?|\p{N}{1,3}|
// ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
struct O200k {
    static size_t piece(const Text& text, size_t at) {
        const uint8_t kind = text.kind(at);
        if (kind & is_number) return text.numbers(at, 3);
        if (const size_t end = word(text, at, kind); end > at) return text.contraction_in_any_case(end);
        const size_t next = text.behind(at);
        const bool space_before_symbols =
            text.is(at, ' ') && next < text.size() && !(text.kind(next) & word_or_space);
        if (!(kind & is_space) || space_before_symbols)
            return text.line_ends_and_slashes(text.run_of_none(word_or_space, next));
        return text.space_or_lines(at);
    }

private:
    // The first two alternatives, each with the character in front, and, if that is a mark, also without
    // it.
    static size_t word(const Text& text, size_t at, uint8_t kind) {
        if (kind & is_letter) {
            const size_t end = lower_end(text, at);
            return end > at ? end : upper_end(text, at);
        }
        if (kind & is_line_end) return at;
        const size_t next = text.behind(at);
        const bool mark = (kind & is_upper) != 0;  // not a letter, but in U
        if (const size_t end = lower_end(text, next); end > next) return end;
        if (mark) return lower_end(text, at);  // a mark is in W too
        const size_t end = upper_end(text, next);
        return end > next ? end : at;
    }

    // U*W+: W follows at the end of U*; else U* is shortened to its last character that is also in W.
    static size_t lower_end(const Text& text, size_t at) {
        size_t end = at, behind_both = at;
        for (uint8_t kind = text.kind(end); kind & is_upper; kind = text.kind(end)) {
            end = text.behind(end);
            if (kind & is_lower) behind_both = end;
        }
        const size_t behind_lower = text.run_of(is_lower, end);
        return behind_lower > end ? behind_lower : behind_both;
    }
    // U+W*, if U*W+ did not match: then no W follows.
    static size_t upper_end(const Text& text, size_t at) { return text.run_of(is_upper, at); }
};

template <class Expression>
class KnownScan : public PieceScan {
public:
    void cut(std::string_view text, size_t from, std::vector<Piece>& pieces) override {
        const Text characters(text);
        for (int count = 0; count < 512 && from < text.size(); ++count) {
            from = Expression::piece(characters, from);
            pieces.push_back({from});
        }
    }
};

template <class Expression>
std::unique_ptr<PieceScan> make() {
    return std::make_unique<KnownScan<Expression>>();
}

}  // namespace

MakeScan known_scan(const std::string& expression) {
    if (expression == llama3_pattern) return make<Llama3<3>>;
    if (expression == qwen_pattern) return make<Llama3<1>>;
    if (expression == gpt2_pattern) return make<Gpt2>;
    if (expression == o200k_pattern) return make<O200k>;
    return nullptr;
}

}  // namespace coeus
