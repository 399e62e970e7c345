// SPDX-License-Identifier: Apache-2.0
// Which rank is slow, by tables of times; and the phases of a step, by what an observer sees.
#include "coeus/observe/stragglers.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

double step_clock = 0;

// Steps of 100 ms on 8 equal ranks: 80 ms of computation, and 5 ms of waiting in each kind of exchange.
std::vector<RankTimes> even_ranks(int ranks = 8) {
    RankTimes times{.step = 0.1};
    times.phases[StepPhase::compute] = 0.08;
    for (const StepPhase phase : {StepPhase::along_tp, StepPhase::along_dp, StepPhase::world})
        times.phases[phase] = 0.005;
    return std::vector(size_t(ranks), times);
}

}  // namespace

TEST_CASE("stragglers: none if all ranks are alike") {
    CHECK(find_stragglers({.dp_shard = 4, .tp = 2}, even_ranks(), 0).empty());
    CHECK(find_stragglers({.dp_shard = 8}, even_ranks(), 5).empty());
}

TEST_CASE("stragglers: the slow rank waits least, and only its computation names it") {
    std::vector<RankTimes> ranks = even_ranks();
    // rank 5 is slow: its tensor-parallel peer 4 waits for it in their exchanges, and all others wait in
    // those of the data ranks
    for (RankTimes& rank : ranks) rank.step = 0.13;
    ranks[5].phases[StepPhase::compute] += 0.03;
    ranks[4].phases[StepPhase::along_tp] += 0.03;
    for (const size_t rank : {0, 1, 2, 3, 6, 7}) ranks[rank].phases[StepPhase::along_dp] += 0.03;
    const std::vector<Straggler> found = find_stragglers({.dp_shard = 4, .tp = 2}, ranks, 5);
    REQUIRE(found.size() == 1);
    CHECK(found[0].phase == StepPhase::compute);
    CHECK(found[0].rank == 5);
    CHECK(found[0].group.empty());
    CHECK(close(found[0].seconds, 0.03, 1e-12));
    CHECK(close(found[0].percent(), 100 * 0.03 / 0.13, 1e-9));
    CHECK(find_stragglers({.dp_shard = 4, .tp = 2}, ranks, 24).empty());
}

TEST_CASE("stragglers: the slower one of two ranks") {
    std::vector<RankTimes> ranks = even_ranks(2);
    ranks[0].phases[StepPhase::data] = 0.02;
    const std::vector<Straggler> found = find_stragglers({.dp_replicate = 2}, ranks, 5);
    REQUIRE(found.size() == 1);
    CHECK(found[0].phase == StepPhase::data);
    CHECK(found[0].rank == 0);
    CHECK(close(found[0].seconds, 0.02, 1e-12));
}

TEST_CASE("stragglers: a slow network is found as a group whose ranks all wait") {
    std::vector<RankTimes> ranks = even_ranks();
    for (const size_t rank : {4, 5}) ranks[rank].phases[StepPhase::along_tp] = 0.02;
    const std::vector<Straggler> found = find_stragglers({.dp_shard = 4, .tp = 2}, ranks, 5);
    REQUIRE(found.size() == 1);
    CHECK(found[0].phase == StepPhase::along_tp);
    CHECK(found[0].group == std::vector{4, 5});
    CHECK(close(found[0].seconds, 0.015, 1e-12));
    // a single group cannot be compared
    for (RankTimes& rank : ranks) rank.phases[StepPhase::along_tp] = 0.05;
    CHECK(find_stragglers({.tp = 8}, ranks, 5).empty());
}

TEST_CASE("stragglers: ranks that divide experts are a group") {
    std::vector<RankTimes> ranks = even_ranks();
    for (const size_t rank : {1, 3}) ranks[rank].phases[StepPhase::along_ep] = 0.02;
    const std::vector<Straggler> found =
        find_stragglers({.dp_shard = 4, .tp = 2, .ep = 2, .etp = 2}, ranks, 5);
    REQUIRE(found.size() == 1);
    CHECK(found[0].phase == StepPhase::along_ep);
    CHECK(found[0].group == std::vector{1, 3});
}

TEST_CASE("stragglers: stages of a pipeline are not compared with each other") {
    std::vector<RankTimes> ranks = even_ranks();
    for (const size_t rank : {4, 5, 6, 7}) ranks[rank].phases[StepPhase::compute] = 0.09;
    CHECK(find_stragglers({.pp = 2, .dp_shard = 4}, ranks, 5).empty());
    CHECK(find_stragglers({.dp_shard = 8}, ranks, 5).size() == 1);
    ranks[6].phases[StepPhase::compute] = 0.1;
    const std::vector<Straggler> found = find_stragglers({.pp = 2, .dp_shard = 4}, ranks, 5);
    REQUIRE(found.size() == 1);
    CHECK(found[0].rank == 6);
    // pipelines are compared with each other: that of ranks 2 and 6 waits
    ranks[2].phases[StepPhase::along_pp] = ranks[6].phases[StepPhase::along_pp] = 0.03;
    const std::vector<Straggler> both = find_stragglers({.pp = 2, .dp_shard = 4}, ranks, 5);
    REQUIRE(both.size() == 2);
    CHECK(both[1].phase == StepPhase::along_pp);
    CHECK(both[1].group == std::vector{2, 6});
}

