// SPDX-License-Identifier: Apache-2.0
// Heat maps of experts' loads: digits, columns, the cells that are drawn, and the data of the script.
#include "../../../src/report/page/heat_map.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <sstream>

using namespace coeus;
using namespace coeus::report;
using namespace coeus::test;
using Catch::Contains;

namespace {

RunData run_with(const LoadHistory& loads) {
    RunData run;
    run.name = "run";
    run.expert_loads = loads;
    return run;
}

HeatMap map_of(const LoadHistory& loads) {
    return heat_maps_of({run_with(loads)}).at(0);
}

// Steps 1 to `steps` of a layer with two experts. The first expert has the load 2 in even steps, and 0 in odd
// ones.
LayerLoads alternating(int64_t steps) {
    LayerLoads loads;
    for (int64_t step = 1; step <= steps; ++step)
        loads[step] = step % 2 ? std::vector<float>{0, 2} : std::vector<float>{2, 0};
    return loads;
}

}  // namespace

TEST_CASE("heat map: digits are linear below the mean and logarithmic above it, up to four times the mean") {
    CHECK(heat_digit(0) == '0');
    CHECK(heat_digit(0.5) == 'F');  // 15
    CHECK(heat_digit(1) == 'U');    // 30
    CHECK(heat_digit(2) == 'j');    // 45
    CHECK(heat_digit(4) == 'y');    // 60
    CHECK(heat_digit(1e6) == 'y');
    for (double load = 0; load < 5; load += 0.01) CHECK(heat_digit(load) <= heat_digit(load + 0.01));
}

TEST_CASE("heat map: a column for each record, over the steps since the one before") {
    const HeatMap map = map_of({{3, {{1, {1, 1}}, {10, {0, 2}}, {20, {2, 0}}}}});
    CHECK(map.run.empty());
    CHECK(map.edges == std::vector<int64_t>{0, 1, 10, 20});
    CHECK(map.columns() == 3);
    CHECK(map.records == 1);
    CHECK(map.rows == 2);
    REQUIRE(map.layers.size() == 1);
    CHECK(map.layers[0].number == 3);
    CHECK(map.layers[0].cells == "U0jUj0");
    // a single record, of a run whose first start did not record
    const HeatMap one = map_of({{0, {{50, {1, 1}}}}});
    CHECK(one.edges == std::vector<int64_t>{49, 50});
    CHECK(one.layers[0].cells == "UU");
}

TEST_CASE("heat map: very many records share columns, and a cell is their mean") {
    CHECK(map_of({{0, alternating(200)}}).records == 1);
    const HeatMap map = map_of({{0, alternating(401)}});
    CHECK(map.records == 3);
    REQUIRE(map.columns() == 134);
    CHECK(map.edges.front() == 0);
    CHECK(map.edges[1] == 3);
    CHECK(map.edges[133] == 399);
    CHECK(map.edges.back() == 401);
    const std::string& cells = map.layers[0].cells;
    REQUIRE(cells.size() == 2 * 134);
    CHECK(cells[0] == heat_digit(2.0 / 3));
    CHECK(cells[1] == heat_digit(4.0 / 3));
    CHECK(cells[133] == heat_digit(1));  // of two records
    CHECK(cells[134] == heat_digit(4.0 / 3));
}

TEST_CASE("heat map: a layer that lacks a record has an empty column") {
    const HeatMap map = map_of({{0, {{1, {1, 1}}, {2, {0, 2}}}}, {1, {{2, {1, 1}}, {3, {2, 0}}}}});
    CHECK(map.edges == std::vector<int64_t>{0, 1, 2, 3});
    CHECK(map.layers.at(0).cells == "U0 Uj ");
    CHECK(map.layers.at(1).cells == " Uj U0");
}

