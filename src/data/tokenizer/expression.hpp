// SPDX-License-Identifier: Apache-2.0
// Rewrites a regular expression of a tokenizer for PCRE2: classes of characters become those of the program's
// own table of Unicode, whatever version PCRE2 knows. They, intervals and options have the meaning of
// Oniguruma, the library of Hugging Face's tokenizers.
#pragma once

#include <string>
#include <string_view>

namespace coeus {

/// Rewrites \p{L}, \P{L} and the other general categories, \s, \d, \w, \h, \b and their complements, outside
/// and inside of [...], and [:word:], [:digit:], [:punct:], [:space:], [:blank:], [:cntrl:], [:graph:],
/// [:print:],
/// [:xdigit:] and [:ascii:]. Other properties, such as \p{Han}, remain PCRE2's. X{n,m}+ repeats X{n,m}, X{n}?
/// is X{n} or nothing, and a dot matches line ends with the option m, as in Oniguruma. ConfigError: an
/// intersection (&&), a class inside of a class, which PCRE2 does not have, or another class of POSIX.
/// `where`: the place of the expression, for messages.
std::string expression_for_pcre2(const std::string& expression, const std::string& where);

/// The expression that matches a text and nothing else.
std::string expression_for(std::string_view text);

}  // namespace coeus
