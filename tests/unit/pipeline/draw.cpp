// SPDX-License-Identifier: Apache-2.0
// Timetables as text and as a picture.
#include "coeus/pipeline/draw.hpp"

#include "support/support.hpp"
#include "tables.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

std::string text_of(const Timetable& table, const TextStyle& style = {}) {
    return timetable_text(table, simulate(table), style);
}

}  // namespace

TEST_CASE("a timetable as text") {
    CHECK(text_of(table_of("1F1B", 2, 2, 1)) ==
          "time    0\n"
          "rank 0  F0 F1 .  .  B0--- .  B1---\n"
          "rank 1  .  F0 B0--- F1 B1--- .  .\n");
    CHECK(text_of(table_of("DualPipeV", 1, 2, 2)) ==
          "time    0                   5                   10\n"
          "rank 0  0F0 1F0 0F1 1B0---- 1F1+0B0---- 1B1---- 0I1 0W1\n");
    CHECK(shape_text(table_of("DualPipeV", 1, 2, 2)) == "1 rank, 2 micro-batches, 2 stages on each rank");
    CHECK(shape_text(table_from("0F0,2F0,2B0,0B0\n1F0,1B0\n")) == "2 ranks, 1 micro-batch, 3 stages");
}

TEST_CASE("rows longer than the terminal are divided into pieces") {
    CHECK(text_of(table_of("1F1B", 2, 2, 1), {.width = 8 + 3 * 5 + 1}) ==
          "time    0\n"
          "rank 0  F0 F1 .  .  B0-\n"
          "rank 1  .  F0 B0--- F1\n"
          "\n"
          "time\n"
          "rank 0  -- .  B1---\n"
          "rank 1  B1--- .  .\n");
    // a terminal narrower than any label still gets pieces: 4 units, 4 and 1
    CHECK(count_of("rank 0", text_of(table_of("1F1B", 2, 2, 1), {.width = 1})) == 3);
}

TEST_CASE("colour: one per kind, and reset at the end of each row") {
    const std::string text = text_of(table_of("InterleavedZeroBubble", 2, 2, 1), {.color = true});
    CHECK_THAT(text, Contains("\033[30;48;5;111mF0\033[0m"));
    CHECK_THAT(text, Contains("\033[30;48;5;80mI0\033[0m"));
    CHECK_THAT(text, Contains("\033[30;48;5;222mW1\033[0m\n"));
    CHECK(count_of("\033[", text_of(table_of("1F1B", 2, 2, 1))) == 0);
}

TEST_CASE("a timetable as a picture") {
    const Timetable table = table_of("DualPipeV", 2, 5, 2);
    const std::string svg = timetable_svg(table, simulate(table));
    CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    CHECK(svg.ends_with("</svg>\n"));
    // 4 stages x 5 micro-batches; a frame for each pair and one in the legend, a box in each of two shades
    CHECK(count_of("<rect class=\"f", svg) == 20 + 2);
    CHECK(count_of("<rect class=\"b", svg) + count_of("<rect class=\"i0", svg) +
              count_of("<rect class=\"i1", svg) ==
          20 + 4);
    CHECK(count_of("class=\"pair\"", svg) == count_of("OVERLAP_F_B", csv_text(table)) + 1);
    CHECK(count_of("<text", svg) == count_of("</text>", svg));
    CHECK_THAT(svg, Contains("bubble 3.2 %"));
    CHECK_THAT(svg, !Contains("nan") && !Contains("inf"));

    const Timetable named = parse_timetable("0F0,0B0\n", "folder/a<b>&c.csv", Messages::drop);
    const std::string escaped = timetable_svg(named, simulate(named));
    CHECK_THAT(escaped, Contains(">a&lt;b&gt;&amp;c.csv</text>"));
    CHECK_THAT(escaped, !Contains("overlap</text>") && !Contains("weight half"));
}
