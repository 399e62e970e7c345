// SPDX-License-Identifier: Apache-2.0
// Sends and receives: those of each table are complete, and run without any buffering, on one thread or with
// a queue for each channel.
#include "coeus/pipeline/lower.hpp"

#include "coeus/base/error.hpp"
#include "tables.hpp"

#include <algorithm>
#include <iterator>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

Row computations(const Row& row) {
    Row kept;
    std::ranges::copy_if(row, std::back_inserter(kept), [](const Cell& c) { return c[0].computes(); });
    return kept;
}

std::string fault_of(const Timetable& lowered, Queues queues) {
    try {
        prove_unbuffered(lowered, queues);
    } catch (const LogicError& error) {
        return error.what();
    }
    return "";
}

// Puts each receive just before the action that needs it, and each send just after the one that computes it.
Timetable lowered_without_thought(const Timetable& table) {
    std::string text;
    for (int rank = 0; rank < table.ranks(); ++rank) {
        std::string before, behind;
        for (const Cell& cell : table.rows[size_t(rank)]) {
            before.clear(), behind.clear();
            for (const Action& a : cell) {
                const bool forward = a.kind == ActionKind::forward;
                if (!forward && !a.gives_input_gradient()) continue;
                const int from = forward ? a.stage - 1 : a.stage + 1,
                          to = forward ? a.stage + 1 : a.stage - 1;
                const auto elsewhere = [&](int stage) {
                    return stage >= 0 && stage < table.stages() && table.placement.rank_of(stage) != rank;
                };
                const char direction = forward ? 'F' : 'B';
                if (elsewhere(from)) before += fmt::format("{}RECV_{}{},", a.stage, direction, a.microbatch);
                if (elsewhere(to)) behind += fmt::format("{}SEND_{}{},", a.stage, direction, a.microbatch);
            }
            text += before + text_of(cell) + "," + behind;
        }
        text.back() = '\n';
    }
    return parse_timetable(text, table.name, Messages::keep);
}

}  // namespace

