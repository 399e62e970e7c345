// SPDX-License-Identifier: Apache-2.0
// Splits text into pieces, within which BPE merges. Applies a sequence of regular expressions, each to the
// pieces of the previous one. Matches and the text between them are pieces ("isolated"). PCRE2 with its
// just-in-time compiler does the matching; it is included only in pre_tokenizer.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// Llama 3's pattern: cl100k's, with digits in groups of up to three. `coeus tokenizer` uses it too.
extern const char* const llama3_pattern;
/// The pattern of Qwen 2 and 3: digits are separate pieces.
extern const char* const qwen_pattern;
/// The pattern of o200k_base, GPT-OSS and Llama 4: words are also split before a capital letter.
extern const char* const o200k_pattern;
/// GPT-2's pattern, which ByteLevel with use_regex = true implies.
extern const char* const gpt2_pattern;

/// A compiled regular expression with Unicode properties. \s is Unicode's White_Space, which does not include
/// U+180E since Unicode 6.3, although PCRE2's \s still does.
class Pattern {
public:
    /// ConfigError with the expression and PCRE2's reason. `where`: the place of the expression, for
    /// messages.
    Pattern(const std::string& expression, const std::string& where);
    ~Pattern();
    Pattern(Pattern&&) noexcept;
    Pattern& operator=(Pattern&&) = delete;

    /// True if a match can depend on the text before it. If false, a scan that starts at the end of any match
    /// gives the same matches as a scan from the beginning of the text.
    bool looks_back() const { return looks_back_; }

private:
    friend class PatternScan;
    struct Compiled;
    std::unique_ptr<const Compiled> compiled_;
    bool looks_back_;
};

/// Matches a Pattern, for one thread.
class PatternScan {
public:
    explicit PatternScan(const Pattern& pattern);
    ~PatternScan();
    PatternScan(PatternScan&&) noexcept;
    PatternScan& operator=(PatternScan&&) = delete;

    struct Match {
        size_t begin, end;
    };
    /// The next match that is not empty, or [size, size) if there is none. The text must be valid UTF-8.
    Match next(std::string_view text, size_t from);

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Splits texts, for one thread.
class PieceScan {
public:
    virtual ~PieceScan() = default;
    /// Appends the ends of the first pieces of text[from, end of text): at least one, unless this range is
    /// empty. `from` must be 0 or the end of a piece. The text must be valid UTF-8.
    virtual void cut(std::string_view text, size_t from, std::vector<size_t>& ends) = 0;

    /// Calls visit(begin, end) for the pieces of text[from, end of text) in order until it returns false.
    template <class Visit>
    void pieces(std::string_view text, size_t from, Visit&& visit) {
        while (from < text.size()) {
            ends_.clear();
            cut(text, from, ends_);
            for (const size_t end : ends_) {
                if (!visit(from, end)) return;
                from = end;
            }
        }
    }

private:
    std::vector<size_t> ends_;
};

class PreTokenizer {
public:
    /// ConfigError as for Pattern.
    PreTokenizer(const std::vector<std::string>& expressions, const std::string& where);

    std::unique_ptr<PieceScan> scan() const;
    /// Gives the same pieces, but always with PCRE2, even if known_patterns.hpp has faster code.
    std::unique_ptr<PieceScan> scan_by_expression() const;
    /// True if a text can be cut at the end of any piece, so that the two parts give the pieces of the
    /// whole.
    bool can_resume() const { return patterns_.size() == 1 && !patterns_[0].looks_back(); }

private:
    std::vector<Pattern> patterns_;
    std::unique_ptr<PieceScan> (*known_)() = nullptr;
};

}  // namespace coeus
