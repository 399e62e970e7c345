// SPDX-License-Identifier: Apache-2.0
// Rewrites a regular expression of a tokenizer for PCRE2: classes of characters become those of the program's
// own table of Unicode, whatever version PCRE2 knows. They and intervals have the meaning of Oniguruma, the
// library of Hugging Face's tokenizers.
#pragma once

#include <string>
#include <string_view>

namespace coeus {

/// \p{L}, \P{L} and the other general categories, \s, \d, \w, \h, \b and their complements, outside and
/// inside of [...], and intervals, such as {1,3}+. Other properties, such as \p{Han}, remain PCRE2's.
/// ConfigError: an intersection (&&) or a class inside of a class, which PCRE2 does not have. `where`: the
/// place of the expression, for messages.
std::string expression_for_pcre2(const std::string& expression, const std::string& where);

/// The expression that matches a text and nothing else.
std::string expression_for(std::string_view text);

}  // namespace coeus
