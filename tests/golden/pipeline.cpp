// SPDX-License-Identifier: Apache-2.0
// Schedules against the tables of PyTorch's own classes, and against their statistics.
#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"
#include "coeus/pipeline/from_file.hpp"
#include "coeus/pipeline/lower.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

std::vector<Row> without_idle_cells(std::vector<Row> rows) {
    for (Row& row : rows) std::erase_if(row, [](const Cell& cell) { return cell.empty(); });
    return rows;
}

bool dead_locks(const Timetable& lowered, Queues queues) {
    try {
        prove_unbuffered(lowered, queues);
        return false;
    } catch (const LogicError&) {
        return true;
    }
}

PipelineShape shape_of(const JsonView& entry) {
    return {int(entry.integer("P")), int(entry.integer("M")), int(entry.integer("V"))};
}

const Schedule& schedule_of(const JsonView& entry) {
    const Schedule* schedule = find_schedule(entry.string("schedule"));
    REQUIRE(schedule);
    return *schedule;
}

void compare_lowered(const Timetable& table, const JsonView& entry, const std::filesystem::path& folder) {
    // the lowered table, which needs no buffers either, has the same computations
    const std::string text = read_file(folder / entry.string("lowered"));
    const Timetable dropped = parse_timetable(text, entry.string("lowered"), Messages::drop);
    CHECK(without_idle_cells(dropped.rows) == table.rows);
    const Timetable kept = parse_timetable(text, entry.string("lowered"), Messages::keep);
    CHECK_FALSE(dead_locks(kept, Queues::one));
    CHECK_FALSE(dead_locks(kept, Queues::per_channel));
}

void compare_simulation(const Timetable& table, const Timetable& file, const JsonView& entry) {
    // PyTorch's file runs like our table
    for (const Timetable* runs : {&table, &file}) {
        const Simulation simulation = simulate(*runs);
        CHECK(simulation.makespan == entry.integer("makespan"));
        CHECK(simulation.busy == entry["busy_per_rank"].integers());
        CHECK(close(simulation.bubble_fraction, entry.number("bubble_fraction"), 1e-12));
        const auto peak = [&](const char* key) {
            const std::vector<int64_t> values = entry[key].integers();
            return std::vector<int>(values.begin(), values.end());
        };
        CHECK(simulation.peak_frames == peak("peak_live_activations"));
        CHECK(simulation.peak_owed_weights == peak("peak_owed_weight_gradients"));
        const Timetable lowered = lower(*runs);
        CHECK_FALSE(dead_locks(lowered, Queues::one));
        CHECK_FALSE(dead_locks(lowered, Queues::per_channel));
    }
}

void compare(const JsonView& entry, const std::filesystem::path& folder) {
    const Schedule& schedule = schedule_of(entry);
    const PipelineShape shape = shape_of(entry);
    // PyTorch refuses 1F1B with fewer micro-batches than ranks; here it runs all forwards first
    const bool only_here = std::string(schedule.name) == "1F1B" && shape.microbatches < shape.ranks;
    CHECK(schedule.accepts(shape) == (only_here || !entry.contains("refused")));
    if (entry.contains("refused")) return;
    // the same orders
    const Timetable table = schedule.timetable(shape);
    const auto path = folder / entry.string("compute");
    const Timetable file = read_timetable(path);
    CHECK(without_idle_cells(file.rows) == table.rows);
    CHECK(csv_text(file) == read_file(path));
    for (int s = 0; s < table.stages(); ++s) CHECK(file.placement.rank_of(s) == table.placement.rank_of(s));
    compare_simulation(table, file, entry);
    if (entry.contains("lowered")) compare_lowered(table, entry, folder);
}

}  // namespace

TEST_CASE("golden: pipeline schedules") {
    const auto folder = golden("pipeline");
    if (folder.empty()) return;
    const JsonDocument index = JsonDocument::read(folder / "index.json");
    std::vector<GoldenCase> cases;
    for (const JsonView& entry : index.root()["schedules"].elements()) {
        const PipelineShape shape = shape_of(entry);
        cases.push_back({fmt::format("pipeline/{}, P {}, M {}, V {}", entry.string("schedule"), shape.ranks,
                                     shape.microbatches, shape.virtual_stages),
                         [] { return std::string(); }, [=] { compare(entry, folder); }});
    }
    compare_golden(cases);
}
