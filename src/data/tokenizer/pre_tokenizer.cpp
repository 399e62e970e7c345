// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pre_tokenizer.hpp"

#include "coeus/base/error.hpp"
#include "expression.hpp"
#include "known_patterns.hpp"

#include <pcre2.h>

#include <algorithm>
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
    const std::string text = expression_for_pcre2(expression, where);
    int error = 0;
    size_t offset = 0;
    auto compiled = std::make_unique<Compiled>();
    compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
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

std::optional<PatternScan::Match> PatternScan::find(std::string_view text, size_t at) {
    const State& s = *state_;
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int count =
        s.jit ? pcre2_jit_match(s.code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, s.data, s.context)
              : pcre2_match(s.code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, s.data, s.context);
    if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (count < 0) throw SystemError("pcre2_match: " + message_of(count));
    const size_t* const ends = pcre2_get_ovector_pointer(s.data);
    return Match{ends[0], ends[1]};
}

namespace {

constexpr size_t pieces_at_once = 512;

class ExpressionScan : public PieceScan {
public:
    ExpressionScan(const std::vector<Split>& splits, std::shared_ptr<const std::vector<Pattern>> patterns)
        : splits_(splits), patterns_(std::move(patterns)) {
        for (const Pattern& pattern : *patterns_) scans_.emplace_back(pattern);
    }

    void cut(std::string_view text, size_t from, std::vector<Piece>& pieces) override {
        if (scans_.empty() || !splits_[0].keeps_parts()) return divide(0, text, from, text.size(), pieces);
        parts_of(0, text.substr(from), [&](const Part& part) {
            take(0, text, from + part.begin, from + part.end, part.match, pieces);
            return pieces.size() < pieces_at_once;
        });
    }

private:
    struct Part {
        size_t begin, end;
        bool match;
    };

    // Calls visit(part) for the matches of an expression and the text between them until it returns false
    // after a match.
    template <class Visit>
    void parts_of(size_t level, std::string_view text, Visit&& visit) {
        size_t at = 0;
        bool stopped = false;
        scans_[level].matches(text, [&](const PatternScan::Match& match) {
            if (match.begin > at) visit(Part{at, match.begin, false});
            at = match.end;
            stopped = !visit(Part{match.begin, match.end, true});
            return !stopped && at < text.size();
        });
        if (!stopped && at < text.size()) visit(Part{at, text.size(), false});
    }

    // The parts of a text, some of which are joined with the part before or after them.
    std::vector<Part> joined_parts(size_t level, std::string_view text) {
        const Split& split = splits_[level];
        const bool backwards = split.behavior == Behavior::merged_with_next;
        std::vector<Part> parts, joined;
        parts_of(level, text, [&](const Part& part) {
            parts.push_back(part);
            return true;
        });
        if (backwards) std::reverse(parts.begin(), parts.end());
        bool before = false;  // the part before counts as a match
        for (const Part& part : parts) {
            const bool match = part.match != split.invert;
            const bool joins = split.behavior == Behavior::contiguous ? match == before : match && !before;
            before = match;
            if (!joins || joined.empty())
                joined.push_back(part);
            else if (backwards)
                joined.back().begin = part.begin;
            else
                joined.back().end = part.end;
        }
        if (backwards) std::reverse(joined.begin(), joined.end());
        return joined;
    }

    // Each expression is applied to each piece of the one before as a separate text.
    void divide(size_t level, std::string_view text, size_t begin, size_t end, std::vector<Piece>& pieces) {
        if (begin == end) return;
        if (level == scans_.size()) return pieces.push_back({end});
        const std::string_view subject = text.substr(begin, end - begin);
        const auto visit = [&](const Part& part) {
            take(level, text, begin + part.begin, begin + part.end, part.match, pieces);
            return true;
        };
        if (splits_[level].keeps_parts()) return parts_of(level, subject, visit);
        for (const Part& part : joined_parts(level, subject)) visit(part);
    }

    void take(size_t level, std::string_view text, size_t begin, size_t end, bool match,
              std::vector<Piece>& pieces) {
        if (!splits_[level].removes(match)) return divide(level + 1, text, begin, end, pieces);
        if (begin < end) pieces.push_back({end, true});
    }

    std::vector<Split> splits_;
    std::shared_ptr<const std::vector<Pattern>> patterns_;
    std::vector<PatternScan> scans_;
};

// True if a split of text in which everything matches gives the matches.
bool gives_matches(const Split& split) {
    return split.behavior == Behavior::isolated || (split.behavior == Behavior::removed && split.invert);
}

}  // namespace

PreTokenizer::PreTokenizer(const std::vector<Split>& splits, const std::string& where)
    : splits_(splits), where_(where) {
    // the known expressions match everything
    if (splits.size() == 1 && gives_matches(splits[0])) known_ = known_scan(splits[0].expression);
    if (!known_) patterns_ = compiled();
}

std::shared_ptr<const std::vector<Pattern>> PreTokenizer::compiled() const {
    auto patterns = std::make_shared<std::vector<Pattern>>();
    for (const Split& split : splits_) patterns->emplace_back(split.expression, where_);
    return patterns;
}

std::unique_ptr<PieceScan> PreTokenizer::scan_by_expression() const {
    return std::make_unique<ExpressionScan>(splits_, patterns_ ? patterns_ : compiled());
}

std::unique_ptr<PieceScan> PreTokenizer::scan() const {
    return known_ ? known_() : scan_by_expression();
}

bool PreTokenizer::can_resume() const {
    return known_ || (splits_.size() == 1 && splits_[0].keeps_parts() && !patterns_->front().looks_back());
}

}  // namespace coeus
