// SPDX-License-Identifier: Apache-2.0
// TextWriter: continues any number of prompts, as many at the same time as the generator has slots. When a
// text ends, the next prompt gets its slot. A text depends only on its prompt, its number and the seed. All
// ranks of a mesh write all texts.
#pragma once

#include "coeus/data/tokenizer.hpp"
#include "coeus/generate/next_tokens.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace coeus {

/// Cuts a text, given in pieces, before the first stop string. Holds back text that may be the beginning of a
/// stop string.
class TextEnd {
public:
    explicit TextEnd(std::vector<std::string> stops) : stops_(std::move(stops)) {}
    /// Adds a piece. Returns the text that cannot be part of a stop string any more.
    std::string push(const std::string& piece);
    /// True after a stop string was found. No more text follows.
    bool found() const { return found_; }
    /// Returns the text that was held back, if no stop string was found.
    std::string finish();

private:
    std::vector<std::string> stops_;
    std::string held_;
    bool found_ = false;
};

struct TextWriterOptions {
    Sampling sampling;
    int64_t length = 128;            ///< maximum number of tokens per prompt
    std::vector<std::string> stops;  ///< a text ends before any of these strings
    bool ignore_eos = false;         ///< continue after EOS
};

/// The text that was generated after a prompt.
struct Written {
    std::string text;
    std::vector<int32_t> ids;      ///< its tokens, without the one that ended it
    const char* finish = nullptr;  ///< "eos", "stop" or "length"
};

class TextWriter {
public:
    /// ConfigError: a stop string is empty, or the tokenizer cannot represent it exactly.
    TextWriter(Generator& generator, const Tokenizer& tokenizer, const TextWriterOptions& options);

    /// Calls `on_piece(number, text)` for each new piece of a prompt's text, and
    /// `on_end(number, written)` when the text is complete. Texts end in any order. A text that is longer
    /// than the context continues from its most recent half.
    void write(const std::vector<std::vector<int32_t>>& prompts,
               const std::function<void(size_t, const std::string&)>& on_piece,
               const std::function<void(size_t, const Written&)>& on_end);

private:
    struct Text;
    NextTokens::Place place_of(const Text& text) const;
    void read(std::span<Text* const> texts, int64_t most);
    void append(std::span<Text* const> texts);
    void take(Text& text, int32_t id);
    NextTokens tokens_;
    const Tokenizer& tokenizer_;
    TextWriterOptions options_;
    std::vector<int32_t> stop_ids_;
};

}  // namespace coeus
