// SPDX-License-Identifier: Apache-2.0
// Schedules as values: names, placement, accepted shapes, the orders of small ones.
#include "coeus/pipeline/schedule.hpp"

#include "coeus/base/error.hpp"
#include "tables.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

std::string rows_text(const std::string& name, int ranks, int microbatches, int virtual_stages) {
    return csv_text(table_of(name, ranks, microbatches, virtual_stages));
}

}  // namespace

TEST_CASE("schedules are found by name, in any case") {
    CHECK(schedules().size() == 7);
    for (const Schedule& schedule : schedules()) CHECK(find_schedule(schedule.name) == &schedule);
    CHECK(std::string(schedule_of("dualpipev").name) == "DualPipeV");
    CHECK(find_schedule("1F1") == nullptr);
    CHECK(find_schedule("") == nullptr);
    CHECK(unknown_schedule_text("1f2B") ==
          "no such schedule (did you mean 1F1B?); there are GPipe, 1F1B, Interleaved1F1B, LoopedBFS, "
          "InterleavedZeroBubble, ZBVZeroBubble, DualPipeV");
    CHECK(unknown_schedule_text("chimera").starts_with("no such schedule; there are GPipe"));
}

TEST_CASE("placement: stages in a loop, in a V, by hand") {
    const Placement loop = Placement::loop({3, 1, 2});
    CHECK(loop.ranks() == 3);
    CHECK(loop.stages() == 6);
    CHECK(loop.rank_of(4) == 1);
    CHECK(loop.stages_of(2) == std::vector<int>{2, 5});
    const Placement v = Placement::v_shaped({3, 1, 2});
    CHECK(v.stages_of(0) == std::vector<int>{0, 5});
    CHECK(v.stages_of(2) == std::vector<int>{2, 3});
    CHECK(v.rank_of(4) == 1);
    CHECK(Placement::loop({1, 1, 3}).stages_of(0) == std::vector<int>{0, 1, 2});
    CHECK(Placement({1, 0, 0}).stages_of(0) == std::vector<int>{1, 2});
    CHECK_THROWS_AS(Placement(std::vector<int>{}), LogicError);
    CHECK_THROWS_AS(Placement(std::vector<int>{0, 2}), LogicError);
}

TEST_CASE("small timetables are those of the papers") {
    CHECK(rows_text("GPipe", 2, 2, 1) == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    CHECK(rows_text("1F1B", 2, 3, 1) == "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
    CHECK(rows_text("1F1B", 1, 1, 1) == "0F0,0B0\n");
    CHECK(rows_text("1F1B", 3, 2, 1) ==
          "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n");  // fewer micro-batches than ranks
    CHECK(rows_text("LoopedBFS", 1, 2, 2) == "0F0,0F1,1F0,1F1,1B1,1B0,0B1,0B0\n");
    CHECK(rows_text("Interleaved1F1B", 2, 2, 2) ==
          "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
    CHECK(rows_text("InterleavedZeroBubble", 2, 2, 1) ==
          "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
    CHECK(rows_text("ZBVZeroBubble", 1, 1, 2) == "0F0,1F0,1I0,1W0,0I0,0W0\n");
    CHECK(rows_text("DualPipeV", 1, 2, 2) == "0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,1B1,0I1,0W1\n");
}

TEST_CASE("a refused shape: the rule, and the nearest valid value") {
    const auto refusal = [](const std::string& name, PipelineShape shape) {
        const auto refused = schedule_of(name).refusal(shape);
        REQUIRE(refused);
        return *refused;
    };
    using Field = Refusal::Field;
    const Refusal several = refusal("1F1B", {4, 2, 3});  // both are wrong: stages are checked first
    CHECK(several.field == Field::virtual_stages);
    CHECK(several.rule == "1F1B has one stage on each rank");
    CHECK(several.nearest == 1);
    CHECK(refusal("GPipe", {4, 2, 2}).rule == "GPipe has one stage on each rank");
    const Refusal rounds = refusal("Interleaved1F1B", {4, 9, 2});
    CHECK(
        rounds.rule ==
        "Interleaved1F1B on 4 ranks runs 9 micro-batches in 2 rounds, and their number must be a multiple of "
        "the rounds");
    CHECK(rounds.nearest == 10);
    CHECK(refusal("InterleavedZeroBubble", {2, 5, 1}).nearest == 6);
    CHECK(refusal("ZBVZeroBubble", {2, 5, 1}).rule == "ZBVZeroBubble has two stages on each rank");
    CHECK(refusal("ZBVZeroBubble", {2, 5, 4}).nearest == 2);
    const Refusal dual = refusal("DualPipeV", {3, 5, 2});
    CHECK(dual.rule == "DualPipeV on 3 ranks has 6 stages and needs at least as many micro-batches");
    CHECK(dual.field == Field::microbatches);
    CHECK(dual.nearest == 6);
    CHECK_THROWS_AS(table_of("DualPipeV", 3, 5, 2), LogicError);
}

TEST_CASE("the nearest value in a message is valid, and none is nearer") {
    for (const Schedule& schedule : schedules()) {
        for_each_shape(32, [&](const PipelineShape& shape) {
            const auto refused = schedule.refusal(shape);
            CHECK(schedule.accepts(shape) == !refused);
            if (!refused) return;
            CHECK(refused->rule.starts_with(schedule.name));
            const bool of_microbatches = refused->field == Refusal::Field::microbatches;
            const auto with = [&](int value) {
                PipelineShape other = shape;
                (of_microbatches ? other.microbatches : other.virtual_stages) = value;
                const auto rule = schedule.broken_rule(other);
                return !rule || rule->field != refused->field;
            };
            const int given = of_microbatches ? shape.microbatches : shape.virtual_stages;
            CHECK(with(refused->nearest));
            const int distance = std::abs(refused->nearest - given);
            for (int d = 1; d < distance; ++d) {
                CHECK_FALSE(with(given + d));
                if (given > d) CHECK_FALSE(with(given - d));
            }
        });
    }
}
