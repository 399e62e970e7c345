// SPDX-License-Identifier: Apache-2.0
// TextWriter: continues any number of prompts, as many side by side as the generator has slots; a text
// that ends makes room for the next prompt. What is written for a prompt depends on the prompt, its number
// and the seed alone.
#pragma once

#include "coeus/data/tokenizer.hpp"
#include "coeus/generate/generator.hpp"

#include <functional>
#include <string>
#include <vector>

namespace coeus {

/// Cuts a text that comes in pieces before the first of some texts, holding back what may become one of them.
class TextEnd {
public:
    explicit TextEnd(std::vector<std::string> stops) : stops_(std::move(stops)) {}
    /// The text that is certain now.
    std::string push(const std::string& piece);
    /// True when one of the texts has come; nothing follows.
    bool found() const { return found_; }
    /// What was held back, where none has come.
    std::string finish();

private:
    std::vector<std::string> stops_;
    std::string held_;
    bool found_ = false;
};

struct TextWriterOptions {
    Sampling sampling;
    int64_t length = 128;            ///< most tokens to write for a prompt
    std::vector<std::string> stops;  ///< a text ends before any of these
    bool ignore_eos = false;         ///< continue after EOS
};

/// What was written behind a prompt.
struct Written {
    std::string text;
    std::vector<int32_t> ids;      ///< its tokens, without one that ended it
    const char* finish = nullptr;  ///< "eos", "stop" or "length"
};

class TextWriter {
public:
    /// ConfigError: a stop text that is empty or that the tokenizer cannot write.
    TextWriter(Generator& generator, const Tokenizer& tokenizer, const TextWriterOptions& options);

    /// `on_piece(number, text)`: more text of a prompt; `on_end(number, written)`: it is complete. Prompts
    /// come to their ends in any order. A text that is longer than the context continues from its newest
    /// half.
    void write(const std::vector<std::vector<int32_t>>& prompts,
               const std::function<void(size_t, const std::string&)>& on_piece,
               const std::function<void(size_t, const Written&)>& on_end);

private:
    struct Text;
    void take(Text& text, Tensor logits);
    Tensor go_on_from_half(const Text& text);
    Generator& generator_;
    const Tokenizer& tokenizer_;
    TextWriterOptions options_;
    std::vector<int32_t> stop_ids_;
    std::vector<float> row_;
};

}  // namespace coeus
