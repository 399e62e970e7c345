// SPDX-License-Identifier: Apache-2.0
// The host's queue, which does its work immediately.
#include "coeus/device/exec.hpp"
#include "coeus/device/staged_ids.hpp"
#include "coeus/device/step_graph.hpp"
#include "coeus/device/timestamps.hpp"
#include "support/catch.hpp"

#include <array>

using namespace coeus;

TEST_CASE("the host's queue copies immediately, and has nothing to wait for") {
    Exec exec, other;
    REQUIRE(exec.queue);
    CHECK(exec.is_synchronous());
    const std::array<int, 3> from = {1, 2, 3};
    std::array<int, 3> to = {};
    exec.queue->copy(to.data(), from.data(), sizeof from);
    CHECK(to == from);
    exec.queue->copy(to.data(), to.data(), sizeof to);
    exec.queue->copy(to.data(), nullptr, 0);
    CHECK(to == from);
    exec.queue->wait_for(*other.queue, other.queue->mark());
    exec.queue->finish(exec.queue->mark());
    const auto event = host_device().make_event();
    exec.queue->wait_for(*event);
    event->record(*other.queue);
    exec.queue->wait_for(*event);
    CHECK(event->passed());
    exec.queue->finish();
    exec.queue->enter_thread();
    CHECK_FALSE(exec.queue->is_recording());
    CHECK(exec.queue->native() == nullptr);
    CHECK(Timestamps(exec).computation() == nullptr);  // its times are those of the host
}

TEST_CASE("the host's queue has no graphs") {
    Exec exec;
    CHECK_THROWS_WITH(exec.queue->begin_recording(), Catch::Contains("the host's queue records no graphs"));
    CHECK_THROWS_WITH(exec.queue->end_recording(), Catch::Contains("the host's queue records no graphs"));
    CHECK_THROWS_WITH(exec.queue->give(Graph()), Catch::Contains("the host's queue takes no graphs"));
    StepGraph step("calls");
    int calls = 0;
    step.give(exec, [&] { ++calls; });
    CHECK(calls == 1);  // once, without a graph
    CHECK_THROWS_WITH(step.give(exec, [&] { ++calls; }),
                      Catch::Contains("the host's queue records no graphs"));
}

TEST_CASE("staged ids: on the host, kernels read them in place") {
    Exec exec;
    const StagedIds ids(host_device(), 4, "ids", 2);
    ids.host(1)[0] = 7;
    const Tensor brought = ids.brought(exec, 3, 1);
    CHECK(brought.count() == 3);
    CHECK(brought.data == ids.host(1));
    CHECK(brought.as<const int32_t>()[0] == 7);
}