TEST_CASE("stragglers: a GPU that runs steps as graphs is recognised by its clock") {
    std::vector<RankTimes> ranks = even_ranks();
    for (RankTimes& rank : ranks) {
        rank.clock_mhz = 1980;
        for (const StepPhase phase : {StepPhase::compute, StepPhase::along_tp, StepPhase::along_dp})
            rank.phases[phase] = std::numeric_limits<double>::quiet_NaN();
    }
    CHECK(find_stragglers({.dp_shard = 8}, ranks, 5).empty());
    ranks[3].clock_mhz = 1410;
    CHECK(find_stragglers({.dp_shard = 8}, ranks, 5).empty());  // it may be idle
    ranks[3].throttle = 0x40;                                   // hardware thermal throttling
    const std::vector<Straggler> found = find_stragglers({.dp_shard = 8}, ranks, 5);
    REQUIRE(found.size() == 1);
    CHECK(found[0].rank == 3);
    CHECK_THAT(console_line(found[0]),
               Contains("Slow rank 3") && Contains("its GPU runs at 1410 MHz, the median at 1980 (thermal"));
    CHECK(JsonDocument::parse(json_line(found[0]), "line").root()["straggler_ms"].is_null());
}

TEST_CASE("stragglers: the log lines") {
    Straggler s{.step = 200,
                .phase = StepPhase::compute,
                .rank = 3,
                .host = "n2",
                .seconds = 0.0123,
                .step_seconds = 0.152,
                .seconds_before = 0.0102};
    CHECK(
        console_line(s) ==
        "Slow rank 3 (host n2): its computation takes 12.3 ms per step longer than others, 8 % of 152.0 ms; "
        "2.1 ms more than before");
    const JsonDocument document = JsonDocument::parse(json_line(s), "line");
    const JsonView line = document.root();
    CHECK(line.integer("step") == 200);
    CHECK(line.string("straggler_phase") == "compute");
    CHECK(line.integer("straggler_rank") == 3);
    CHECK(line.string("straggler_host") == "n2");
    CHECK(close(line.number("straggler_ms"), 12.3, 1e-9));
    CHECK(close(line.number("straggler_change_ms"), 2.1, 1e-9));
    s.phase = StepPhase::along_dp;
    s.seconds_before.reset();
    for (int rank = 0; rank < 16; ++rank) s.group.push_back(3 + 2 * rank);
    CHECK(console_line(s) ==
          "Slow ranks 3 5 7 9 11 13 15 17 ... (host n2): its exchanges along dp take 12.3 ms per step longer "
          "than others, 8 % of 152.0 ms");
}

TEST_CASE("step phases: every exchange has the phase of its axis") {
    using enum StepPhase;
    const std::map<std::string, StepPhase> phases = {
        {"wait_for_stage", along_pp},      {"gather_tokens", along_tp},
        {"scatter_tokens", along_tp},      {"gather_log_sums", along_tp},
        {"sum_label_logits", along_tp},    {"gather_logits", along_tp},
        {"largest_logits", along_tp},      {"gather_keys", along_cp},
        {"scatter_keys", along_cp},        {"pass_keys_on", along_cp},
        {"pass_gradients_on", along_cp},   {"tokens_to_heads", along_cp},
        {"heads_to_tokens", along_cp},     {"gather_weights", along_dp},
        {"gather_matrix_rows", along_dp},  {"reduce_gradients", along_dp},
        {"gather_matrix_parts", along_tp}, {"count_labels", world},
        {"sum_squared_norm", world},       {"sum_over_heads", along_tp},
        {"sum_token_choices", along_tp},   {"sum_part_choices", along_cp},
        {"compare_losses", world},         {"count_rows", along_ep},
        {"rows_to_experts", along_ep},     {"rows_from_experts", along_ep},
        {"agree_on_scales", along_tp},     {"agree_on_context_scales", along_cp},
        {"agree_on_weight_scales", world}, {"agree_to_stop", world},
    };
    std::set<std::string> seen;
    for (size_t i = 0; i < num_exchanges; ++i) {
        const auto exchange = Exchange(i);
        CAPTURE(name_of(exchange));
        REQUIRE(phases.contains(name_of(exchange)));
        CHECK(phase_of(exchange) == phases.at(name_of(exchange)));
        seen.insert(name_of(exchange));
    }
    CHECK(seen.size() == phases.size());
}

TEST_CASE("step phases: exchanges are assigned to axes, and the rest is computation") {
    step_clock = 0;
    StepPhases phases(Timestamps([] { return step_clock; }));
    const auto exchange = [&](Exchange kind, double seconds) {
        phases.begin_exchange(kind, 0);
        step_clock += seconds;
        phases.end();
    };
    for (int step = 0; step < 2; ++step) {
        phases.begin_step();
        phases.begin("gemm", 1, 1);
        step_clock += 4;
        phases.end();
        exchange(Exchange::gather_weights, 1);
        exchange(Exchange::gather_tokens, 2);
        exchange(Exchange::reduce_gradients, 3);
        phases.begin_exchange(Exchange::wait_for_stage, 0);
        phases.begin("add", 0, 0);  // inside the exchange
        step_clock += 5;
        phases.end();
        phases.end();
        phases.end_step(20, 0.5);
    }
    phases.add_saving(6);
    CHECK(phases.steps() == 2);
    CHECK(phases.step_seconds() == 20);
    const PhaseTimes means = phases.means();
    CHECK(means[StepPhase::data] == 0.5);
    CHECK(means[StepPhase::along_dp] == 4);
    CHECK(means[StepPhase::along_tp] == 2);
    CHECK(means[StepPhase::along_pp] == 5);
    CHECK(means[StepPhase::saving] == 3);
    CHECK(means[StepPhase::compute] == 20 - 0.5 - 11);
    // a step that was not observed counts only for data and saving
    phases.end_step(20, 3.5);
    CHECK(phases.means()[StepPhase::data] == 1.5);
    CHECK(phases.means()[StepPhase::along_dp] == 4);
    phases.restart();
    phases.end_step(20, 1);
    CHECK(phases.means()[StepPhase::data] == 1);
    CHECK(std::isnan(phases.means()[StepPhase::compute]));
}
