// SPDX-License-Identifier: Apache-2.0
// The conclusion from the states of all ranks, for states as in small and large runs.
#include "../../../src/watchdog/hang_report.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Kind = HangOccasion::Kind;
using Ranks = std::vector<int>;

namespace {

constexpr uint64_t data_ranks = 1, shards = 2;

// Ranks that have completed 6 collectives of the communicator of all ranks, and 20 of another.
std::vector<RankState> idle(int count) {
    std::vector<RankState> states(static_cast<size_t>(count));
    for (int rank = 0; rank < count; ++rank) {
        RankState& state = states[size_t(rank)];
        state.rank = rank;
        state.host = rank < count / 2 ? "n1" : "n2";
        state.pid = 100 + rank;
        state.lines = {{"dp", data_ranks, rank, count, 6}, {"fsdp", shards, rank, count, 20}};
        state.entries = {{.line = "dp",
                          .id = data_ranks,
                          .name = "all_reduce",
                          .place = "train/trainer.cpp:9",
                          .sequence = 6,
                          .bytes = 8,
                          .thread = state.pid,
                          .seconds = 3}};
    }
    return states;
}

RankState::Entry collective(const RankState& of, const char* name, uint64_t id, int64_t sequence) {
    return {.line = id == data_ranks ? "dp" : "fsdp",
            .id = id,
            .name = name,
            .place = "a.cpp:1",
            .sequence = sequence,
            .bytes = 8,
            .thread = of.pid,
            .under_way = true,
            .seconds = 2};
}

void enter(RankState& state, const char* name = "all_reduce", uint64_t id = data_ranks,
           int64_t sequence = 7) {
    for (RankState::Line& line : state.lines)
        if (line.id == id) line.collectives = sequence;
    state.entries.push_back(collective(state, name, id, sequence));
    state.stacks = {{.thread = state.pid, .in_mpi = true, .calls = {"MPI_Allreduce in libmpi.so"}}};
}

void at(RankState& state, OperationKind kind, const char* name) {
    state.entries.push_back(
        {.kind = kind, .name = name, .place = "b:2", .thread = state.pid, .under_way = true, .seconds = 2});
}

// All ranks but these are in the seventh collective.
std::vector<RankState> waiting_for(int count, const Ranks& others) {
    std::vector<RankState> states = idle(count);
    for (RankState& state : states)
        if (std::ranges::find(others, state.rank) == others.end()) enter(state);
    return states;
}

HangReport overdue(const std::vector<RankState>& states, int rank = 0) {
    return hang_report({Kind::overdue, rank, "Rank 0: too long."}, states);
}

}  // namespace

TEST_CASE("hang report: a rank that has not reached a collective") {
    const HangReport report = overdue(waiting_for(4, {2}));
    CHECK(report.cause == HangCause::computing);
    CHECK(report.ranks == Ranks{2});
    CHECK_THAT(report.text, Contains("Rank 0: too long."));
    CHECK_THAT(report.text, Contains("2 (n2)"));
    CHECK_THAT(report.text, Contains("0, 1, 3  all_reduce 7 of dp (8 B, a.cpp:1)"));
    CHECK_THAT(report.text, Contains("rank 2\n"));
    CHECK_THAT(report.text,
               Contains("its last operation, all_reduce 6 of dp (8 B, train/trainer.cpp:9), ended "
                        "3.0 s ago"));
}

TEST_CASE("hang report: delayed by data, or by a disk") {
    std::vector<RankState> states = waiting_for(3, {1});
    SECTION("data") {
        at(states[1], OperationKind::data, "wait for the next batch");
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::data);
        CHECK(report.ranks == Ranks{1});
    }
    SECTION("disk") {
        at(states[1], OperationKind::file, "write");
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::disk);
        CHECK(report.ranks == Ranks{1});
        CHECK_THAT(report.text, Contains("is held up by write (b:2): a slow, full or unreachable disk"));
    }
    SECTION("a disk in another thread") {
        states = idle(2);
        at(states[1], OperationKind::file, "write");
        states[1].entries.back().thread = 999;
        const HangReport report = overdue(states, 1);
        CHECK(report.cause == HangCause::disk);
        CHECK(report.ranks == Ranks{1});
    }
}

