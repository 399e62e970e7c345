// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pre_tokenizer.hpp"

#include "coeus/base/error.hpp"
#include "known_patterns.hpp"

#include <pcre2.h>

#include <cstdint>

namespace coeus {

const char* const llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* const qwen_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* const o200k_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* const gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// The expression, in which \s and \S are replaced by White_Space and its complement, since PCRE2's \s
// contains U+180E.
std::string with_unicode_space(const std::string& expression) {
    const std::string space =
        R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
    std::string out;
    bool in_class = false;
    for (size_t i = 0; i < expression.size(); ++i) {
        const char c = expression[i];
        if (c != '\\' || i + 1 == expression.size()) {
            if (c == '[') in_class = true;
            if (c == ']') in_class = false;
            out += c;
            continue;
        }
        const char escaped = expression[++i];
        if (escaped == 's')
            out += in_class ? space : "[" + space + "]";
        else if (escaped == 'S')
            out += in_class ? R"(\S\x{180e})" : "[^" + space + "]";
        else
            out += {c, escaped};
    }
    return out;
}

bool has_look_back(const std::string& expression) {
    for (const char* part : {"(?<", "\\b", "\\B", "\\G", "\\A", "\\K", "^"}) {
        for (size_t at = expression.find(part); at != std::string::npos; at = expression.find(part, at + 1))
            if (part[0] != '^' || at == 0 || expression[at - 1] != '[') return true;
    }
    return false;
}

std::string message_of(int code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Compiled {
    pcre2_code* code = nullptr;
    bool jit = false;
    ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression, const std::string& where)
    : looks_back_(has_look_back(expression)) {
    const std::string text = with_unicode_space(expression);
    int error = 0;
    size_t offset = 0;
    auto compiled = std::make_unique<Compiled>();
    compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    if (!compiled->code)
        throw ConfigError("{}: PCRE2 does not understand the regular expression \"{}\": {}", where,
                          expression, message_of(error));
    // on a system that forbids writable code this fails: then matching is slower, with the same result
    compiled->jit = pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE) == 0;
    compiled_ = std::move(compiled);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

struct PatternScan::State {
    const pcre2_code* code;
    bool jit;
    pcre2_match_data* data;
    pcre2_match_context* context;
    pcre2_jit_stack* stack;

    explicit State(const pcre2_code* c, bool j)
        : code(c),
          jit(j),
          data(pcre2_match_data_create(1, nullptr)),
          context(pcre2_match_context_create(nullptr)),
          stack(pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr)) {
        pcre2_jit_stack_assign(context, nullptr, stack);
    }
    ~State() {
        pcre2_jit_stack_free(stack);
        pcre2_match_context_free(context);
        pcre2_match_data_free(data);
    }
};

PatternScan::PatternScan(const Pattern& pattern)
    : state_(std::make_unique<State>(pattern.compiled_->code, pattern.compiled_->jit)) {}
PatternScan::~PatternScan() = default;
PatternScan::PatternScan(PatternScan&&) noexcept = default;

PatternScan::Match PatternScan::next(std::string_view text, size_t from) {
    State& s = *state_;
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    while (from < text.size()) {
        const int count =
            s.jit ? pcre2_jit_match(s.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, s.data, s.context)
                  : pcre2_match(s.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, s.data, s.context);
        if (count == PCRE2_ERROR_NOMATCH) break;
        if (count < 0) throw SystemError("pcre2_match: " + message_of(count));
        const size_t* ends = pcre2_get_ovector_pointer(s.data);
        if (ends[1] > ends[0]) return {ends[0], ends[1]};
        // an empty match: continue the search after the next character
        from = ends[1] + 1;
        while (from < text.size() && (uint8_t(text[from]) & 0xc0) == 0x80) ++from;
    }
    return {text.size(), text.size()};
}

namespace {

constexpr size_t pieces_at_once = 512;

class ExpressionScan : public PieceScan {
public:
    explicit ExpressionScan(const std::vector<Pattern>& patterns) {
        for (const Pattern& pattern : patterns) scans_.emplace_back(pattern);
    }

    void cut(std::string_view text, size_t from, std::vector<size_t>& ends) override {
        if (scans_.empty()) return ends.push_back(text.size());
        while (from < text.size() && ends.size() < pieces_at_once) {
            const PatternScan::Match match = scans_[0].next(text, from);
            cut_further(1, text, from, match.begin, ends);
            cut_further(1, text, match.begin, match.end, ends);
            from = match.end;
        }
    }

private:
    // The next expression is applied to each piece as a separate text.
    void cut_further(size_t level, std::string_view text, size_t begin, size_t end,
                     std::vector<size_t>& ends) {
        if (begin == end) return;
        if (level == scans_.size()) return ends.push_back(end);
        const std::string_view subject = text.substr(begin, end - begin);
        for (size_t at = 0; at < subject.size();) {
            const PatternScan::Match match = scans_[level].next(subject, at);
            cut_further(level + 1, text, begin + at, begin + match.begin, ends);
            cut_further(level + 1, text, begin + match.begin, begin + match.end, ends);
            at = match.end;
        }
    }

    std::vector<PatternScan> scans_;
};

}  // namespace

PreTokenizer::PreTokenizer(const std::vector<std::string>& expressions, const std::string& where) {
    for (const std::string& expression : expressions) patterns_.emplace_back(expression, where);
    if (expressions.size() == 1) known_ = known_scan(expressions[0]);
}

std::unique_ptr<PieceScan> PreTokenizer::scan_by_expression() const {
    return std::make_unique<ExpressionScan>(patterns_);
}

std::unique_ptr<PieceScan> PreTokenizer::scan() const {
    return known_ ? known_() : scan_by_expression();
}

}  // namespace coeus
