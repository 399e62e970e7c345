// SPDX-License-Identifier: Apache-2.0
#include "coeus/metrics/load_history.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/file/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <system_error>

namespace coeus {

namespace {

constexpr int64_t percent = 100;

std::optional<int64_t> layer_number(const std::string& name) {
    int64_t number = 0;
    const char* end = name.data() + name.size();
    const auto [stop, failed] = std::from_chars(name.data(), end, number);
    return failed == std::errc() && stop == end && number >= 0 ? std::optional(number) : std::nullopt;
}

// Nothing if the values are not loads.
std::vector<float> loads_of(const JsonView& values) {
    std::vector<float> loads;
    for (const int64_t value : values.integers()) {
        if (value < 0) return {};
        loads.push_back(float(value) / float(percent));
    }
    return loads;
}

void add_line(const JsonView& line, LoadHistory& history) {
    const int64_t step = line.integer("step");
    if (step < 1 || step > std::numeric_limits<int32_t>::max()) return;
    for (const auto& [name, values] : line["layers"].items()) {
        const std::optional<int64_t> layer = layer_number(name);
        std::vector<float> loads = loads_of(values);
        if (!layer || loads.empty()) continue;
        const size_t experts =
            history.empty() ? loads.size() : history.begin()->second.begin()->second.size();
        if (loads.size() == experts) history[*layer][step] = std::move(loads);
    }
}

}  // namespace

bool records_loads(int64_t step, int64_t log_freq, int64_t steps) {
    const int64_t logged = steps / log_freq;
    const int64_t nth = std::max<int64_t>(1, (logged + most_recorded_loads - 1) / most_recorded_loads);
    return step == 1 || step == steps || step % (log_freq * nth) == 0;
}

std::string load_line(int64_t step, std::span<const int64_t> layers, std::span<const int64_t> loads) {
    constexpr size_t usual_digits = 4;  // with the comma
    std::string line;
    line.reserve(usual_digits * loads.size() + 16 * (layers.size() + 2));
    auto put = std::back_inserter(line);
    fmt::format_to(put, "{{\"step\":{},\"layers\":{{", step);
    const size_t experts = loads.size() / layers.size();
    for (size_t row = 0; row < layers.size(); ++row) {
        const std::span<const int64_t> layer = loads.subspan(row * experts, experts);
        const double tokens = double(std::accumulate(layer.begin(), layer.end(), int64_t(0)));
        const double factor = tokens > 0 ? double(percent) * double(experts) / tokens : 0;
        fmt::format_to(put, "{}\"{}\":", row ? "," : "", layers[row]);
        for (size_t i = 0; i < experts; ++i)
            fmt::format_to(put, "{}{}", i ? ',' : '[', std::llround(factor * double(layer[i])));
        line += ']';
    }
    return line + "}}";
}

LoadHistory read_load_history(const std::filesystem::path& file) {
    LoadHistory history;
    std::error_code ignored;  // then it has no lines
    std::istringstream in(text_patiently(file, ignored));
    for (std::string text; std::getline(in, text);) {
        try {
            const JsonDocument document = JsonDocument::parse(text, file.string());
            add_line(document.root(), history);
        } catch (const ConfigError&) {
            continue;  // an incomplete line: the run was killed
        }
    }
    return history;
}

}  // namespace coeus