TEST_CASE("hang report: ranks that are dead, suspended, or do not answer") {
    std::vector<RankState> states = waiting_for(3, {1});
    SECTION("dead, after it reached the collective of the others") {
        enter(states[1]);
        states[1].condition = RankState::Condition::died;
        const HangReport report = hang_report({Kind::death, 0, "Rank 1 has died."}, states);
        CHECK(report.cause == HangCause::died);
        CHECK(report.ranks == Ranks{1});
        CHECK_THAT(report.text, Contains("died; was in all_reduce 7"));
    }
    SECTION("suspended") {
        states[1].condition = RankState::Condition::stopped;
        CHECK(overdue(states).cause == HangCause::stopped);
    }
    SECTION("no answer, and no state") {
        states[1] = {.rank = 1, .host = "n2", .condition = RankState::Condition::silent};
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::silent);
        CHECK(report.ranks == Ranks{1});
        CHECK_THAT(report.text, Contains("did not answer"));
        CHECK_THAT(report.text, Contains("2.0 s  rank 1"));
    }
    SECTION("crashed") {
        states[1].crash = "segmentation fault";
        CHECK(hang_report({Kind::crash, 1, ""}, states).cause == HangCause::crashed);
    }
    SECTION("an error") {
        states[1].error = "no such file";
        const HangReport report = hang_report({Kind::error, 1, ""}, states);
        CHECK(report.cause == HangCause::error);
        CHECK_THAT(report.text, Contains("failed: no such file"));
    }
}

TEST_CASE("hang report: ranks that do not agree on their operations") {
    SECTION("another operation with the same number") {
        std::vector<RankState> states = waiting_for(4, {3});
        enter(states[3], "all_gather");
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::order);
        CHECK(report.ranks == Ranks{3});
        CHECK_THAT(report.text,
                   Contains("rank 3 all_gather 7 of dp (8 B, a.cpp:1); ranks 0 - 2 all_reduce 7"));
    }
    SECTION("it continued with another communicator") {
        std::vector<RankState> states = waiting_for(4, {3});
        enter(states[3], "all_gather", shards, 21);
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::order);
        CHECK(report.ranks == Ranks{3});
    }
    SECTION("two ranks: both are named") {
        std::vector<RankState> states = waiting_for(2, {1});
        enter(states[1], "all_gather");
        CHECK(overdue(states).ranks == Ranks{0, 1});
    }
}

TEST_CASE("hang report: all ranks have reached a collective") {
    std::vector<RankState> states = waiting_for(3, {});
    SECTION("one is not in MPI") {
        states[2].stacks[0] = {.thread = states[2].pid, .calls = {"sleep in libc"}};
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::held_up);
        CHECK(report.ranks == Ranks{2});
        CHECK_THAT(report.text, Contains("Rank 2, its main thread:\n    sleep in libc"));
    }
    SECTION("all are") {
        CHECK(overdue(states).cause == HangCause::network);
    }
}

TEST_CASE("hang report: work that was given to GPUs") {
    const auto give = [](RankState& state, int64_t sequence, bool reached,
                         OperationKind kind = OperationKind::queued) {
        enter(state, "all_reduce", data_ranks, sequence);
        state.entries.back().kind = kind;
        state.entries.back().reached = reached;
        state.stacks[0].in_mpi = false;  // the host waits for the GPU
    };
    std::vector<RankState> states = idle(3);
    SECTION("one host gave its GPU nothing") {
        for (const int rank : {0, 1})
            for (const int64_t number : {7, 8, 9}) give(states[size_t(rank)], number, number == 7);
        CHECK(states[0].at()->sequence == 7);
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::computing);
        CHECK(report.ranks == Ranks{2});
    }
    SECTION("one GPU has not reached it") {
        for (RankState& state : states)
            for (const int64_t number : {7, 8}) give(state, number, number == 7 && state.rank != 1);
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::gpu);
        CHECK(report.ranks == Ranks{1});
        CHECK_THAT(report.text, Contains("the GPU of rank 1 (host n2, process 101) has not reached "
                                         "all_reduce 7 of dp"));
    }
    SECTION("the current one of two communicators is that whose operation has begun") {
        give(states[0], 7, false);
        enter(states[0], "all_gather", shards, 21);
        states[0].entries.back().kind = OperationKind::queued;
        CHECK(states[0].at()->sequence == 21);
        at(states[0], OperationKind::data, "wait for the next batch");
        CHECK(states[0].at()->kind == OperationKind::data);
    }
    SECTION("all run their step as a graph") {
        for (RankState& state : states) give(state, 7, true, OperationKind::graph);
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::graph);
        CHECK_THAT(report.text, Contains("training.disable_cuda_graphs = true"));
    }
    SECTION("all have begun it, and two of them share a GPU") {
        const std::string advice =
            ". Ranks share a GPU, which may lack room for the operations of all: set NCCL_MAX_CTAS = 2 or "
            "less, or "
            "start fewer ranks on it";
        for (RankState& state : states) {
            give(state, 7, true);
            state.gpu = "0000:0" + std::to_string(state.rank) + ":00.0";
        }
        CHECK_THAT(overdue(states).text, Contains("NCCL makes no progress") && !Contains(advice));
        states[2].gpu = states[1].gpu;
        CHECK(overdue(states).cause == HangCause::network);
        CHECK_THAT(overdue(states).text, !Contains(advice));  // rank 0 does not
        CHECK_THAT(overdue(states, 1).text, Contains("MPI or NCCL makes no progress" + advice));
        states[2].host = "n3";
        CHECK_THAT(overdue(states, 1).text, !Contains(advice));
        states[2].host = states[1].host;
        states[2].entries.back().reached = false;
        CHECK_THAT(overdue(states, 1).text,
                   Contains("has not reached all_reduce 7 of dp") && Contains(advice));
        for (RankState& state : states) {
            state.entries.back().kind = OperationKind::graph;
            state.entries.back().reached = true;
        }
        CHECK_THAT(overdue(states, 1).text, Contains("= true shows which" + advice));
        for (RankState& state : states) state.entries.back().kind = OperationKind::collective;
        CHECK_THAT(overdue(states, 1).text, !Contains(advice));
    }
    SECTION("one has not launched its graph") {
        for (const int rank : {0, 1}) give(states[size_t(rank)], 7, true, OperationKind::graph);
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::computing);
        CHECK(report.ranks == Ranks{2});
    }
    SECTION("a driver that does not answer") {
        states = waiting_for(3, {2});
        at(states[2], OperationKind::driver, "open_gpu");
        const HangReport report = overdue(states);
        CHECK(report.cause == HangCause::gpu);
        CHECK(report.ranks == Ranks{2});
        CHECK_THAT(report.text, Contains("is held up by open_gpu (b:2): a GPU or driver"));
    }
}

