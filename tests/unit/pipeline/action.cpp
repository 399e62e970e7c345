// SPDX-License-Identifier: Apache-2.0
// Actions and cells as text, and files of them.
#include "coeus/pipeline/action.hpp"

#include "coeus/base/error.hpp"
#include "coeus/pipeline/lower.hpp"
#include "support/support.hpp"
#include "tables.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("cells to text and back") {
    const Action forward = {ActionKind::forward, 12, 3}, backward = {ActionKind::backward, 0, 10};
    CHECK(text_of(forward) == "12F3");
    CHECK(text_of(Cell(forward, backward)) == "(12F3;0B10)OVERLAP_F_B");
    CHECK(text_of(Cell()) == "");
    for (int kind = 0; kind < 8; ++kind) {
        const Cell cell(Action{ActionKind(kind), 7, 20});
        CHECK(parse_cell(text_of(cell)) == cell);
    }
    CHECK(parse_cell(" (12F3; 0B10)OVERLAP_F_B ") == Cell(forward, backward));
    CHECK(parse_cell("12F3\r") == Cell(forward));
    CHECK(parse_cell("  ") == Cell());
    CHECK(parse_cell("(1F0;0I0)OVERLAP_F_B")->is_pair());
    for (const char* wrong : {"F0",
                              "0F",
                              "0X1",
                              "0f1",
                              "0F1x",
                              "0F-1",
                              "-1F0",
                              "0 F1",
                              "0F99999999999",
                              "99999999999F0",
                              "(0F0)",
                              "(0F0;1B0)",
                              "(0F0;1B0)OVERLAP",
                              "(0B0;1F0)OVERLAP_F_B",
                              "(0F0;1W0)OVERLAP_F_B",
                              "(0F0;)OVERLAP_F_B",
                              "(0F0;1B0;2B0)OVERLAP_F_B",
                              "(0F0;1B0",
                              "(;)OVERLAP_F_B",
                              "()OVERLAP_F_B",
                              "("})
        CHECK_FALSE(parse_cell(wrong));
}

TEST_CASE("both ends of a message use the same channel, and no two pairs of stages share a channel") {
    CHECK(Action{ActionKind::send_forward, 3, 0}.channel() ==
          Action{ActionKind::receive_forward, 4, 0}.channel());
    CHECK(Action{ActionKind::send_backward, 4, 0}.channel() ==
          Action{ActionKind::receive_backward, 3, 0}.channel());
    CHECK(Action{ActionKind::send_forward, 3, 0}.channel() !=
          Action{ActionKind::send_backward, 4, 0}.channel());
    CHECK(Action{ActionKind::send_forward, 3, 0}.channel() !=
          Action{ActionKind::send_forward, 4, 0}.channel());
    CHECK(Action{ActionKind::send_backward, 4, 0}.channel() !=
          Action{ActionKind::send_forward, 4, 0}.channel());
    CHECK(Action{ActionKind::forward, 3, 0}.channel() == -1);
}

TEST_CASE("timetables to CSV and back") {
    for (const Schedule& schedule : schedules()) {
        const Timetable table = schedule.timetable({3, 6, schedule.default_virtual_stages});
        const Timetable again = parse_timetable(csv_text(table), schedule.name, Messages::keep);
        CHECK(again.rows == table.rows);
        CHECK(again.microbatches == 6);
        for (int s = 0; s < table.stages(); ++s)
            CHECK(again.placement.rank_of(s) == table.placement.rank_of(s));
        // also with messages, whose peers are found again
        const Timetable lowered = lower(table);
        CHECK(parse_timetable(csv_text(lowered), schedule.name, Messages::keep).rows == lowered.rows);
        CHECK(parse_timetable(csv_text(lowered), schedule.name, Messages::drop).rows == table.rows);
    }
}

TEST_CASE("a file: idle cells, line ends, PyTorch's additions for FSDP") {
    const TemporaryFolder folder;
    write_file(folder / "t.csv",
               "0UNSHARD,0F0,,0SEND_F0, 0B0 ,0WAIT_SEND_F0,0REDUCE_GRAD\r\n,1F0,1B0\r\n\r\n");
    const Timetable table = read_timetable(folder / "t.csv");
    CHECK(csv_text(table) == "0F0,,0B0\n,1F0,1B0\n");
    CHECK(table.ranks() == 2);
    CHECK(table.stages() == 2);
    CHECK(table.microbatches == 1);
}

TEST_CASE("a wrong file is refused with file, rank and cell") {
    const TemporaryFolder folder;
    const auto refuses = [&](const std::string& text, const std::string& message) {
        write_file(folder / "t.csv", text);
        CHECK_THROWS_WITH(read_timetable(folder / "t.csv"), Contains("t.csv: " + message));
        CHECK_THROWS_AS(read_timetable(folder / "t.csv"), ConfigError);
    };
    refuses(
        "0F0,0X0,0B0\n",
        "rank 0, cell 1: \"0X0\" is not an action; an action is a stage, F, B, I or W, and a micro-batch, "
        "such as 2F0, or a pair (0F3;3B1)OVERLAP_F_B");
    refuses("0F0,0B0\n1F0,1UNSHAR,1B0\n", "rank 1, cell 1: \"1UNSHAR\" is not an action");
    refuses("", "is empty; it contains no actions");
    refuses("\n\n", "is empty; it contains no actions");
    refuses(",,\n", "is empty; it contains no actions");
    refuses("0F0,0B0\n\n1F0,1B0\n", "rank 1 has no stage of its own; each line is a rank");
    refuses("0F0,0B0\n0F1,0B1\n", "rank 1 has no stage of its own; each line is a rank");
    refuses(
        "0F0,0F2147483647,0B0\n",
        "3 actions are too few for 1 stages and 2147483648 micro-batches, the largest numbers in the file");
    refuses("2147483647F2147483647,0F0\n",
            "2 actions are too few for 2147483648 stages and 2147483648 micro-batches");
    refuses("0F0,0B0,0F0,0B0\n2F0,2B0\n", "stage 1 is on no rank, though there is a stage 2");
    CHECK_THROWS_WITH(read_timetable(folder / "absent.csv"), Contains("cannot be read: No such file"));
    CHECK_THROWS_WITH(read_timetable(folder.path()), Contains(": cannot be read: it is a folder"));
    CHECK_THROWS_WITH(table_from("0F0,0B0,0SEND_F0\n", Messages::keep), Contains("0SEND_F0 has no stage"));
}
