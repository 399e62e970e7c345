// SPDX-License-Identifier: Apache-2.0
// The report for a terminal: the loss as a plot of Braille dots (2 x 4 per character), the other charts as
// one line of block characters each (eight heights), and the tables.
#include "coeus/base/text.hpp"

#include "charts.hpp"
#include "tables.hpp"
#include "wall_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

using namespace report;

constexpr const char* run_colors[] = {"34", "33", "32", "35", "36", "31"};

std::string painted(const std::string& text, size_t run, bool color) {
    return color ? fmt::format("\033[{}m{}\033[0m", run_colors[run % std::size(run_colors)], text) : text;
}

// UTF-8 of a character from U+0800 to U+FFFF.
std::string utf8(uint32_t code) {
    return {char(0xE0 | (code >> 12)), char(0x80 | (code >> 6 & 0x3F)), char(0x80 | (code & 0x3F))};
}

// Number of characters of a UTF-8 text; each is one column wide.
size_t width_of(const std::string& text) {
    return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width) {
    const size_t own = width_of(text);
    return own >= width ? text : text + std::string(width - own, ' ');
}

// A field of characters, each of 2 x 4 dots of one run.
class DotField {
public:
    DotField(int columns, int rows) : columns_(columns), rows_(rows), cells_(size_t(columns * rows)) {}
    int dots_across() const { return 2 * columns_; }
    int dots_down() const { return 4 * rows_; }

