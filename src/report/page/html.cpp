// SPDX-License-Identifier: Apache-2.0
// The page: title, figures, a plot for each chart, and the decks. Plots are drawn here, as SVG with the
// colours of the page's style. Their values and axes are included as JSON for the script, which moves what
// was drawn to other axes: of another width, logarithmic, or over tokens or time. It also draws other means.
#include "charts.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/file/json.hpp"
#include "frame.hpp"
#include "heat_map.hpp"
#include "page.hpp"
#include "samples.hpp"
#include "tables.hpp"
#include "wall_time.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace coeus {

namespace {

using namespace report;

constexpr Box wide_box = {1090, 350}, half_box = {530, 270};

// With a single run, the marks of its validation have their own colour.
std::string color_of(size_t run, bool validation, size_t num_runs) {
    return validation && num_runs == 1 ? "var(--marks)" : fmt::format("var(--c{})", run % 8);
}

class Drawing {
public:
    Drawing(const Chart& chart, const Box& box, size_t num_runs)
        : chart_(chart),
          box_(box),
          frame_(box, "plot", chart.title + " over " + chart.x_title),
          num_runs_(num_runs) {}

    std::string text() {
        axes();
        for (const StartMark& start : chart_.starts) start_line(start);
        for (const Curve& curve : chart_.curves)
            if (!curve.validation) line_of(curve);
        for (const Curve& curve : chart_.curves)
            if (curve.validation) marks_of(curve);
        return frame_.text();
    }

private:
    double x(double value) const { return box_.left + box_.inner_width() * chart_.x.position(value); }
    double y(double value) const { return box_.top + box_.inner_height() * (1 - chart_.y.position(value)); }

    void axes() {
        frame_.open_group("axes");
        for (const double tick : chart_.y.ticks) {
            frame_.line("grid", box_.left, y(tick), box_.width - box_.right, y(tick));
            frame_.y_label(y(tick), tick_text(chart_.y, tick));
        }
        frame_.x_axis(chart_.x, chart_.x_title);
        frame_.close_group();
    }
    void start_line(const StartMark& start) {
        const double at = x(start.x), bottom = box_.height - box_.bottom;
        frame_.put(fmt::format("<g class=\"start\" style=\"--c:{}\" data-run=\"{}\">",
                               num_runs_ == 1 ? "var(--soft)" : color_of(start.run, false, num_runs_),
                               start.run));
        frame_.line("begin", at, box_.top, at, bottom);
        frame_.put(fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n", at + 4, box_.top + 10,
                               start.number));
    }
    void polyline(const Curve& curve, const std::vector<Dot>& dots, const std::string& style) {
        std::string points;
        for (size_t i = 0; i < dots.size(); ++i)
            points += fmt::format("{}{:.1f},{:.2f}", i ? " " : "", x(dots[i].x), y(dots[i].y));
        frame_.put(
            fmt::format("<polyline class=\"curve {}\" style=\"--c:{}\" data-curve=\"{}\" points=\"{}\"/>\n",
                        style, color_of(curve.run, curve.validation, num_runs_), number_of(curve), points));
    }
    void circles(const Curve& curve, const char* style, double radius) {
        for (const Dot& dot : curve.logged)
            frame_.put(fmt::format(
                "<circle class=\"{}\" style=\"--c:{}\" data-curve=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" "
                "r=\"{}\"/>\n",
                style, color_of(curve.run, curve.validation, num_runs_), number_of(curve), x(dot.x), y(dot.y),
                radius));
    }
    int64_t number_of(const Curve& curve) const { return &curve - chart_.curves.data(); }
    void line_of(const Curve& curve) {
        const std::string dashes = curve.run >= 8 ? "second" : "";
        if (!curve.smooth.empty()) polyline(curve, curve.logged, "faint");
        polyline(curve, curve.smooth.empty() ? curve.logged : curve.smooth, dashes);
        if (curve.logged.size() == 1) circles(curve, "dot", 3.5);
    }
    void marks_of(const Curve& curve) {
        constexpr size_t many = 60;  // more marks would overlap
        polyline(curve, curve.logged, curve.logged.size() > many ? "second" : "between");
        if (curve.logged.size() <= many) circles(curve, "mark", 3.6);
    }

    const Chart& chart_;
    const Box& box_;
    Frame frame_;
    size_t num_runs_;
};

std::string swatch(const std::string& color, bool validation, bool dashed) {
    return fmt::format(
        "<svg viewBox=\"0 0 26 10\" style=\"--c:{}\"><line class=\"curve{}\" x1=\"1\" y1=\"5\" "
        "x2=\"25\" y2=\"5\"/>{}</svg>",
        color,
        validation ? " between"
        : dashed   ? " second"
                   : "",
        validation ? "<circle class=\"mark\" cx=\"13\" cy=\"5\" r=\"3.6\"/>" : "");
}

