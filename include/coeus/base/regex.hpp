// SPDX-License-Identifier: Apache-2.0
// Regular expressions that a user writes. The work for one text is limited, so that no expression makes the
// program wait for ever or crash. Only regex.cpp and the tokenizers use PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace coeus {

class Regex {
public:
    static constexpr size_t longest = 4096;  ///< bytes of an expression

    /// `expression`: in Perl's syntax. `where`: the text before messages, such as an option and its value.
    /// ConfigError: it is not a regular expression (with the reason and the place), or it is longer than
    /// 4,096 bytes.
    Regex(const std::string& expression, std::string where);
    ~Regex();
    Regex(Regex&&) noexcept;
    Regex& operator=(Regex&&) noexcept;

    /// Whether it matches a part of the text. ConfigError if that takes more than 100,000 attempts, or too
    /// much memory.
    bool matches_part_of(std::string_view text) const;

private:
    struct Compiled;
    std::unique_ptr<const Compiled> compiled_;
    std::string where_;
};

}  // namespace coeus