    /// (0, 0) is the upper left dot.
    void dot(int x, int y, size_t run) {
        // bits of the Braille block: three rows of two, then a fourth row, which Unicode appended
        static constexpr int bits[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
        Cell& cell = cells_[size_t(y / 4 * columns_ + x / 2)];
        cell.dots |= uint8_t(1 << bits[y % 4][x % 2]);
        cell.run = run;
    }
    void line(int x1, int y1, int x2, int y2, size_t run) {
        const int count = std::max({std::abs(x2 - x1), std::abs(y2 - y1), 1});
        for (int i = 0; i <= count; ++i)
            dot(x1 + int(std::lround(double(x2 - x1) * i / count)),
                y1 + int(std::lround(double(y2 - y1) * i / count)), run);
    }
    void mark(int x, int y, size_t run) {
        Cell& cell = cells_[size_t(y / 4 * columns_ + x / 2)];
        cell.marked = true;
        cell.run = run;
    }
    std::string row(int row, bool color) const {
        std::string text;
        for (int column = 0; column < columns_; ++column) {
            const Cell& cell = cells_[size_t(row * columns_ + column)];
            if (cell.marked)
                text += painted("○", cell.run, color);
            else if (cell.dots)
                text += painted(utf8(0x2800 + cell.dots), cell.run, color);
            else
                text += ' ';
        }
        return text;
    }

private:
    struct Cell {
        uint8_t dots = 0;
        bool marked = false;
        size_t run = 0;
    };
    int columns_, rows_;
    std::vector<Cell> cells_;
};

// `one_run`: draws only the curves of that run; null: all.
std::string plot(const Chart& chart, int columns, int rows, bool color, const size_t* one_run) {
    constexpr int margin = 9;
    DotField field(std::max(10, columns - margin - 1), rows);
    const auto x = [&](double v) {
        return int(std::lround(chart.x.position(v) * (field.dots_across() - 1)));
    };
    const auto y = [&](double v) {
        return int(std::lround((1 - chart.y.position(v)) * (field.dots_down() - 1)));
    };
    for (const bool validation : {false, true})
        for (const Curve& curve : chart.curves) {
            if (curve.validation != validation || (one_run && curve.run != *one_run)) continue;
            const std::vector<Dot>& dots = curve.smooth.empty() ? curve.logged : curve.smooth;
            for (size_t i = 0; i < dots.size(); ++i) {
                if (validation)
                    field.mark(x(dots[i].x), y(dots[i].y), curve.run);
                else
                    field.line(x(dots[i ? i - 1 : 0].x), y(dots[i ? i - 1 : 0].y), x(dots[i].x), y(dots[i].y),
                               curve.run);
            }
        }
    std::vector<std::string> labels(static_cast<size_t>(rows));
    for (const double tick : chart.y.ticks) labels[size_t(y(tick) / 4)] = tick_text(chart.y, tick);
    std::string text;
    for (int row = 0; row < rows; ++row)
        text += fmt::format("{:>{}} {} {}\n", labels[size_t(row)], margin - 3,
                            labels[size_t(row)].empty() ? "│" : "┤", field.row(row, color));
    // below: the number of each tick, which ends at the place of the tick
    std::string below(size_t(columns + margin), ' ');
    size_t free = 0;
    for (const double tick : chart.x.ticks) {
        const std::string number = tick_text(chart.x, tick);
        const size_t end = size_t(margin - 1 + x(tick) / 2 + 1);
        if (end < number.size() + free) continue;
        below.replace(end - number.size(), number.size(), number);
        free = end + 2;
    }
    below.erase(below.find_last_not_of(' ') + 1);
    return text + below + "  " + chart.x_title + "\n";
}

// The mean of each of `columns` stretches, as a block of one to eight eighths of the height.
std::string sparkline(const Chart& chart, const Curve& curve, int columns) {
    std::vector<double> sums(size_t(columns), 0);
    std::vector<int> counts(size_t(columns), 0);
    for (const Dot& dot : curve.logged) {
        const size_t column = std::min(size_t(columns - 1), size_t(chart.x.position(dot.x) * columns));
        sums[column] += dot.y;
        ++counts[column];
    }
    std::string text;
    double level = 0;
    bool begun = false;
    for (size_t i = 0; i < sums.size(); ++i) {
        // a stretch without a logged step repeats the one before
        if (counts[i] > 0) level = chart.y.position(sums[i] / counts[i]);
        begun = begun || counts[i] > 0;
        const bool ended = chart.x.position(curve.logged.back().x) * columns < double(i);
        text += begun && !ended ? utf8(0x2581 + uint32_t(std::clamp(int(level * 8), 0, 7))) : " ";
    }
    return text;
}

std::string range_text(const Curve& curve, const std::string& unit) {
    double low = curve.logged[0].y, high = low;
    for (const Dot& dot : curve.logged) {
        low = std::min(low, dot.y);
        high = std::max(high, dot.y);
    }
    const auto rounded = [](double v) { return short_number(std::stod(fmt::format("{:.4g}", v))); };
    const std::string behind = unit.empty() ? "" : " " + unit;
    if (low == high) return fmt::format("always {}{}", rounded(low), behind);
    return fmt::format("{} to {}{}, last {}", rounded(low), rounded(high), behind,
                       rounded(curve.logged.back().y));
}

// `rows`: their cells may have text of files.
std::string text_table(const std::vector<RunData>& runs, std::vector<TableRow> rows, bool color) {
    for (TableRow& row : rows)
        for (std::string& cell : row.cells) cell = printable(cell);
    std::vector<size_t> widths = {0};
    for (size_t run = 0; run < runs.size(); ++run)
        widths.push_back(runs.size() > 1 ? width_of(runs[run].name) : 0);
    for (const TableRow& row : rows) {
        widths[0] = std::max(widths[0], width_of(row.name));
        for (size_t run = 0; run < runs.size(); ++run)
            widths[run + 1] = std::max(widths[run + 1], width_of(row.cells[run]));
    }
    std::string text;
    const auto add = [&](const std::string& name, const auto& cell) {
        std::string line = padded(name, widths[0]);
        for (size_t run = 0; run < runs.size(); ++run) line += "  " + cell(run);
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    };
    if (runs.size() > 1)
        add("", [&](size_t run) { return painted(padded(runs[run].name, widths[run + 1]), run, color); });
    for (const TableRow& row : rows)
        add(row.name, [&](size_t run) { return padded(row.cells[run], widths[run + 1]); });
    return text;
}

// The starts of each run, with columns as wide as their cells.
std::string starts_text(const std::vector<RunData>& runs) {
    std::string text;
    for (const RunData& run : runs) {
        std::vector<std::vector<std::string>> rows = table_of_starts(run);
        if (rows.size() <= 2) continue;  // a single start has nothing to compare
        for (auto& row : rows)
            for (std::string& cell : row) cell = printable(cell);
        text += runs.size() > 1 ? run.name + "\n" : "";
        std::vector<size_t> widths(rows[0].size(), 0);
        for (const auto& row : rows)
            for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
        for (const auto& row : rows) {
            std::string line;
            for (size_t i = 0; i < row.size(); ++i) line += padded(row[i], widths[i] + 2);
            line.erase(line.find_last_not_of(' ') + 1);
            text += line + "\n";
        }
    }
    return text.empty() ? "" : "\nStarts\n" + text;
}

std::string titled(const Chart& chart) {
    return chart.title + (chart.unit.empty() ? "" : " (" + chart.unit + ")");
}

// One plot for all runs if colours distinguish them, otherwise one plot per run.
std::string loss_plots(const Chart& chart, const std::vector<RunData>& runs, int columns, bool color) {
    constexpr int tall = 12, low = 8;
    const bool marks = std::any_of(chart.curves.begin(), chart.curves.end(),
                                   [](const Curve& curve) { return curve.validation; });
    std::string text = titled(chart) + (marks ? "   ○ validation" : "") + "\n";
    if (runs.size() == 1) return text + plot(chart, columns, tall, color, nullptr);
    if (color) {
        for (size_t run = 0; run < runs.size(); ++run) text += painted("  ⠒⠒ " + runs[run].name, run, color);
        return text + "\n" + plot(chart, columns, tall, color, nullptr);
    }
    for (size_t run = 0; run < runs.size(); ++run)
        text += runs[run].name + "\n" + plot(chart, columns, low, color, &run);
    return text;
}

// For a single run one line that begins with the title; for several runs the title and one line per run.
std::string sparklines(const Chart& chart, const std::vector<Chart>& all, const std::vector<RunData>& runs,
                       int columns, bool color) {
    constexpr int range_width = 40, least = 10;
    const std::string validation = ", validation";
    size_t name_width = 0;
    for (const Chart& other : all)
        for (const Curve& curve : other.curves)
            name_width =
                std::max(name_width, width_of(runs.size() == 1 ? other.title : runs[curve.run].name) +
                                         (curve.validation ? validation.size() : 0));
    std::string text = runs.size() == 1 ? "" : chart.title + "\n";
    for (const Curve& curve : chart.curves) {
        const int left = std::max(least, columns - int(name_width) - range_width);
        text += padded((runs.size() == 1 ? chart.title : runs[curve.run].name) +
                           (curve.validation ? validation : ""),
                       name_width) +
                "  " + painted(sparkline(chart, curve, left), curve.run, color) + "  " +
                range_text(curve, chart.short_unit) + "\n";
    }
    return text;
}

}  // namespace

std::string report_text(const std::vector<RunData>& runs, int columns, bool color) {
    columns = std::clamp(columns, 40, 160);
    std::string text;
    for (const RunData& run : runs)
        for (const std::string& notice : run.notices) text += "note: " + printable(notice) + "\n";
    std::vector<Chart> charts = charts_of(runs);
    if (!charts.empty()) {
        text += loss_plots(charts[0], runs, columns, color) + "\n";
        charts.erase(charts.begin());
    }
    // the loss over tokens and over time is left out
    std::erase_if(charts, [](const Chart& chart) { return chart.x_title != "step"; });
    for (const Chart& chart : charts) text += sparklines(chart, charts, runs, columns, color);
    text += "\n" + text_table(runs, facts_of(runs), color) + "\n" +
            text_table(runs, final_figures(runs), color) + starts_text(runs) + wall_time_text(runs, columns);
    if (const std::vector<TableRow> rows = deck_differences(runs); !rows.empty())
        text += "\nDifferences between the decks\n" + text_table(runs, rows, color);
    return text;
}

}  // namespace coeus
