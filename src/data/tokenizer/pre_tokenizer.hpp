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
/// Qwen 2's and 3's: digits one by one.
extern const char* const qwen_pattern;
/// That of o200k_base, GPT-OSS and Llama 4: words are also cut before a capital.
extern const char* const o200k_pattern;
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

/// One thread's cutting of texts.
class PieceScan {
public:
    virtual ~PieceScan() = default;
    /// Appends the ends of the first pieces of text[from, end of text), at least of one where that is not
    /// empty; `from` is 0 or the end of a piece. The text is valid UTF-8.
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
    /// ConfigError as of Pattern.
    PreTokenizer(const std::vector<std::string>& expressions, const std::string& where);

    std::unique_ptr<PieceScan> scan() const;
    /// True where a text may be cut at the end of any piece and both parts give the pieces of the whole.
    bool can_resume() const { return patterns_.size() == 1 && !patterns_[0].looks_back(); }

private:
    std::vector<Pattern> patterns_;
};

}  // namespace coeus
