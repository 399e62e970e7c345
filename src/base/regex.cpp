// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/regex.hpp"

#include "coeus/base/error.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <utility>

namespace coeus {

namespace {

constexpr uint32_t most_attempts = 100'000, most_kibibytes = 64 << 10, deepest_brackets = 250;

std::string reason_of(int code) {
    std::array<PCRE2_UCHAR, 256> text = {};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR bytes_of(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

struct Regex::Compiled {
    pcre2_code* code = nullptr;
    ~Compiled() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& expression, std::string where) : where_(std::move(where)) {
    if (expression.size() > longest)
        throw ConfigError("{}: a regular expression has at most {} bytes, this one has {}", where_, longest,
                          expression.size());
    using Context = std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)>;
    const Context context(pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
    pcre2_set_parens_nest_limit(context.get(), deepest_brackets);
    int error = 0;
    size_t offset = 0;
    auto compiled = std::make_unique<Compiled>();
    compiled->code =
        pcre2_compile(bytes_of(expression), expression.size(), 0, &error, &offset, context.get());
    if (!compiled->code)
        throw ConfigError("{}: is not a regular expression: {}, at byte {}", where_, reason_of(error),
                          offset + 1);
    compiled_ = std::move(compiled);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::matches_part_of(std::string_view text) const {
    using Context = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
    using Data = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
    const Context context(pcre2_match_context_create(nullptr), pcre2_match_context_free);
    pcre2_set_match_limit(context.get(), most_attempts);
    pcre2_set_depth_limit(context.get(), most_attempts);
    pcre2_set_heap_limit(context.get(), most_kibibytes);
    const Data data(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    const int result =
        pcre2_match(compiled_->code, bytes_of(text), text.size(), 0, 0, data.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0)
        throw ConfigError("{}: takes too long to compare with \"{}\" ({}); write a simpler expression",
                          where_, text, reason_of(result));
    return true;
}

}  // namespace coeus
