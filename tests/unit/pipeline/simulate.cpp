// SPDX-License-Identifier: Apache-2.0
// The proof of timetables: every shape of every schedule passes, and every broken one is refused by name.
// Times, bubbles and frames are compared with values known by hand.
#include "coeus/pipeline/simulate.hpp"

#include "coeus/base/error.hpp"
#include "support/support.hpp"
#include "tables.hpp"

#include <algorithm>
#include <set>
#include <tuple>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// A second opinion, as simple as possible: do the rows end if each cell waits for what it needs?
bool runs(const Timetable& table) {
    std::set<std::tuple<bool, int, int>> forwards_and_backwards;
    std::set<std::pair<int, int>> inputs;
    const auto done = [&](bool forward, int stage, int m) {
        return forwards_and_backwards.contains({forward, stage, m});
    };
    const auto can = [&](const Action& a) {
        if (a.kind == ActionKind::forward) return a.stage == 0 || done(true, a.stage - 1, a.microbatch);
        if (a.kind == ActionKind::backward_weight) return inputs.contains({a.stage, a.microbatch});
        return done(true, a.stage, a.microbatch) &&
               (a.stage + 1 == table.stages() || done(false, a.stage + 1, a.microbatch));
    };
    std::vector<size_t> at(table.rows.size());
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < at.size(); ++r) {
            while (at[r] < table.rows[r].size()) {
                const Cell& cell = table.rows[r][at[r]];
                if (!std::all_of(cell.begin(), cell.end(), can)) break;
                for (const Action& a : cell) {
                    if (a.kind == ActionKind::forward)
                        forwards_and_backwards.insert({true, a.stage, a.microbatch});
                    if (a.gives_input_gradient())
                        forwards_and_backwards.insert({false, a.stage, a.microbatch});
                    if (a.kind == ActionKind::backward_input) inputs.insert({a.stage, a.microbatch});
                }
                ++at[r];
                moved = true;
            }
        }
    }
    for (size_t r = 0; r < at.size(); ++r)
        if (at[r] < table.rows[r].size()) return false;
    return true;
}

std::string refusal_of(const Timetable& table) {
    try {
        check(table);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

bool names_one_of(const std::string& message, const Cell& cell) {
    for (const Action& action : cell)
        if ((message + " ").find(" " + text_of(action) + " ") != std::string::npos ||
            message.find(" " + text_of(action) + ",") != std::string::npos)
            return true;
    return false;
}

std::vector<Timetable> small_tables() {
    return {table_of("GPipe", 2, 3, 1),           table_of("1F1B", 3, 4, 1),
            table_of("Interleaved1F1B", 2, 4, 2), table_of("LoopedBFS", 2, 3, 2),
            table_of("ZBVZeroBubble", 3, 4, 2),   table_of("InterleavedZeroBubble", 2, 2, 3),
            table_of("DualPipeV", 2, 5, 2)};
}

}  // namespace

TEST_CASE("every shape that a schedule accepts is valid, and keeps every rank as busy as it claims") {
    int valid = 0;
    for (const Schedule& schedule : schedules()) {
        for_each_shape(32, [&](const PipelineShape& shape) {
            if (!schedule.accepts(shape)) return;
            const Simulation simulation = simulate(schedule.timetable(shape));
            const int work = 3 * shape.microbatches * shape.virtual_stages;
            bool busy = true;
            for (const int64_t time : simulation.busy) busy &= time == work;
            const double bubble = 1 - double(work) / double(simulation.makespan);
            if (!busy || !close(simulation.bubble_fraction, bubble, 1e-12) || simulation.makespan < work)
                FAIL(schedule.name << " " << shape.ranks << " " << shape.microbatches << " "
                                   << shape.virtual_stages);
            ++valid;
        });
    }
    CHECK(valid == 256 + 256 + 652 + 1024 + 652 + 256 + 192);
}

TEST_CASE("bubbles and frames are those of the papers") {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        const int m = 4 * ranks;
        INFO(ranks << " ranks");
        const auto expect = [&](const char* name, int virtual_stages, int64_t makespan, auto frames) {
            INFO(name);
            const Simulation simulation = simulate(table_of(name, ranks, m, virtual_stages));
            CHECK(simulation.makespan == makespan);
            for (int rank = 0; rank < ranks; ++rank)
                CHECK(simulation.peak_frames[size_t(rank)] == frames(rank));
        };
        expect("GPipe", 1, 3 * (m + ranks - 1), [&](int) { return m; });
        expect("1F1B", 1, 3 * (m + ranks - 1), [&](int rank) { return ranks - rank; });
        expect("LoopedBFS", 3, 3 * (3 * m + ranks - 1), [&](int) { return 3 * m; });
        expect("Interleaved1F1B", 2, 3 * (2 * m + ranks - 1),
               [&](int rank) { return ranks + 2 * (ranks - 1 - rank) + 1; });
        expect("InterleavedZeroBubble", 2, 6 * m + ranks - 1, [&](int) { return 2 * ranks; });
        expect("ZBVZeroBubble", 2, 6 * m + ranks - 1, [&](int) { return 2 * ranks; });
        expect("DualPipeV", 2, 6 * m + ranks - 1, [&](int) { return 2 * ranks + 1; });
    }
}

