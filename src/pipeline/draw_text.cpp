// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/draw.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace coeus {

namespace {

// Terminal colours (of 256) for F, B, I, W: black on colour; dim for idle time.
constexpr std::array<const char*, 4> escape_of = {"\033[30;48;5;111m", "\033[30;48;5;114m",
                                                  "\033[30;48;5;80m", "\033[30;48;5;222m"};
constexpr const char* dim = "\033[2m";
constexpr const char* plain_again = "\033[0m";
constexpr int plain = -1, idle = -2;

struct Glyph {
    char character = ' ';
    int style = plain;  // an ActionKind, or one of the two above
};
using Line = std::vector<Glyph>;

std::string label_of(const Timetable& table, const Action& action) {
    std::string text = text_of(action);
    if (table.stages() > table.ranks()) return text;
    return text.substr(text.find_first_not_of("0123456789"));  // one stage per rank
}

// Characters per unit of time, so that every label and a following blank fit.
int unit_width(const Timetable& table, const Simulation& simulation) {
    int64_t width = 1;
    for (const auto& row : simulation.rows) {
        for (const TimedAction& timed : row) {
            const int64_t needed = int64_t(label_of(table, timed.action).size()) + 1,
                          lasts = timed.end - timed.start;
            width = std::max(width, (needed + lasts - 1) / lasts);
        }
    }
    return int(width);
}

Line line_of(const Timetable& table, const std::vector<TimedAction>& row, int64_t makespan, int unit) {
    Line line(size_t(makespan * unit));
    for (int64_t t = 0; t < makespan; ++t) line[size_t(t * unit)] = {'.', idle};
    for (const TimedAction& timed : row) {
        const std::string label = label_of(table, timed.action);
        const size_t first = size_t(timed.start * unit), last = size_t(timed.end * unit) - 1;
        for (size_t i = first; i < last; ++i)
            line[i] = {i - first < label.size() ? label[i - first] : '-', int(timed.action.kind)};
        line[last] = {};
        if (timed.second_of_pair && first > 0) line[first - 1] = {'+', plain};
    }
    return line;
}

std::string trimmed(const std::string& text) {
    return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::string styled(const Line& line, size_t begin, size_t end, bool color) {
    std::string text;
    int style = plain;
    for (size_t i = begin; i < end; ++i) {
        if (color && line[i].style != style) {
            if (style != plain) text += plain_again;
            style = line[i].style;
            if (style != plain) text += style == idle ? dim : escape_of[size_t(style)];
        }
        text += line[i].character;
    }
    if (style != plain) text += plain_again;
    return trimmed(text);
}

std::string times(int64_t begin, int64_t end, int unit) {
    const int64_t every = unit >= 4 ? 5 : 10;
    std::string text(size_t((end - begin) * unit), ' ');
    for (int64_t t = (begin + every - 1) / every * every; t < end; t += every) {
        const std::string number = std::to_string(t);
        text.replace(size_t((t - begin) * unit), number.size(), number);
    }
    return text;
}

}  // namespace

std::string shape_text(const Timetable& table) {
    const auto count = [](int n, const std::string& one, const std::string& many) {
        return fmt::format("{} {}", n, n == 1 ? one : many);
    };
    std::string stages = count(table.stages(), "stage", "stages");
    if (table.stages() % table.ranks() == 0)
        stages = count(table.stages() / table.ranks(), "stage", "stages") + " on each rank";
    return fmt::format("{}, {}, {}", count(table.ranks(), "rank", "ranks"),
                       count(table.microbatches, "micro-batch", "micro-batches"), stages);
}

std::string timetable_text(const Timetable& table, const Simulation& simulation, const TextStyle& style) {
    const int unit = unit_width(table, simulation);
    const size_t margin = std::to_string(table.ranks() - 1).size() + 7;  // "rank 0  "
    int64_t units = simulation.makespan;
    if (style.width > 0) units = std::clamp<int64_t>((style.width - int64_t(margin)) / unit, 4, units);

    std::vector<Line> lines;
    for (const auto& row : simulation.rows) lines.push_back(line_of(table, row, simulation.makespan, unit));
    std::string text;
    for (int64_t begin = 0; begin < simulation.makespan; begin += units) {
        const int64_t end = std::min(begin + units, simulation.makespan);
        if (begin > 0) text += '\n';
        text += trimmed(fmt::format("{:<{}}{}", "time", margin, times(begin, end, unit))) + "\n";
        for (size_t rank = 0; rank < lines.size(); ++rank)
            text += fmt::format("{:<{}}{}\n", fmt::format("rank {}", rank), margin,
                                styled(lines[rank], size_t(begin * unit), size_t(end * unit), style.color));
    }
    return text;
}

}  // namespace coeus
