// SPDX-License-Identifier: Apache-2.0
// Expressions with a hand-written matcher give the same pieces as PCRE2, for every character and for random
// texts.
#include "../../../src/data/tokenizer/known_patterns.hpp"

#include "../../../src/data/tokenizer/characters.hpp"
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"

#include <algorithm>

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

void append(std::string& text, uint32_t code) {
    if (code < 0x80) {
        text += char(code);
    } else if (code < 0x800) {
        text += char(0xc0 | (code >> 6));
        text += char(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        text += char(0xe0 | (code >> 12));
        text += char(0x80 | ((code >> 6) & 0x3f));
        text += char(0x80 | (code & 0x3f));
    } else {
        text += char(0xf0 | (code >> 18));
        text += char(0x80 | ((code >> 12) & 0x3f));
        text += char(0x80 | ((code >> 6) & 0x3f));
        text += char(0x80 | (code & 0x3f));
    }
}

// One expression, matched in both ways.
struct Both {
    explicit Both(const char* expression)
        : pre_tokenizer({expression}, "test"),
          fast(pre_tokenizer.scan()),
          slow(pre_tokenizer.scan_by_expression()) {}
    PreTokenizer pre_tokenizer;
    std::unique_ptr<PieceScan> fast, slow;
};

// Characters that both libraries classify alike; no surrogates.
std::vector<bool> agreed_characters() {
    const std::vector<std::pair<const char*, uint8_t>> classes = {
        {"\\p{L}", is_letter},
        {"\\p{N}", is_number},
        {"\\s", is_space},
        {"[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", is_upper},
        {"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]", is_lower}};
    std::vector<bool> agreed(0x110000, true);
    for (const auto& [expression, bit] : classes) {
        const Pattern pattern(expression, "test");
        PatternScan scan(pattern);
        for (uint32_t code = 0; code < agreed.size(); ++code) {
            std::string character;
            append(character, code);
            if (code >= 0xd800 && code < 0xe000)
                agreed[code] = false;
            else if ((scan.next(character, 0).begin == 0) != ((class_of(code) & bit) != 0))
                agreed[code] = false;
        }
    }
    return agreed;
}

const std::vector<const char*> expressions = {llama3_pattern, qwen_pattern, gpt2_pattern, o200k_pattern};

}  // namespace

TEST_CASE("known expressions: every character, next to characters of each class") {
    const std::vector<bool> agreed = agreed_characters();
    // utf8proc and PCRE2 may know different versions of Unicode; old assignments are the same in all versions
    CHECK(std::count(agreed.begin(), agreed.begin() + 0x800, false) == 0);
    CHECK(std::count(agreed.begin(), agreed.end(), false) < 20000);
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
                if (!agreed[code]) break;
                append(text, code);
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
