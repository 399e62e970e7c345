// SPDX-License-Identifier: Apache-2.0
// The picture of a timetable. Sizes are in pixels. The width of a time unit follows from the total width,
// within bounds that keep the numbers legible.
#include "coeus/base/text.hpp"
#include "coeus/pipeline/draw.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace coeus {

namespace {

constexpr int row_height = 26, row_distance = 32, left = 70, top = 66, right_of_rows = 92;

struct Color {
    int red, green, blue;
};
// F, B, I, W: distinguishable also in grey and with colour blindness.
constexpr std::array<Color, 4> color_of = {{{47, 93, 168}, {46, 139, 87}, {23, 162, 184}, {226, 150, 20}}};
constexpr std::array<const char*, 4> meaning_of = {"forward", "backward", "backward, input half",
                                                   "backward, weight half"};

// The stages of a rank differ in shade: the first is strong, the last pale.
std::string shade(Color color, int which, int of) {
    const double pale = of == 1 ? 0 : 0.55 * which / (of - 1);
    const auto mix = [&](int part) { return int(std::lround(part + pale * (255 - part))); };
    return fmt::format("#{:02x}{:02x}{:02x}", mix(color.red), mix(color.green), mix(color.blue));
}

class TimetablePicture {
public:
    TimetablePicture(const Timetable& table, const Simulation& simulation)
        : table_(table),
          simulation_(simulation),
          unit_(std::clamp(1100 / double(simulation.makespan), 16.0, 30.0)),
          width_(std::max(int(std::ceil(double(simulation.makespan) * unit_)), 420)),
          bottom_(top + table.ranks() * row_distance) {
        for (int rank = 0; rank < table.ranks(); ++rank)
            most_stages_ = std::max(most_stages_, int(table.placement.stages_of(rank).size()));
    }

    std::string draw() {
        begin();
        title();
        for (int rank = 0; rank < table_.ranks(); ++rank) row(rank);
        time_axis();
        legend();
        return svg_ + "</svg>\n";
    }

private:
    template <class... Args>
    void put(fmt::format_string<Args...> format, Args&&... args) {
        svg_ += fmt::format(format, std::forward<Args>(args)...);
        svg_ += '\n';
    }

    static std::string class_of(ActionKind kind, int chunk) {
        return fmt::format("{}{}", "fbiw"[int(kind)], chunk);
    }

