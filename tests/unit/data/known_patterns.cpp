// SPDX-License-Identifier: Apache-2.0
// Expressions with a hand-written matcher give the same pieces as PCRE2, for every character and for random
// texts.
#include "../../../src/data/tokenizer/known_patterns.hpp"

#include "../../../src/data/tokenizer/characters.hpp"
#include "coeus/base/random.hpp"
#include "coeus/base/utf8.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"

using namespace coeus;

namespace {

std::vector<size_t> ends_of(PieceScan& scan, const std::string& text) {
    std::vector<size_t> ends;
    scan.pieces(text, 0, [&](size_t, size_t end) {
        ends.push_back(end);
        return true;
    });
    return ends;
}

// One expression, matched in both ways.
struct Both {
    explicit Both(const char* expression)
        : pre_tokenizer({{.expression = expression}}, "test"),
          fast(pre_tokenizer.scan()),
          slow(pre_tokenizer.scan_by_expression()) {}
    PreTokenizer pre_tokenizer;
    std::unique_ptr<PieceScan> fast, slow;
};

const std::vector<const char*> expressions = {llama3_pattern, qwen_pattern, gpt2_pattern, o200k_pattern};

}  // namespace

TEST_CASE("known expressions: every character, next to characters of each class") {
    Part part("classes of characters", 1, {.check_all = 1, .short_list = 2});
    for (const char* expression : expressions) {
        Both both(expression);
        REQUIRE(known_scan(expression));
        std::vector<const char*> classes;
        for (const char* beside : {"a", " ", "A", "1", "'", "!\n", "\u0301"})
            if (part.takes_next()) classes.push_back(beside);
        size_t different = 0;
        std::string text;
        for (uint32_t code = 1; code < 0x110000; ++code) {
            for (const char* beside : classes) {
                if (code >= 0xd800 && code < 0xe000) break;  // surrogates
                append_utf8(text, code);
                text += beside;
            }
            if (code % 512 != 511) continue;
            different += ends_of(*both.fast, text) != ends_of(*both.slow, text);
            text.clear();
        }
        CHECK(different == 0);
    }
}

TEST_CASE("known expressions: random texts") {
    const std::vector<std::string> parts = {
        "a",      "b",      "s",      "S",      "t",          "re",        "VE",     "ll",     "L",
        "'",      "'",      "'s",     "\u017f", " ",          " ",         " ",      "\t",     "\n",
        "\r",     "\r\n",   "1",      "23",     "!",          "/",         "-",      "A",      "Z",
        "\u00e9", "\u00c9", "\u6771", "\u3000", "\u00a0",     "\u01c5",    "\u02b0", "\u0301", "\u00bd",
        "\u0663", "\u180e", "\u2028", "\u200b", "\U0001f642", "\U0001d7d8"};
    for (const char* expression : expressions) {
        Both both(expression);
        size_t different = 0;
        for (uint64_t seed = 0; seed < 20000; ++seed) {
            std::string text;
            const RandomStream random(seed, "texts");
            for (uint64_t i = 0; i <= seed % 24; ++i) text += parts[random.u64(i) % parts.size()];
            if (ends_of(*both.fast, text) == ends_of(*both.slow, text)) continue;
            if (different++ == 0) FAIL_CHECK(expression << " differs in \"" << text << "\"");
        }
        CHECK(different == 0);
    }
}

TEST_CASE("known expressions: other expressions have no hand-written matcher") {
    CHECK_FALSE(known_scan(""));
    CHECK_FALSE(known_scan("\\p{L}+|."));
}