// The legend of a chart's lines and marks; "" if there is only one line.
std::string chart_legend(const Chart& chart, bool first, size_t num_runs) {
    const auto any = [&](auto holds) { return std::any_of(chart.curves.begin(), chart.curves.end(), holds); };
    std::string items;
    const bool validation = any([](const Curve& curve) { return curve.validation; });
    const std::string line = num_runs == 1 ? color_of(0, false, 1) : "var(--soft)";
    if (validation) {
        items += "<li>" + swatch(line, false, false) + "training</li>";
        items +=
            "<li>" + swatch(num_runs == 1 ? color_of(0, true, 1) : line, true, false) + "validation</li>";
    }
    if (first && !chart.starts.empty()) items += "<li>dashed: a later start, with its number</li>";
    // only on the first chart
    if (first && any([](const Curve& curve) { return !curve.smooth.empty(); }))
        items += "<li>faint: logged steps, strong: moving mean</li>";
    return items.empty() ? "" : "<ul class=\"legend\">" + items + "</ul>";
}

std::string chart_card(const Chart& chart, bool first, bool wide, size_t num_runs) {
    const std::string scale = chart.y.scale == Scale::log ? "log scale" : "",
                      separator = scale.empty() || chart.unit.empty() ? "" : ", ",
                      unit = chart.unit + separator + scale;
    return fmt::format(
        "<div class=\"card{}\"><div class=\"head\"><h2>{}<small>{}</small></h2>{}</div>"
        "{}</div>\n",
        wide ? " wide" : "", markup_of(chart.title), markup_of(unit), chart_legend(chart, first, num_runs),
        Drawing(chart, wide ? wide_box : half_box, num_runs).text());
}

Json axis_data(const ChartAxis& axis) {
    Json ticks = Json::array();
    for (const double tick : axis.ticks) ticks.push(Json::array().push(tick).push(tick_text(axis, tick)));
    return Json::object()
        .set("low", axis.low)
        .set("high", axis.high)
        .set("log", axis.scale == Scale::log)
        .set("ticks", std::move(ticks));
}

Json points_data(const std::vector<Dot>& dots) {
    Json points = Json::array();
    for (const Dot& dot : dots) points.push(Json::array().push(dot.x).push(dot.y));
    return points;
}

Json axis_data(const std::optional<ChartAxis>& axis) {
    return axis ? axis_data(*axis) : Json();
}

// The axes over steps, and over each of the other places; null if there are no such places.
Json x_axes(const Chart& chart) {
    const auto both = [](const std::string& title, const ChartAxis& linear, const auto& log) {
        return Json::object().set("title", title).set("linear", axis_data(linear)).set("log", axis_data(log));
    };
    Json axes = Json::array().push(both(chart.x_title, chart.x, chart.log_x));
    for (const std::optional<XAxis>& other : chart.other_x)
        axes.push(other ? both("", other->linear, other->log) : Json());
    return axes;
}

// The places of each run's steps: [step, place], of which few are enough to place the others between them.
Json places_data(const StepPlaces& places) {
    constexpr size_t most = 400;
    Json runs = Json::array();
    for (const MetricSeries& run : places.runs) {
        const std::vector<std::pair<int64_t, double>> all(run.begin(), run.end());
        const size_t every = all.size() / most + 1;
        Json of_run = Json::array();
        for (size_t i = 0; i < all.size(); ++i)
            if (i % every == 0 || i + 1 == all.size())
                of_run.push(
                    Json::array().push(all[i].first).push(std::stod(fmt::format("{:.8g}", all[i].second))));
        runs.push(std::move(of_run));
    }
    return Json::object().set("title", places.title).set("runs", std::move(runs));
}

Json chart_data(const Chart& chart, const Box& box, const std::vector<RunData>& runs) {
    Json curves = Json::array();
    for (const Curve& curve : chart.curves) {
        std::string name = runs.size() == 1
                               ? (curve.validation ? "validation" : "training")
                               : runs[curve.run].name + (curve.validation ? " (validation)" : "");
        if (runs.size() == 1 && chart.curves.size() == 1) name = chart.title;
        curves.push(Json::object()
                        .set("name", name)
                        .set("color", color_of(curve.run, curve.validation, runs.size()))
                        .set("run", curve.run)
                        .set("marks", curve.validation)
                        .set("noisy", curve.noisy)
                        .set("values", curve.values)
                        .set("means", points_data(curve.means))
                        .set("points", points_data(curve.logged)));
    }
    return Json::object()
        .set("x", x_axes(chart))
        .set("y", axis_data(chart.y))
        .set("logY", axis_data(chart.log_y))
        .set("box",
             Json::array().push(box.left).push(box.top).push(box.inner_width()).push(box.inner_height()))
        .set("curves", std::move(curves));
}

