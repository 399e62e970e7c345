// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/text.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/utf8.hpp"
#include "progress_interval.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

namespace coeus {

namespace {

// Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours. `most` if
// it is at least that. Texts whose lengths differ by so much are not compared, nor are long texts: the work
// is the product of the lengths.
size_t edit_distance(std::string_view a, std::string_view b, size_t most) {
    constexpr size_t longest = 256;
    const size_t longer = std::max(a.size(), b.size());
    if (longer > longest || longer - std::min(a.size(), b.size()) >= most) return most;
    std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
    for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
    for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replace = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return std::min(most, d[a.size()][b.size()]);
}

// True if `c`, a valid UTF-8 sequence, is a control character or one that changes the direction of writing
// (U+202A to U+202E, U+2066 to U+2069).
bool is_control(std::string_view c) {
    if (c.size() == 1) return uint8_t(c[0]) < 0x20 || c[0] == 0x7f;
    if (c.size() == 2) return c[0] == '\xc2' && uint8_t(c[1]) < 0xa0;
    return (c.starts_with("\xe2\x80") && uint8_t(c[2]) >= 0xaa && uint8_t(c[2]) <= 0xae) ||
           (c.starts_with("\xe2\x81") && uint8_t(c[2]) >= 0xa6 && uint8_t(c[2]) <= 0xa9);
}

std::string escaped(std::string_view text, bool keep_lines) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        size_t valid = 0;
        for (size_t length = 1; length <= 4 && length <= text.size() && valid == 0; ++length)
            valid = valid_utf8_prefix(text.substr(0, length));
        const std::string_view c = text.substr(0, std::max<size_t>(1, valid));
        const bool stays = keep_lines && (c == "\n" || c == "\t");
        if (stays || (valid > 0 && !is_control(c)))
            out += c;
        else
            for (const char byte : c) out += fmt::format("\\x{:02x}", uint8_t(byte));
        text.remove_prefix(c.size());
    }
    return out;
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
    const auto last_part = [](std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); };
    // two changes make any word of three letters another one
    const auto likely = [](std::string_view part) {
        return part.size() <= 3 ? 1 : std::max<size_t>(2, part.size() / 3);
    };
    std::string best;
    size_t best_distance = likely(name) + 1;
    for (const std::string& candidate : candidates) {
        size_t distance = edit_distance(name, candidate, best_distance);
        // an option given in a wrong section, or without one, is nearer than its edit distance says
        const size_t of_last =
            edit_distance(last_part(name), last_part(candidate), likely(last_part(name)) + 1);
        if (of_last <= likely(last_part(name))) distance = std::min(distance, of_last + 1);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

std::string with_commas(int64_t value) {
    std::string digits = fmt::format("{}", value);
    const int first = digits[0] == '-' ? 1 : 0;
    for (int i = int(digits.size()) - 3; i > first; i -= 3) digits.insert(size_t(i), ",");
    return digits;
}

std::string bytes_text(double bytes) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    while (std::fabs(bytes) >= 1024 && unit < 5) bytes /= 1024, ++unit;
    return unit == 0 ? fmt::format("{:.0f} B", bytes)
                     : fmt::format("{:.{}f} {}", bytes,
                                   bytes < 10    ? 2
                                   : bytes < 100 ? 1
                                                 : 0,
                                   units[unit]);
}

std::optional<int64_t> parse_bytes(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return std::nullopt;
    std::string unit(end, text.data() + text.size());
    unit.erase(0, unit.find_first_not_of(' '));
    for (char& c : unit) c = char(std::toupper(uint8_t(c)));
    if (unit.ends_with('B')) unit.pop_back();
    double base = 1000;
    if (unit.size() == 2 && unit[1] == 'I') {
        base = 1024;
        unit.pop_back();
    }
    static constexpr std::string_view powers = " KMGTP";
    const size_t power = unit.empty() ? 0 : powers.find(unit);
    if (unit.size() > 1 || power == std::string_view::npos || (base == 1024 && power == 0))
        return std::nullopt;
    number *= std::pow(base, double(power));
    if (!(number >= 1 && number < 9e18)) return std::nullopt;
    return int64_t(number);
}