TEST_CASE("hang report: a missing answer does not hide the responsible rank") {
    std::vector<RankState> states = waiting_for(4, {1});
    at(states[1], OperationKind::data, "wait for the next batch");
    states[3] = {.rank = 3, .host = "n2", .condition = RankState::Condition::silent};
    const HangReport report = overdue(states);
    CHECK(report.cause == HangCause::data);
    CHECK(report.ranks == Ranks{1});
}

TEST_CASE("hang report: a chain of messages leads to the stage that is late") {
    std::vector<RankState> states = idle(3);
    const auto receive = [&](int rank, int from) {
        states[size_t(rank)].entries.push_back({.line = "dp",
                                                .id = data_ranks,
                                                .kind = OperationKind::message,
                                                .name = "receive",
                                                .peer = from,
                                                .thread = states[size_t(rank)].pid,
                                                .under_way = true,
                                                .seconds = 2});
    };
    receive(2, 1);
    receive(1, 0);
    const HangReport report = overdue(states, 2);
    CHECK(report.cause == HangCause::computing);
    CHECK(report.ranks == Ranks{0});
}

TEST_CASE("hang report: asked for by hand, it says that the run makes progress") {
    std::vector<RankState> states = waiting_for(3, {1});
    for (RankState& state : states)
        for (RankState::Entry& entry : state.entries) entry.seconds = 0.01;
    const HangReport report = hang_report({Kind::by_hand, 0, "Asked."}, states);
    CHECK(report.cause == HangCause::none);
    CHECK_THAT(report.text, Contains("Likely cause: none"));
}

TEST_CASE("hang report: for 4096 ranks it has a few lines") {
    const HangReport report = overdue(waiting_for(4096, {1234, 1235}));
    CHECK(report.ranks == Ranks{1234, 1235});
    CHECK_THAT(report.text, Contains("0 - 1233, 1236 - 4095"));
    CHECK(lines_of(report.text).size() < 8);
}

TEST_CASE("rank state: a written state is read back from its file") {
    std::vector<RankState> states = waiting_for(2, {});
    states[1].gpu = "0000:1b:00.0";
    states[1].lines[0].id = ~uint64_t(0);
    states[1].stacks[0].on_disk = true;
    states[1].error = "an \"error\"";
    const std::string text = json_of(states[1]).text();
    const RankState read = rank_state_of(JsonDocument::parse(text, "a record").root());
    CHECK(json_of(read).text() == text);
    CHECK(read.lines[0].id == ~uint64_t(0));
    CHECK(read.at()->text() == states[1].at()->text());
    CHECK(read.who() == "rank 1 (host n2, GPU 0000:1b:00.0, process 101)");
}

TEST_CASE("rank state: ranks in words") {
    CHECK(ranks_text({3}) == "3");
    CHECK(ranks_text({0, 1, 2, 5, 6, 9}) == "0 - 2, 5, 6, 9");
}