// JSON for a script element. "<" is escaped: "</script" would end the element, and "<!--" with "<script" hide
// its end.
std::string script_data(Json charts, Json places, Json maps) {
    std::string text = Json::object()
                           .set("charts", std::move(charts))
                           .set("places", std::move(places))
                           .set("maps", std::move(maps))
                           .text();
    const std::string escaped = "\\u003c";  // in JSON "<" occurs only in strings
    for (size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += escaped.size())
        text.replace(at, 1, escaped);
    return text;
}

std::string html_table(const std::vector<RunData>& runs, const std::vector<TableRow>& rows, bool code) {
    std::string html = "<div class=\"scroll\"><table><thead><tr><th></th>";
    for (const RunData& run : runs) html += "<th>" + markup_of(run.name) + "</th>";
    html += "</tr></thead><tbody>\n";
    const char *open = code ? "<code>" : "", *close = code ? "</code>" : "";
    for (const TableRow& row : rows) {
        html += fmt::format("<tr><th>{}{}{}</th>", open, markup_of(row.name), close);
        for (const std::string& cell : row.cells)
            html += cell.empty() ? "<td></td>" : fmt::format("<td>{}{}{}</td>", open, markup_of(cell), close);
        html += "</tr>\n";
    }
    return html + "</tbody></table></div>";
}

// A tile: title, a large figure, and a small one below it. `figure` and `below` are names of rows of
// final_figures().
struct Tile {
    const char *title, *figure, *below, *below_title;
};
constexpr Tile tiles[] = {
    {"Loss", "loss", "", ""},
    {"Validation loss", "last validation loss", "lowest validation loss", "lowest "},
    {"Tokens seen", "tokens seen", "", ""},
    {"Bits per byte", "bits per byte", "last validation bits per byte", "validation "},
    {"Tokens/s", "tokens/s of all ranks, median", "", ""},
    {"Tokens/s per rank", "tokens/s per rank, median", "MFU, median", "MFU "},
    {"Time in training steps", "time in training steps", "waiting for data, median", "data wait "},
    {"Peak memory of a rank", "peak memory of a rank", "", ""},
};

// "3.4938 at step 300": the part from "at" is shown small.
std::string tile_html(const Tile& tile, const std::vector<TableRow>& rows) {
    const auto cell = [&](const std::string& name) -> std::string {
        for (const TableRow& row : rows)
            if (row.name == name) return row.cells.at(0);
        return "";
    };
    const std::string figure = cell(tile.figure), below = cell(tile.below);
    if (figure.empty()) return "";
    const size_t at = figure.find(" at ");
    std::string html = fmt::format("<dl class=\"tile\"><dt>{}</dt><dd>{}", tile.title, figure.substr(0, at));
    if (at != std::string::npos) html += "<small>" + figure.substr(at + 1) + "</small>";
    if (!below.empty() && below != figure)
        html += fmt::format("<small>{}{}</small>", tile.below_title, below);
    return html + "</dd></dl>";
}

std::string card_of_figures(const std::vector<RunData>& runs) {
    const std::vector<TableRow> rows = final_figures(runs);
    if (runs.size() > 1)
        return "<section class=\"card\"><h2>Final figures</h2>" + html_table(runs, rows, false) +
               "</section>\n";
    std::string html = "<div class=\"tiles\">";
    for (const Tile& tile : tiles) html += tile_html(tile, rows);
    return html + "</div>\n";
}

std::string decks(const std::vector<RunData>& runs) {
    if (runs.size() == 1) {
        std::string text;
        for (const TomlEntry& entry : runs[0].deck)
            text += fmt::format("{} = {}\n", entry.key, toml_text(entry.value));
        return text.empty() ? ""
                            : "<section class=\"card\"><details><summary>Deck</summary><pre>" +
                                  markup_of(text) + "</pre></details></section>\n";
    }
    const std::vector<TableRow> rows = deck_differences(runs);
    return "<section class=\"card\"><h2>Differences between the decks</h2>" +
           (rows.empty() ? std::string("<p class=\"about\">None: the decks are equal.</p>")
                         : html_table(runs, rows, true)) +
           "</section>\n";
}

std::string run_legend(const std::vector<RunData>& runs) {
    std::string items;
    for (size_t run = 0; run < runs.size(); ++run)
        items += "<li>" + swatch(color_of(run, false, runs.size()), false, run >= 8) +
                 markup_of(runs[run].name) + "</li>";
    return "<ul class=\"legend\">" + items + "</ul>\n";
}