std::string markup_of(std::string_view text) {
    std::string safe;
    for (const char c : text) switch (c) {
            case '&': safe += "&amp;"; break;
            case '<': safe += "&lt;"; break;
            case '>': safe += "&gt;"; break;
            case '"': safe += "&quot;"; break;
            default: safe += c;
        }
    return safe;
}

std::string printable(std::string_view text) {
    return escaped(text, false);
}

std::string printable_lines(std::string_view text) {
    return escaped(text, true);
}

namespace {

// The end of the word, or of the code between backticks, that begins at `start`.
size_t word_end(std::string_view text, size_t start) {
    bool in_code = false;
    for (; start < text.size() && (in_code || text[start] != ' '); ++start)
        if (text[start] == '`') in_code = !in_code;
    return start;
}

// True if a line of Markdown that begins with this text is a list item: "1.", "-".
bool begins_list_item(std::string_view text) {
    const std::string_view word = text.substr(0, text.find(' '));
    const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
    const std::string_view rest = word.substr(digits);
    return digits > 0 ? rest == "." || rest == ")" : rest == "-" || rest == "+" || rest == "*";
}

}  // namespace

std::string wrapped(std::string_view text, size_t width, std::string_view indent) {
    // bytes that do not begin a character have no column of their own
    const auto columns = [](std::string_view part) {
        return size_t(std::ranges::count_if(part, [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
    };
    if (columns(text) <= width) return std::string(text);
    const size_t leading = std::min(text.find_first_not_of(' '), text.size());
    std::string lines(text.substr(0, leading));
    size_t used = leading;
    bool is_first = true;
    for (size_t start = leading; start < text.size();) {
        size_t end = word_end(text, start);
        while (end < text.size() && begins_list_item(text.substr(end + 1))) end = word_end(text, end + 1);
        const std::string_view word = text.substr(start, end - start);
        if (!is_first && used + 1 + columns(word) > width) {
            lines += "\n";
            lines += indent;
            used = columns(indent);
        } else if (!is_first) {
            lines += " ";
            ++used;
        }
        lines += word;
        used += columns(word);
        is_first = false;
        start = std::min(text.find_first_not_of(' ', end), text.size());
    }
    return lines;
}

std::string in_shell(const std::string& word) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=+:,-";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
    std::string quoted = "'";
    for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
    return quoted + "'";
}

std::string ranges_text(const std::vector<int64_t>& numbers) {
    std::vector<std::string> runs;
    for (size_t i = 0, end = 0; i < numbers.size(); i = end) {
        for (end = i + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
        runs.push_back(end == i + 1 ? std::to_string(numbers[i])
                                    : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    }
    return join(runs, ",");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (i) text += separator;
        text += parts[i];
    }
    return text;
}

std::atomic<double> progress_interval = 60;

ProgressBar::ProgressBar(std::string title, int64_t total, bool bytes)
    : title_(std::move(title)),
      total_(std::max<int64_t>(total, 1)),
      bytes_(bytes),
      visible_(log::on_terminal() && log::is_terminal(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
    if (visible_ && last_ > 0) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(int64_t done) {
    const double pause = visible_ ? 0.1 : progress_interval.load();
    if ((last_ > 0 || !visible_) && since_draw_.seconds() < pause) return;
    since_draw_.restart();
    last_ = std::max<int64_t>(done, 1);
    draw(done);
}

void ProgressBar::draw(int64_t done) {
    const double share = std::min(1.0, double(done) / double(total_));
    const double rate = double(done) / std::max(1e-9, since_start_.seconds());
    const int filled = int(share * 24);
    const std::string bar = std::string(size_t(filled), '=') + (filled < 24 ? ">" : "") +
                            std::string(size_t(std::max(0, 23 - filled)), ' ');
    const auto number = [&](double n) { return bytes_ ? bytes_text(n) : with_commas(int64_t(n)); };
    const std::string state =
        fmt::format("{} of {}  {}/s  eta {}", number(double(done)), number(double(total_)), number(rate),
                    duration_text(double(total_ - done) / std::max(rate, 1e-9)));
    if (!visible_) return log::info("{}: {:.0f}%  {}", title_, share * 100, state);
    std::fputs(fmt::format("\r\033[K{}  [{}] {:3.0f}%  {}", title_, bar, share * 100, state).c_str(), stderr);
    std::fflush(stderr);
}

}  // namespace coeus
