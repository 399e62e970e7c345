// SPDX-License-Identifier: Apache-2.0
#include "heat_map.hpp"

#include "coeus/base/text.hpp"
#include "frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

namespace coeus::report {

namespace {

constexpr size_t most_columns = 200;
constexpr std::string_view digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxy";
constexpr double even = 30;  // the digit of the mean load; twice this is the largest
constexpr double most = 4;

// Rows of a whole number of pixels; up to 512 fit on a screen.
Box box_of(const HeatMap& map) {
    constexpr size_t most_pixels = 24, usual_height = 512;
    const size_t row = std::clamp<size_t>(usual_height / map.rows, 1, most_pixels);
    Box box = {.width = 1090, .height = 0, .top = 26};
    box.height = box.top + box.bottom + double(row * map.rows);
    return box;
}

// The last step of each column, after the step before the first one.
std::vector<int64_t> edges_of(const std::set<int64_t>& steps, size_t records) {
    std::vector<int64_t> edges = {*steps.begin() - 1};
    size_t count = 0;
    for (const int64_t step : steps)
        if (++count % records == 0 || count == steps.size()) edges.push_back(step);
    return edges;
}

std::string cells_of(const LayerLoads& loads, const HeatMap& map) {
    const size_t columns = map.columns();
    std::string cells(map.rows * columns, ' ');
    for (size_t i = 0; i < columns; ++i) {
        const auto begin = loads.upper_bound(map.edges[i]), end = loads.upper_bound(map.edges[i + 1]);
        if (begin == end) continue;
        std::vector<double> sums(map.rows);
        for (auto at = begin; at != end; ++at)
            for (size_t row = 0; row < map.rows; ++row) sums[row] += at->second[row];
        for (size_t row = 0; row < map.rows; ++row)
            cells[row * columns + i] = heat_digit(sums[row] / double(std::distance(begin, end)));
    }
    return cells;
}

// The ranks of an ep group have consecutive experts. Their loads, 1 for the mean of the ranks.
LoadHistory loads_of_ranks(const LoadHistory& history, size_t ranks) {
    LoadHistory of_ranks = history;
    for (auto& [number, layer] : of_ranks)
        for (auto& [step, loads] : layer) {
            const size_t experts = loads.size() / ranks;
            std::vector<float> sums(ranks);
            for (size_t expert = 0; expert < loads.size(); ++expert)
                sums[expert / experts] += loads[expert] / float(experts);
            loads = std::move(sums);
        }
    return of_ranks;
}

size_t ranks_with_experts(const RunData& run) {
    for (const TomlEntry& entry : run.deck)
        if (entry.key == "parallelism.expert_parallel_degree")
            if (const auto* degree = entry.value.as<int64_t>()) return size_t(std::max<int64_t>(*degree, 1));
    return 1;
}

HeatMap heat_map_of(const LoadHistory& history) {
    std::set<int64_t> steps;
    for (const auto& [number, loads] : history)
        for (const auto& [step, values] : loads) steps.insert(step);
    const size_t records = (steps.size() + most_columns - 1) / most_columns;
    HeatMap map;
    map.edges = edges_of(steps, records);
    map.records = int64_t(records);
    map.rows = history.begin()->second.begin()->second.size();
    for (const auto& [number, loads] : history) map.layers.push_back({number, cells_of(loads, map)});
    return map;
}

// The cells of a layer: one path for each digit, with a rectangle for each stretch of equal cells in a row.
// Its units are steps and rows. The script draws the same for other layers.
std::string paths_of(const HeatMap& map, const std::string& cells) {
    std::map<char, std::string> paths;
    for (size_t row = 0; row < map.rows; ++row) {
        const char* cell = cells.data() + row * map.columns();
        for (size_t start = 0, end = 0; start < map.columns(); start = end) {
            while (end < map.columns() && cell[end] == cell[start]) ++end;
            const int64_t width = map.edges[end] - map.edges[start];
            paths[cell[start]] += fmt::format("M{} {}h{}v1h-{}z", map.edges[start] - map.edges[0],
                                              map.rows - 1 - row, width, width);
        }
    }
    std::string svg;
    for (const auto& [digit, path] : paths) {
        const size_t place = digits.find(digit);
        if (place == std::string_view::npos) continue;
        const double apart = double(place) / even - 1;
        svg += fmt::format("<path class=\"{}\" fill-opacity=\"{:.3g}\" d=\"{}\"/>\n",
                           apart < 0 ? "under" : "over", std::fabs(apart), path);
    }
    return svg;
}

std::string title_of(const HeatMap& map) {
    return map.of_ranks ? "Loads of ranks with experts" : "Loads of experts";
}
const char* row_name(const HeatMap& map) {
    return map.of_ranks ? "rank" : "expert";
}

std::string picture_of(const HeatMap& map) {
    const Box box = box_of(map);
    const auto first = double(map.edges.front()), last = double(map.edges.back());
    Frame frame(box, "map", title_of(map) + " over steps");
    frame.put(fmt::format("<g transform=\"translate({} {}) scale({:.9g} {:.9g})\">\n{}</g>\n", box.left,
                          box.top, box.inner_width() / (last - first), box.inner_height() / double(map.rows),
                          paths_of(map, map.layers[0].cells)));
    frame.y_label(box.top - 16, row_name(map));
    const ChartAxis y = make_axis(0, double(map.rows), Scale::linear, 8);
    for (const double row : y.ticks)
        if (row == std::floor(row) && row < double(map.rows))
            frame.y_label(box.top + box.inner_height() * (1 - y.position(row + 0.5)), tick_text(y, row));
    frame.x_axis(make_axis(first, last, Scale::linear, 7), "step");
    return frame.text();
}

// The script enables the choice. A browser must not keep it when it loads the page again.
std::string choice_of(const HeatMap& map) {
    std::string options;
    for (const HeatMap::Layer& layer : map.layers)
        options += fmt::format("<option>layer {}</option>", layer.number);
    return "<select aria-label=\"Layer\" autocomplete=\"off\" disabled>" + options + "</select>";
}

}  // namespace

char heat_digit(double load) {
    const double place = load < 1 ? load : 1 + std::min(1.0, std::log(load) / std::log(most));
    return digits[size_t(std::lround(even * place))];
}

std::vector<HeatMap> heat_maps_of(const std::vector<RunData>& runs) {
    std::vector<HeatMap> maps;
    for (const RunData& run : runs) {
        if (run.expert_loads.empty()) continue;
        const size_t first = maps.size();
        maps.push_back(heat_map_of(run.expert_loads));
        if (const size_t ranks = ranks_with_experts(run); ranks > 1 && maps.back().rows % ranks == 0) {
            maps.push_back(heat_map_of(loads_of_ranks(run.expert_loads, ranks)));
            maps.back().of_ranks = true;
        }
        if (runs.size() > 1)
            for (size_t i = first; i < maps.size(); ++i) maps[i].run = run.name;
    }
    return maps;
}

std::string heat_map_card(const HeatMap& map) {
    return fmt::format(
        "<section class=\"card\"><div class=\"head\"><h2>{}{}<small>{} / mean "
        "of its layer</small></h2>{}<div class=\"ramp\"><i></i><span>0</span><span>0.5</span><span>1</span>"
        "<span>2</span><span>4+</span></div></div>\n"
        "<noscript><p class=\"about\">The map shows the first layer. A script draws the "
        "others.</p></noscript>"
        "<div class=\"scroll\">{}</div></section>\n",
        title_of(map), map.run.empty() ? "" : " in " + markup_of(map.run),
        map.of_ranks ? "rows of a rank" : "tokens of an expert", choice_of(map), picture_of(map));
}

Json heat_map_data(const HeatMap& map) {
    const Box box = box_of(map);
    Json edges = Json::array(), layers = Json::array();
    for (const int64_t edge : map.edges) edges.push(edge);
    for (const HeatMap::Layer& layer : map.layers) layers.push(layer.cells);
    return Json::object()
        .set("box",
             Json::array().push(box.left).push(box.top).push(box.inner_width()).push(box.inner_height()))
        .set("edges", std::move(edges))
        .set("records", map.records)
        .set("rows", map.rows)
        .set("row", row_name(map))
        .set("layers", std::move(layers));
}

}  // namespace coeus::report