TEST_CASE("times of a hand-written table, with a custom cost model") {
    // F 2, B 5, I 3, W 1
    const Timetable table = table_from("0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1I1,1W1\n");
    const Simulation s =
        simulate(table, {.forward = 2, .backward = 5, .backward_input = 3, .backward_weight = 1});
    const auto times = [&](int rank, size_t i) {
        const TimedAction& timed = s.rows[size_t(rank)][i];
        return std::pair(timed.start, timed.end);
    };
    using Times = std::pair<int64_t, int64_t>;
    CHECK(times(0, 1) == Times{2, 4});
    CHECK(times(1, 0) == Times{2, 4});
    CHECK(times(1, 1) == Times{4, 9});
    CHECK(times(0, 2) == Times{9, 12});
    CHECK(times(0, 3) == Times{12, 13});
    CHECK(times(1, 2) == Times{9, 11});
    CHECK(times(1, 3) == Times{11, 14});
    CHECK(times(0, 4) == Times{14, 19});
    CHECK(s.makespan == 19);
    CHECK(s.busy == std::vector<int64_t>{13, 13});
    CHECK(close(s.bubble_fraction, 1 - 26. / 38, 1e-15));
    CHECK(s.peak_frames == std::vector<int>{2, 1});
    CHECK(s.peak_frames_of_stage == std::vector<int>{2, 1});
    CHECK(s.peak_owed_weights == std::vector<int>{1, 1});
}

TEST_CASE("deferred weight gradients are counted one by one") {
    const Simulation s = simulate(table_from("0F0,0F1,0F2,0F3,0I0,0I1,0W0,0I2,0I3,0W1,0W2,0W3\n"));
    CHECK(s.peak_owed_weights == std::vector<int>{3});
    CHECK(s.peak_frames == std::vector<int>{4});
}

TEST_CASE("the actions of a pair run in order, each as soon as it can, and both must be able to start") {
    // its backward could start immediately, but its forward waits
    const Simulation s = simulate(table_of("DualPipeV", 2, 4, 2));
    CHECK(s.makespan == 25);
    const TimedAction second = s.rows[0][8], first = s.rows[0][7];
    CHECK(text_of(first.action) == "0F3");
    CHECK(text_of(second.action) == "3B1");
    CHECK(first.cell == second.cell);
    CHECK_FALSE(first.second_of_pair);
    CHECK(second.second_of_pair);
    CHECK(second.start == first.end);
    CHECK_THROWS_WITH(
        check(table_from("(0F0;0B0)OVERLAP_F_B\n")),
        "table: rank 0, cell 0: 0B0 needs 0F0, which is in the same pair; the actions of a pair must "
        "not need each other");
    // as separate actions this would run: rank 1 runs 1F1, which needs 0F1, before 1B0
    CHECK_THROWS_WITH(check(table_from("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n")),
                      Contains("waits forever"));
}

