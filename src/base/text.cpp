// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/text.hpp"

#include "coeus/base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

namespace coeus {

namespace {

// Optimal string alignment distance.
size_t edit_distance(std::string_view a, std::string_view b) {
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
    return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
    const auto last_part = [](std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); };
    const auto likely = [](std::string_view part) { return std::max<size_t>(2, part.size() / 3); };
    std::string best;
    size_t best_distance = likely(name) + 1;
    for (const std::string& candidate : candidates) {
        size_t distance = edit_distance(name, candidate);
        // an option that was given under another section, or without one, is nearer than its distance says
        const size_t of_last = edit_distance(last_part(name), last_part(candidate));
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

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (i) text += separator;
        text += parts[i];
    }
    return text;
}

ProgressBar::ProgressBar(std::string title, int64_t total, bool bytes)
    : title_(std::move(title)),
      total_(std::max<int64_t>(total, 1)),
      bytes_(bytes),
      visible_(log::on_terminal() && log::is_terminal(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
    if (visible_ && last_ > 0) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(int64_t done) {
    if (!visible_ || (last_ > 0 && since_draw_.seconds() < 0.1)) return;
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
    const std::string line = fmt::format(
        "\r\033[K{}  [{}] {:3.0f}%  {} of {}  {}/s  eta {}", title_, bar, share * 100, number(double(done)),
        number(double(total_)), number(rate), duration_text(double(total_ - done) / std::max(rate, 1e-9)));
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
}

}  // namespace coeus