    void begin() {
        const int width = left + width_ + right_of_rows, height = bottom_ + 88;
        put(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img">)",
            width, height);
        put("<title>{}: {}</title>", markup_of(table_.name), shape_text(table_));
        put("<style>");
        put("text{{font:12px 'Helvetica Neue',Helvetica,Arial,sans-serif;fill:#24292f}}");
        put(".name{{font-size:17px;font-weight:bold}}.small{{font-size:11px;fill:#57606a}}");
        put(".n{{font-size:{}px;fill:#fff;text-anchor:middle}}.d{{fill:#1b2733}}", unit_ < 20 ? 10 : 12);
        put(".idle{{fill:#eceff2}}.pair{{fill:none;stroke:#24292f;stroke-width:1.6}}.tick{{stroke:#d0d7de}}");
        for (size_t kind = 0; kind < color_of.size(); ++kind)
            for (int chunk = 0; chunk < most_stages_; ++chunk)
                put(".{}{{fill:{}}}", class_of(ActionKind(kind), chunk),
                    shade(color_of[kind], chunk, most_stages_));
        put("</style>");
        put(R"(<rect width="{}" height="{}" rx="6" fill="#fff"/>)", width, height);
    }

    void title() {
        put(R"(<text class="name" x="{}" y="28">{}</text>)", left,
            markup_of(table_.name.substr(table_.name.rfind('/') + 1)));  // for a file: without its folder
        put(R"(<text x="{}" y="48">{} · bubble {:.1f} %</text>)", left, shape_text(table_),
            100 * simulation_.bubble_fraction);
        put(R"(<text class="small" x="{}" y="48">frames alive</text>)", left + width_ + 10);
    }

    double x(int64_t time) const { return left + double(time) * unit_; }

    void row(int rank) {
        const int y = top + rank * row_distance;
        const double middle = y + row_height / 2.0 + 4;
        put(R"(<text x="{}" y="{}" text-anchor="end">rank {}</text>)", left - 10, middle, rank);
        put(R"(<rect class="idle" x="{}" y="{}" width="{:.6g}" height="{}" rx="3"/>)", left, y,
            double(simulation_.makespan) * unit_, row_height);
        const auto& stages = table_.placement.stages_of(rank);
        const auto& row = simulation_.rows[size_t(rank)];
        for (size_t i = 0; i < row.size(); ++i) {
            const auto& [action, cell, second, start, end] = row[i];
            const int chunk = int(std::ranges::find(stages, action.stage) - stages.begin());
            put(R"(<rect class="{}" x="{:.6g}" y="{}" width="{:.6g}" height="{}" rx="3"/>)",
                class_of(action.kind, chunk), x(start) + 0.75, y, double(end - start) * unit_ - 1.5,
                row_height);
            put(R"(<text class="n{}" x="{:.6g}" y="{}">{}</text>)", 2 * chunk >= most_stages_ ? " d" : "",
                (x(start) + x(end)) / 2, middle, action.microbatch);
            if (second)
                put(R"(<rect class="pair" x="{:.6g}" y="{}" width="{:.6g}" height="{}" rx="3"/>)",
                    x(row[i - 1].start) + 0.75, y, double(end - row[i - 1].start) * unit_ - 1.5, row_height);
        }
        put(R"(<text x="{}" y="{}">{}</text>)", left + width_ + 10, middle,
            simulation_.peak_frames[size_t(rank)]);
    }

    void time_axis() {
        const int64_t every = simulation_.makespan > 60 ? 10 : 5;
        for (int64_t t = 0; t <= simulation_.makespan; t += every) {
            put(R"(<line class="tick" x1="{0:.6g}" x2="{0:.6g}" y1="{1}" y2="{2}"/>)", x(t), bottom_ - 4,
                bottom_ + 4);
            put(R"(<text class="small" x="{:.6g}" y="{}" text-anchor="middle">{}</text>)", x(t), bottom_ + 17,
                t);
        }
    }

    // Only the kinds that the table has, with a box in each shade.
    void legend() {
        std::array<bool, 4> there{};
        bool pairs = false;
        for (const auto& row : simulation_.rows)
            for (const TimedAction& timed : row)
                there[size_t(timed.action.kind)] = true, pairs |= timed.second_of_pair;
        double at = left;
        const int y = bottom_ + 34;
        const auto entry = [&](const char* text) {
            put(R"(<text x="{:.6g}" y="{}">{}</text>)", at + 4, y + 12, text);
            at += 24 + 6.3 * double(std::strlen(text));
        };
        for (size_t kind = 0; kind < there.size(); ++kind) {
            if (!there[kind]) continue;
            for (int chunk = 0; chunk < most_stages_; ++chunk, at += 17)
                put(R"(<rect class="{}" x="{:.6g}" y="{}" width="15" height="15" rx="3"/>)",
                    class_of(ActionKind(kind), chunk), at, y);
            entry(meaning_of[kind]);
        }
        if (pairs) {
            put(R"(<rect class="pair" x="{:.6g}" y="{}" width="15" height="15" rx="3"/>)", at, y);
            at += 17;
            entry("overlap");
        }
        put(R"(<text class="small" x="{}" y="{}">numbers: micro-batches{}</text>)", left, y + 36,
            most_stages_ > 1 ? "; strong to pale: first to last stage of the rank" : "");
    }

    const Timetable& table_;
    const Simulation& simulation_;
    double unit_;  // pixels per unit of time
    int width_;    // of the rows
    int bottom_;   // of the rows
    int most_stages_ = 1;
    std::string svg_;
};

}  // namespace

std::string timetable_svg(const Timetable& table, const Simulation& simulation) {
    return TimetablePicture(table, simulation).draw();
}

}  // namespace coeus
