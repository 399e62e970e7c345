// SPDX-License-Identifier: Apache-2.0
// Splits text into pieces, within which BPE merges. Applies a sequence of regular expressions, each to the
// pieces of the previous one. PCRE2 with its just-in-time compiler does the matching; it is included only in
// pre_tokenizer.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// A compiled regular expression with Unicode properties, which are those of the program's own table
/// (expression.hpp). ^ and $ match at the ends of lines too, as in Oniguruma.
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
    /// Calls visit(match) for the matches of a text, in order, until it returns false. As in Oniguruma, an
    /// empty match at the end of the match before it does not count. The text must be valid UTF-8.
    template <class Visit>
    void matches(std::string_view text, Visit&& visit) {
        std::optional<size_t> end;  // of the match before
        for (size_t at = 0; at <= text.size();) {
            const std::optional<Match> match = find(text, at);
            if (!match) return;
            if (match->begin == match->end && match->end == end) {
                for (++at; at < text.size() && (uint8_t(text[at]) & 0xc0) == 0x80;) ++at;
                continue;
            }
            end = at = match->end;
            if (!visit(*match)) return;
        }
    }

private:
    // The first match at or after a position.
    std::optional<Match> find(std::string_view text, size_t at);

    struct State;
    std::unique_ptr<State> state_;
};

/// What becomes of the matches of an expression, and of the text between them: the behaviors of the
/// pre-tokenizer Split.
enum class Behavior : uint8_t {
    isolated,              ///< each match is a piece, and so is the text between two matches
    removed,               ///< matches are left out
    contiguous,            ///< consecutive matches are one piece
    merged_with_previous,  ///< a match belongs to the piece before it
    merged_with_next       ///< a match belongs to the piece after it
};

/// One step: an expression and what its matches become.
struct Split {
    std::string expression;
    Behavior behavior = Behavior::isolated;
    bool invert = false;  ///< the text between matches is treated as matches are, and matches as that text

    /// True if a part becomes no piece. `is_match`: it is a match, not text between matches.
    bool removes(bool is_match) const { return behavior == Behavior::removed && is_match != invert; }
    /// True if a part is a piece or is removed, whatever the parts beside it are.
    bool keeps_parts() const { return behavior == Behavior::isolated || behavior == Behavior::removed; }
};

/// A piece ends where the next one begins.
struct Piece {
    size_t end;
    bool removed = false;  ///< the piece is left out
};

/// Splits texts, for one thread.
class PieceScan {
public:
    virtual ~PieceScan() = default;
    /// Appends the first pieces of text[from, end of text): at least one, unless this range is empty. `from`
    /// must be 0 or the end of a piece. The text must be valid UTF-8.
    virtual void cut(std::string_view text, size_t from, std::vector<Piece>& pieces) = 0;

    /// Calls visit(begin, end) for the pieces of text[from, end of text) that are not removed, in order,
    /// until it returns false. Returns the end of the last piece.
    template <class Visit>
    size_t pieces(std::string_view text, size_t from, Visit&& visit) {
        while (from < text.size()) {
            pieces_.clear();
            cut(text, from, pieces_);
            for (const Piece& piece : pieces_) {
                const size_t begin = std::exchange(from, piece.end);
                if (!piece.removed && !visit(begin, from)) return from;
            }
        }
        return from;
    }

private:
    std::vector<Piece> pieces_;
};

class PreTokenizer {
public:
    /// ConfigError as for Pattern.
    PreTokenizer(const std::vector<Split>& splits, const std::string& where);

    std::unique_ptr<PieceScan> scan() const;
    /// Gives the same pieces, but always with PCRE2, even if known_patterns.hpp has faster code.
    std::unique_ptr<PieceScan> scan_by_expression() const;
    /// True if a text can be cut at the end of any piece, so that the two parts give the pieces of the
    /// whole.
    bool can_resume() const;

private:
    std::shared_ptr<const std::vector<Pattern>> compiled() const;

    std::vector<Split> splits_;
    std::string where_;
    std::shared_ptr<const std::vector<Pattern>> patterns_;  // nullptr if the expression is known
    std::unique_ptr<PieceScan> (*known_)() = nullptr;
};

}  // namespace coeus
