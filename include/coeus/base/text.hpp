// SPDX-License-Identifier: Apache-2.0
// Text for messages: nearest names, numbers, escaping, a progress bar.
#pragma once

#include "coeus/base/clock.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// The candidate with the smallest edit distance (insertion, deletion, replacement, swap of neighbours), or
/// "" if none is near enough to be a likely typing error.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// "8,030,261,248"
std::string with_commas(int64_t value);
/// "1.50 GiB", "12.0 MiB", "512 B"
std::string bytes_text(double bytes);
/// Parses a size in bytes: "5GB", "0.5 GiB", "200kB" (powers of 1000, or of 1024 with an i) or "4096".
/// Nothing if the text is not such a size or is less than one byte.
std::optional<int64_t> parse_bytes(std::string_view text);
/// Escapes &, <, > and " for HTML and SVG: "a < b" becomes "a &lt; b".
std::string markup_of(std::string_view text);
/// Escapes a text for a terminal: control characters, characters that change the direction of writing and
/// invalid UTF-8 become "\\x1b" and the like. So a file's name can neither imitate lines of a log nor move
/// the cursor.
std::string printable(std::string_view text);
/// The same for a text of several lines: line feeds and tabs are kept.
std::string printable_lines(std::string_view text);

/// Breaks a text that is wider than `width` columns into lines, at its spaces. A word that is wider has its
/// own line. There are no breaks between backticks, and none before a word that Markdown takes for a
/// list item, such as "1.". `indent` begins every line but the first.
std::string wrapped(std::string_view text, size_t width, std::string_view indent = "");

/// A word of a command as a shell reads it: "it's" becomes "'it'\\''s'", "a.txt" stays.
std::string in_shell(const std::string& word);

/// The parts with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// Ascending numbers as text: "0-2,5".
std::string ranges_text(const std::vector<int64_t>& numbers);

/// A progress bar on a terminal; elsewhere it prints nothing. Long work owns one and calls update() as often
/// as it likes; it is drawn at most ten times a second.
///   tokenizing  [=========>          ]  47%  18.8 MiB of 40.0 MiB  12.1 MiB/s  eta 2 s
class ProgressBar {
public:
    /// `total` is the amount of work; if `bytes` is set, amounts are printed as KiB, MiB, ..., else as plain
    /// numbers.
    ProgressBar(std::string title, int64_t total, bool bytes);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    void update(int64_t done);

private:
    void draw(int64_t done);
    std::string title_;
    int64_t total_, last_ = 0;
    bool bytes_, visible_;
    Timer since_start_, since_draw_;
};

}  // namespace coeus
