// SPDX-License-Identifier: Apache-2.0
#include "wall_time.hpp"

#include "coeus/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coeus::report {

namespace {

constexpr const char* title = "Wall time";

bool has_parts(const RunData& run) {
    return run.goodput.starts > 0 && run.goodput.wall > 0;
}

// A color of the page for each part; useful steps are green.
std::string color_of(size_t part) {
    static constexpr int colors[] = {2, 4, 5, 0, 3, 1, 6, 7};
    return fmt::format("var(--c{})", colors[part % std::size(colors)]);
}

std::string bar_html(const RunData& run, bool named) {
    const std::vector<Goodput::Part> parts = run.goodput.parts();
    std::string bar, legend;
    for (size_t i = 0; i < parts.size(); ++i) {
        const double percent = run.goodput.percent(parts[i].seconds);
        if (!(percent >= 0.05)) continue;
        bar += fmt::format("<span style=\"--c:{};width:{:.2f}%\"></span>", color_of(i), percent);
        legend += fmt::format("<li><span class=\"swatch\" style=\"--c:{}\"></span>{} {:.1f} %</li>",
                              color_of(i), parts[i].name, percent);
    }
    return (named ? "<h2>" + markup_of(run.name) + "</h2>" : std::string()) + "<p class=\"about\">" +
           markup_of(goodput_text(run.goodput)) + "</p><div class=\"bar\">" + bar +
           "</div><ul class=\"legend\">" + legend + "</ul>\n";
}

}  // namespace

std::string wall_time_html(const std::vector<RunData>& runs) {
    std::string bars;
    for (const RunData& run : runs)
        if (has_parts(run)) bars += bar_html(run, runs.size() > 1);
    return bars.empty() ? "" : fmt::format("<section class=\"card\"><h2>{}</h2>{}</section>\n", title, bars);
}

std::string wall_time_text(const std::vector<RunData>& runs, int columns) {
    static constexpr const char* fills[] = {"█", "░", "▒", "▓", "+", "x", "-", "."};
    std::string text;
    for (const RunData& run : runs) {
        if (!has_parts(run)) continue;
        const std::vector<Goodput::Part> parts = run.goodput.parts();
        double seconds = 0;
        int drawn = 0;
        std::string bar, legend;
        for (size_t i = 0; i < parts.size(); ++i) {
            // the ends of parts are rounded, not their lengths, so that the bar is exactly full
            seconds += parts[i].seconds;
            const int end = std::min(columns, int(std::lround(columns * seconds / run.goodput.wall)));
            for (; drawn < end; ++drawn) bar += fills[i];
            if (const double percent = run.goodput.percent(parts[i].seconds); percent >= 0.05)
                legend += fmt::format("{} {} {:.1f} %  ", fills[i], parts[i].name, percent);
        }
        text += fmt::format("{}{}\n{}\n{}\n", runs.size() > 1 ? run.name + ": " : "",
                            goodput_text(run.goodput), bar, legend.substr(0, legend.size() - 2));
    }
    return text.empty() ? "" : std::string("\n") + title + "\n" + text;
}

}  // namespace coeus::report
