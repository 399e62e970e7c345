// SPDX-License-Identifier: Apache-2.0
// Cuts text into the pieces within which BPE merges: a sequence of regular expressions, each applied to the
// pieces of the one before; matches and what lies between them are pieces ("isolated"). PCRE2 with its
// just-in-time compiler does the matching and stays in pre_tokenizer.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// Llama 3's pattern (cl100k's with digits in threes), also that of `coeus tokenizer`.
extern const char* const llama3_pattern;
/// The pattern implied by ByteLevel(use_regex true), GPT-2's.
extern const char* const gpt2_pattern;

/// A compiled expression. Unicode properties are on, and \s is Unicode's White_Space: PCRE2 also counts
/// U+180E, which left that set in Unicode 6.3.
class Pattern {
public:
    /// Throws ConfigError with the expression and PCRE2's reason; `where` is the place that it came from.
    Pattern(const std::string& expression, const std::string& where);
    ~Pattern();
    Pattern(Pattern&&) noexcept;
    Pattern& operator=(Pattern&&) = delete;

    /// True where a scan that starts at the end of any match goes on as the scan from the text's beginning
    /// does: the expression never looks back.
    bool looks_back() const { return looks_back_; }

private:
    friend class PatternScan;
    struct Compiled;
    std::unique_ptr<const Compiled> compiled_;
    bool looks_back_;
};

/// One thread's use of a Pattern.
class PatternScan {
public:
    explicit PatternScan(const Pattern& pattern);
    ~PatternScan();
    PatternScan(PatternScan&&) noexcept;
    PatternScan& operator=(PatternScan&&) = delete;

    struct Match {
        size_t begin, end;
    };
    /// The next match that is not empty, or [size, size) where there is none. The text is valid UTF-8.
    Match next(std::string_view text, size_t from);

private:
    struct State;
    std::unique_ptr<State> state_;
};

class PreTokenizer {
public:
    explicit PreTokenizer(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {}
    const std::vector<Pattern>& patterns() const { return patterns_; }

    /// True where a text may be cut at the end of any piece and both parts give the pieces of the whole.
    bool can_resume() const { return patterns_.size() == 1 && !patterns_[0].looks_back(); }

private:
    std::vector<Pattern> patterns_;
};

/// One thread's use of a PreTokenizer.
class PieceScan {
public:
    explicit PieceScan(const PreTokenizer& pre_tokenizer) {
        for (const Pattern& pattern : pre_tokenizer.patterns()) scans_.emplace_back(pattern);
    }

    /// Calls visit(begin, end) for the pieces of text in order until it returns false.
    template <class Visit>
    void pieces(std::string_view text, Visit&& visit) {
        pieces_of(0, text, 0, text.size(), visit);
    }

private:
    template <class Visit>
    bool pieces_of(size_t level, std::string_view text, size_t begin, size_t end, Visit&& visit) {
        if (begin == end) return true;
        if (level == scans_.size()) return visit(begin, end);
        // each piece is a text of its own to the next expression: its ends are the ends of a subject
        const std::string_view subject = text.substr(begin, end - begin);
        for (size_t at = 0; at < subject.size();) {
            const PatternScan::Match match = scans_[level].next(subject, at);
            if (!pieces_of(level + 1, text, begin + at, begin + match.begin, visit) ||
                !pieces_of(level + 1, text, begin + match.begin, begin + match.end, visit))
                return false;
            at = match.end;
        }
        return true;
    }

    std::vector<PatternScan> scans_;
};

}  // namespace coeus