TEST_CASE("a wrong table is refused with its first offending action") {
    const auto refuses = [](const std::string& text, const std::string& message) {
        CHECK(refusal_of(table_from(text)) == "table: " + message);
    };
    refuses("0F0,0F1,0F0,0B0,0B1\n", "rank 0, cell 2: 0F0 appears twice, first in cell 0");
    refuses("0F0,0B0,1B0\n1F0,1B0\n", "rank 0, cell 2: 1B0 is of stage 1, which is on rank 1");
    refuses("0F0,0B0,0I0,0W0\n",
            "rank 0, cell 2: 0I0 repeats a half of 0B0 in cell 1; a backward is B, or I and W");
    refuses("0F0,0I0,0B0,0W0\n",
            "rank 0, cell 2: 0B0 repeats a half of 0I0 in cell 1; a backward is B, or I and W");
    refuses("0B0,0I1,0W1,0F1\n", "rank 0: 0F0 is missing; each stage runs each micro-batch forward once");
    refuses("0F0,0F1,0I1,0W1\n",
            "rank 0: 0B0 is missing; each stage runs each micro-batch backward once, as B, or as I and W");
    refuses("0F0,0I0\n", "rank 0: 0W0 is missing; its other half I is present");
    refuses("0F0,0W0\n", "rank 0: 0I0 is missing; its other half W is present");
    refuses("0B0,0F0\n", "rank 0, cell 0: 0B0 needs 0F0, which comes only in cell 1");
    refuses("0F0,0W0,,0I0\n", "rank 0, cell 1: 0W0 needs 0I0, which comes only in cell 3");
    refuses("0F0,2F0,0B0,2B0\n1F0,1B0\n", "rank 0, cell 2: 0B0 needs 2B0, which comes only in cell 3");
    refuses("0F0,2F0,0I0,2I0,0W0,2W0\n1F0,1B0\n",
            "rank 0, cell 2: 0I0 needs 2I0, which comes only in cell 3");
    refuses("2F0,0F0,2B0,0B0\n1F0,1B0\n", "rank 0, cell 0: 2F0 needs 0F0, which comes only in cell 1");
    refuses("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
            "rank 0, cell 1: 0B0 waits forever for 1B0 (rank 1, cell 2); there 1F1 (cell 1) waits for 0F1 "
            "(rank 0, cell 2)");
    Timetable table = table_of("GPipe", 1, 2, 1);
    table.microbatches = 1;
    CHECK(refusal_of(table) == "GPipe: rank 0, cell 1: 0F1 is of micro-batch 1; micro-batches are 0 to 0");
    table = table_of("GPipe", 1, 2, 1);
    table.rows[0][1] = Action{ActionKind::forward, 1, 1};
    CHECK(refusal_of(table) == "GPipe: rank 0, cell 1: 1F1 is of stage 1; stages are 0 to 0");
    CHECK(refusal_of(table_from("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0\n", Messages::keep)) ==
          "table: rank 0, cell 1: 0SEND_F0 is a message; a timetable of computations has none");
}

TEST_CASE("any missing or duplicate action is named") {
    for (const Timetable& table : small_tables()) {
        for (size_t rank = 0; rank < table.rows.size(); ++rank) {
            for (size_t i = 0; i < table.rows[rank].size(); ++i) {
                Timetable broken = table;
                const Cell cell = table.rows[rank][i];
                broken.rows[rank].erase(broken.rows[rank].begin() + long(i));
                const std::string missing = refusal_of(broken);
                INFO(missing << " / " << text_of(cell));
                CHECK(missing.find(fmt::format(": rank {}: ", rank)) != std::string::npos);
                CHECK(missing.find(" is missing; ") != std::string::npos);
                CHECK(names_one_of(missing, cell));

                broken = table;
                broken.rows[rank].push_back(cell);
                const std::string doubled = refusal_of(broken);
                INFO(doubled);
                CHECK(doubled.find(fmt::format("rank {}, cell {}: ", rank, table.rows[rank].size())) !=
                      std::string::npos);
                CHECK(doubled.find(fmt::format(" appears twice, first in cell {}", i)) != std::string::npos);
                CHECK(names_one_of(doubled, cell));
            }
        }
    }
}

TEST_CASE("any two actions swapped: refused exactly if the table cannot run, with the name of one of them") {
    int refused = 0, by_dead_lock = 0, harmless = 0;
    for (const Timetable& table : small_tables()) {
        for (size_t rank = 0; rank < table.rows.size(); ++rank) {
            for (size_t j = 1; j < table.rows[rank].size(); ++j) {
                for (size_t i = 0; i < j; ++i) {
                    Timetable broken = table;
                    std::swap(broken.rows[rank][i], broken.rows[rank][j]);
                    const std::string message = refusal_of(broken);
                    INFO(table.name << ", rank " << rank << ", cells " << i << " and " << j << ": "
                                    << message);
                    REQUIRE(message.empty() == runs(broken));
                    if (message.empty()) {
                        ++harmless;
                        continue;
                    }
                    ++refused;
                    CHECK(message.find(fmt::format("rank {}, cell", rank)) != std::string::npos);
                    const bool named = names_one_of(message, table.rows[rank][i]) ||
                                       names_one_of(message, table.rows[rank][j]);
                    CHECK(named);
                    by_dead_lock += message.find("waits forever") != std::string::npos;
                }
            }
        }
    }
    CHECK(refused > 500);
    CHECK(by_dead_lock > 20);
    CHECK(harmless > 100);
}
