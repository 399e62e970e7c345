// SPDX-License-Identifier: Apache-2.0
// Small text helpers of messages: nearest names, numbers for people, a progress bar.
#pragma once

#include "coeus/base/clock.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours), or "" when
/// none is near enough to be a likely slip.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// "8,030,261,248"
std::string with_commas(int64_t value);
/// "1.50 GiB", "12.0 MiB", "512 B"
std::string bytes_text(double bytes);
/// Bytes of "5GB", "0.5 GiB", "200kB" (powers of 1000 or, with an i, of 1024) or "4096"; nothing where it is
/// no such size or less than one byte.
std::optional<int64_t> parse_bytes(std::string_view text);
/// For HTML and SVG: "a < b" as "a &lt; b"; also &, > and ".
std::string markup_of(std::string_view text);
/// For a terminal: control characters, also those that turn the direction of writing, and what is not UTF-8
/// as
/// "\\x1b". A file's names cannot imitate lines of a log, or move the cursor.
std::string printable(std::string_view text);
/// The same for text of several lines: line feeds, tabs and the colours of a terminal stay.
std::string printable_lines(std::string_view text);

/// Joined with a separator.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// A progress bar on a terminal; silent elsewhere. Long work owns one and calls update() as often as it
/// likes: it draws at most ten times a second.
///   tokenizing  [=========>          ]  47%  18.8 MiB of 40.0 MiB  12.1 MiB/s  eta 2 s
class ProgressBar {
public:
    /// `total` in `unit`s; with `bytes` the numbers are shown as MiB.
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