TEST_CASE("two ranks, one micro-batch") {
    const Timetable lowered = lower(table_of("GPipe", 2, 1, 1));
    CHECK(csv_text(lowered) == "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
    CHECK(lowered.rows[0][1][0].peer == 1);
    CHECK(lowered.rows[0][2][0].peer == 1);
    CHECK(lowered.rows[1][0][0].peer == 0);
    CHECK(lowered.rows[1][3][0].peer == 0);
    CHECK(lowered.rows[0][0][0].peer == -1);
}

TEST_CASE("stages on one rank exchange nothing, and a pair remains together") {
    CHECK(csv_text(lower(table_of("LoopedBFS", 1, 2, 2))) == csv_text(table_of("LoopedBFS", 1, 2, 2)));
    const Timetable lowered = lower(table_of("DualPipeV", 2, 4, 2));
    CHECK(csv_text(lowered).find("2SEND_F") != std::string::npos);
    CHECK(csv_text(lowered).find("1SEND_F") == std::string::npos);  // stages 1 and 2 are at the turn of the V
    CHECK(csv_text(lowered).find("(0F3;3B1)OVERLAP_F_B,0SEND_F3,3SEND_B1") != std::string::npos);
}

TEST_CASE("every accepted shape: no dead-lock without buffering") {
    int tables = 0;
    for (const Schedule& schedule : schedules()) {
        for_each_shape(32, [&](const PipelineShape& shape) {
            if (!schedule.accepts(shape)) return;
            INFO(schedule.name << " " << shape.ranks << " " << shape.microbatches << " "
                               << shape.virtual_stages);
            const Timetable table = schedule.timetable(shape), lowered = lower(table);
            REQUIRE(fault_of(lowered, Queues::one) == "");
            REQUIRE(fault_of(lowered, Queues::per_channel) == "");
            int sends = 0, receives = 0, crossings = 0;
            for (size_t rank = 0; rank < table.rows.size(); ++rank) {
                for (const Cell& cell : lowered.rows[rank])
                    for (const Action& action : cell)
                        if (!action.computes()) ++(action.sends() ? sends : receives);
                if (computations(lowered.rows[rank]) != table.rows[rank]) FAIL("the computations changed");
            }
            for (int s = 0; s + 1 < table.stages(); ++s)
                crossings += table.placement.rank_of(s) != table.placement.rank_of(s + 1);
            REQUIRE(sends == 2 * crossings * shape.microbatches);
            REQUIRE(receives == sends);
            ++tables;
        });
    }
    CHECK(tables == 3288);
}

TEST_CASE("without the simulation most tables dead-lock on one thread") {
    int dead_locks = 0, tables = 0;
    for (const Schedule& schedule : schedules()) {
        for (int ranks : {2, 4, 8}) {
            const Timetable table = schedule.timetable({ranks, 2 * ranks, schedule.default_virtual_stages});
            const Timetable lowered = lowered_without_thought(table);
            INFO(schedule.name << " on " << ranks << " ranks");
            CHECK(fault_of(lowered, Queues::per_channel) == "");
            const std::string fault = fault_of(lowered, Queues::one);
            CHECK((fault.empty() || fault.find("waits forever") != std::string::npos));
            dead_locks += !fault.empty();
            ++tables;
        }
    }
    CHECK(tables == 21);
    CHECK(dead_locks == 18);  // all but GPipe's
}

TEST_CASE("rows run for any cost model") {
    const CostModel costs[] = {{1, 1, 1, 1}, {3, 10, 2, 1}, {1, 7, 5, 9}};
    for (const Schedule& schedule : schedules())
        for (const CostModel& cost : costs)
            for (int ranks : {2, 3, 5}) {
                const Timetable lowered =
                    lower(schedule.timetable({ranks, 2 * ranks, schedule.default_virtual_stages}), cost);
                CHECK(fault_of(lowered, Queues::one) == "");
                CHECK(fault_of(lowered, Queues::per_channel) == "");
            }
    CHECK_THROWS_AS(lower(table_of("GPipe", 1, 1, 1), {.forward = 0}), LogicError);
}

TEST_CASE("a hand-written placement, and one that is refused") {
    // three stages on two ranks; one has only the middle stage
    const Timetable table = table_from("0F0,2F0,2B0,0F1,0B0,2F1,2B1,0B1\n1F0,1B0,1F1,1B1\n");
    const Timetable lowered = lower(table);
    CHECK(fault_of(lowered, Queues::one) == "");
    CHECK(fault_of(lowered, Queues::per_channel) == "");
    CHECK_THROWS_AS(lower(table_from("0B0,0F0\n")), ConfigError);
}

TEST_CASE("rows whose messages cannot run are detected") {
    const auto table = [](const std::string& text) { return table_from(text, Messages::keep); };
    const Timetable good = table("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
    CHECK(fault_of(good, Queues::one) == "");
    CHECK(fault_of(good, Queues::per_channel) == "");

    // both send before they receive: correct with a queue for each channel, a dead-lock with a single queue
    const Timetable crossed = table(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
    CHECK(fault_of(crossed, Queues::per_channel) == "");
    CHECK_THAT(
        fault_of(crossed, Queues::one),
        Contains(
            "table, lowered: rank 0, cell 3: 0SEND_F1 waits forever; the rows of the ranks wait for each "
            "other"));

    for (const Queues queues : {Queues::one, Queues::per_channel}) {
        CHECK_THAT(fault_of(table("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n"), queues),
                   Contains("rank 1, cell 0: 1F0 comes before its receive"));
    }
    CHECK_THAT(fault_of(table("0F0,0F1,0SEND_F0,0SEND_F1,0B0,0B1\n1RECV_F1,1RECV_F0,1F0,1F1,1B0,1B1\n"),
                        Queues::one),
               Contains("1RECV_F1 would receive what 0SEND_F0 sends"));
    CHECK_THAT(fault_of(table("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"), Queues::per_channel),
               Contains("rank 0, cell 0: 0SEND_F0 comes before what it sends"));
    CHECK_THAT(fault_of(table("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n"), Queues::per_channel),
               Contains("rank 0, cell 3: 0B0 waits forever"));
    CHECK_THAT(fault_of(table("0F0,0SEND_F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
                        Queues::per_channel),
               Contains("table, lowered: 0SEND_F0 has no other end"));
    CHECK_THAT(fault_of(table("1F0,0F0,1B0,0B0\n"), Queues::one),
               Contains("rank 0, cell 0: 1F0 comes before stage 0 of its own rank"));
}