std::string head(const std::vector<RunData>& runs) {
    if (runs.size() > 1)
        return fmt::format("<h1>{} training runs</h1>\n", runs.size()) + run_legend(runs) +
               "<section class=\"card\"><h2>Runs</h2>" + html_table(runs, facts_of(runs), false) +
               "</section>\n";
    std::string html = "<h1>" + markup_of(runs[0].name) + "</h1>\n";
    if (const std::string said = description_of(runs[0]); !said.empty())
        html += "<p class=\"about\">" + markup_of(said) + "</p>\n";
    html += "<dl class=\"facts\">";
    for (const TableRow& fact : facts_of(runs))
        html += fmt::format("<dt>{}</dt><dd>{}</dd>", fact.name, markup_of(fact.cells[0]));
    return html + "</dl>\n";
}

// "" if no run has several starts or facts of one.
std::string starts_html(const std::vector<RunData>& runs) {
    std::string html;
    for (const RunData& run : runs) {
        const std::vector<std::vector<std::string>> rows = table_of_starts(run);
        if (rows.empty()) continue;
        if (runs.size() > 1) html += "<h2 class=\"run\">" + markup_of(run.name) + "</h2>";
        html += "<div class=\"scroll\"><table class=\"starts\">";
        for (size_t i = 0; i < rows.size(); ++i) {
            const char* kind = i == 0 ? "th" : "td";
            html += i == 0 ? "<thead><tr>" : "<tr>";
            for (const std::string& cell : rows[i])
                html += fmt::format("<{0}>{1}</{0}>", kind, markup_of(cell));
            html += i == 0 ? "</tr></thead><tbody>\n" : "</tr>\n";
        }
        html += "</tbody></table></div>";
    }
    return html.empty() ? "" : "<section class=\"card\"><h2>Starts</h2>" + html + "</section>\n";
}

// Without the script, which shows them, they would do nothing.
std::string switches(const std::vector<StepPlaces>& places) {
    std::string html = "<div class=\"switches\" hidden><p>Over";
    for (size_t i = 0; i <= places.size(); ++i)
        html += fmt::format(" <label><input type=\"radio\" name=\"over\"{}> {}</label>",
                            i == 0 ? " checked" : "", i == 0 ? "steps" : places[i - 1].title);
    return html +
           "</p><p>Logarithmic <label><input type=\"checkbox\" id=\"logX\"> x axis</label> <label><input "
           "type=\"checkbox\" id=\"logY\"> y axis</label></p><p><label>Smoothing <input type=\"range\" "
           "id=\"smoothing\" min=\"0\" max=\"8\" value=\"4\"></label></p></div>\n";
}

}  // namespace

std::string report_html(const std::vector<RunData>& runs) {
    std::string names;
    for (const RunData& run : runs) names += (names.empty() ? "" : ", ") + run.name;
    std::string html = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
        "<title>{}</title>\n<style>{}</style></head><body><main>\n",
        markup_of(names), page_style);
    html += head(runs);
    for (const RunData& run : runs)
        for (const std::string& notice : run.notices)
            html += "<p class=\"notice\">" + markup_of(notice) + "</p>\n";
    const std::vector<StepPlaces> other_places = other_places_of(runs);
    html += card_of_figures(runs) + switches(other_places) + "<div class=\"charts\">\n";
    Json data = Json::array(), places = Json::array();
    for (const StepPlaces& other : other_places) places.push(places_data(other));
    const std::vector<Chart> charts = charts_of(runs);
    for (size_t i = 0; i < charts.size(); ++i) {
        // the first chart is as wide as the page; so is the last one if it would be alone in a row of two
        const bool wide = i == 0 || (i + 1 == charts.size() && charts.size() % 2 == 0);
        html += chart_card(charts[i], i == 0, wide, runs.size());
        data.push(chart_data(charts[i], wide ? wide_box : half_box, runs));
    }
    html += "</div>\n";
    Json maps = Json::array();
    for (const HeatMap& map : heat_maps_of(runs)) {
        html += heat_map_card(map);
        maps.push(heat_map_data(map));
    }
    html += samples_html(runs) + starts_html(runs) + wall_time_html(runs) + decks(runs);
    html += fmt::format(
        "<footer>Made by Coeus {} from metrics.jsonl, goodput.jsonl and deck.toml of {}.</footer></main>\n",
        version(), runs.size() == 1 ? "the run" : "the runs");
    html += "<script type=\"application/json\" id=\"data\">" +
            script_data(std::move(data), std::move(places), std::move(maps)) + "</script>\n";
    return html + "<script>" + page_script + "</script></body></html>\n";
}

}  // namespace coeus