TEST_CASE("heat map: the card draws the first layer without the script, and offers all layers") {
    const HeatMap map = map_of({{2, {{1, {1, 1}}, {2, {1, 1}}, {4, {0, 2}}}}, {5, {{4, {1, 1}}}}});
    const std::string card = heat_map_card(map);
    INFO(card);
    CHECK(count_of("<option>", card) == 2);
    CHECK_THAT(card, Contains("<option>layer 2</option><option>layer 5</option></select>"));
    CHECK_THAT(card, Contains("disabled>") && Contains("<noscript>"));
    // expert 0 is the lowest row; equal cells of a row are one rectangle
    CHECK(count_of("<path ", card) == 3);
    CHECK_THAT(card, Contains("<path class=\"under\" fill-opacity=\"1\" d=\"M2 1h2v1h-2z\"/>"));
    CHECK_THAT(card, Contains("<path class=\"over\" fill-opacity=\"0\" d=\"M0 1h2v1h-2zM0 0h2v1h-2z\"/>"));
    CHECK_THAT(card, Contains("<path class=\"over\" fill-opacity=\"0.5\" d=\"M2 0h2v1h-2z\"/>"));
    CHECK_THAT(card, Contains(">expert<") && Contains(">step<"));
    // an empty cell is not drawn
    CHECK(count_of("<path ", heat_map_card(map_of({{0, {{1, {1}}}}, {1, {{2, {1}}}}}))) == 1);
}

TEST_CASE("heat map: the script gets the cells of every layer") {
    const HeatMap map = map_of({{2, {{1, {1, 1}}, {4, {0, 2}}}}, {5, {{4, {1, 1}}}}});
    CHECK_THAT(heat_map_data(map).text(),
               Contains(R"("edges":[0,1,4],"records":1,"rows":2,"row":"expert","layers":["U0Uj"," U U"]})"));
}

TEST_CASE("heat map: only runs with loads have a map, which has a name if there are several runs") {
    const LoadHistory loads = {{0, {{1, {1, 1}}}}};
    CHECK(heat_maps_of({run_with({})}).empty());
    std::vector<RunData> runs = {run_with({}), run_with(loads)};
    runs[1].name = "a<b";
    const std::vector<HeatMap> maps = heat_maps_of(runs);
    REQUIRE(maps.size() == 1);
    CHECK_THAT(heat_map_card(maps[0]), Contains("Loads of experts in a&lt;b<"));
}

TEST_CASE("heat map: ranks that divide the experts have a map of their own") {
    RunData run = run_with({{2, {{1, {0, 2, 1, 1}}, {4, {4, 0, 0, 0}}}}});
    const auto deck = [](const char* degree) {
        return parse_toml("[parallelism]\nexpert_parallel_degree = " + std::string(degree), "deck");
    };
    run.deck = deck("1");
    CHECK(heat_maps_of({run}).size() == 1);
    run.deck = deck("3");  // of an earlier start
    CHECK(heat_maps_of({run}).size() == 1);
    run.deck = deck("2");
    const std::vector<HeatMap> maps = heat_maps_of({run, run});
    REQUIRE(maps.size() == 4);
    CHECK(maps[0].rows == 4);
    CHECK_FALSE(maps[0].of_ranks);
    CHECK(maps[1].of_ranks);
    CHECK(maps[1].rows == 2);
    CHECK(maps[1].run == "run");
    CHECK(maps[1].edges == maps[0].edges);
    CHECK(maps[1].layers.at(0).number == 2);
    CHECK(maps[1].layers.at(0).cells == "UjU0");
    CHECK_THAT(
        heat_map_card(maps[1]),
        Contains("Loads of ranks with experts in run<small>rows of a rank / mean") && Contains(">rank<"));
    CHECK_THAT(heat_map_data(maps[1]).text(), Contains(R"("rows":2,"row":"rank")"));
}

TEST_CASE("heat map: as many experts as a model may have fit on a screen") {
    for (const size_t experts : {1, 2, 64, 512}) {
        const std::string card = heat_map_card(map_of({{0, {{1, std::vector<float>(experts, 1)}}}}));
        double width = 0, height = 0;
        std::istringstream(card.substr(card.find("viewBox=\"0 0 ") + 13)) >> width >> height;
        CAPTURE(experts, width, height);
        CHECK(width == 1090);
        CHECK(height <= 600);
    }
}
