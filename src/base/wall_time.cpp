// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/wall_time.hpp"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <vector>

namespace coeus {

namespace {

// A number that consists only of digits.
std::optional<int64_t> number(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || text.front() == '-' || error != std::errc() || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

}  // namespace

std::optional<double> seconds_of_wall_time(const std::string& text) {
    std::string_view rest = text;
    double days = 0;
    const size_t dash = rest.find('-');
    const bool has_days = dash != std::string_view::npos;
    if (has_days) {
        const auto count = number(rest.substr(0, dash));
        if (!count) return std::nullopt;
        days = double(*count);
        rest.remove_prefix(dash + 1);
    }
    std::vector<double> parts;
    while (true) {
        const size_t colon = rest.find(':');
        const auto value = number(rest.substr(0, colon));
        if (!value) return std::nullopt;
        parts.push_back(double(*value));
        if (colon == std::string_view::npos) break;
        rest.remove_prefix(colon + 1);
    }
    if (parts.size() > 3) return std::nullopt;
    // after days, the first part is hours; otherwise the last of two or three parts is seconds, and a single
    // part is minutes
    if (has_days)
        parts.resize(3);
    else if (parts.size() == 1)
        parts = {0, parts[0], 0};
    else if (parts.size() == 2)
        parts = {0, parts[0], parts[1]};
    return ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
}

}  // namespace coeus
