// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/flight_recorder.hpp"

#include "coeus/base/call_stack.hpp"
#include "support/catch.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>

using namespace coeus;

namespace {

FlightRecorder& recorder() {
    return FlightRecorder::own();
}

std::vector<Operation> named(const std::string& name, const FlightRecorder& of = recorder()) {
    std::vector<Operation> all = of.operations();
    std::erase_if(all, [&](const Operation& operation) { return name != operation.name.data(); });
    return all;
}

class Leaves : public OperationFault {
public:
    bool leaves_out(const char* operation, OperationKind) override {
        return std::string(operation) == "left";
    }
    void entered(const char* operation, OperationKind) override { last = operation; }
    std::string last;
};

}  // namespace

TEST_CASE("flight recorder: an operation is under way until its scope ends, and stays in the ring") {
    const FlightRecorder::Line line("dp_shard", 17, 2, 4);
    {
        const Recorded recorded(line, OperationKind::collective, "first gather", 96,
                                std::source_location::current());
        const std::vector<Operation> found = named("first gather");
        REQUIRE(found.size() == 1);
        CHECK(found[0].under_way());
        CHECK(found[0].bytes == 96);
        CHECK(found[0].sequence == 1);
        CHECK(found[0].thread == getpid());
        CHECK(std::string(found[0].place.data()).ends_with("base/flight_recorder.cpp"));
    }
    const std::vector<Operation> found = named("first gather");
    REQUIRE(found.size() == 1);
    CHECK(found[0].ended >= found[0].began);
    const OperationLine is = recorder().lines().at(size_t(found[0].line));
    CHECK(is.name.data() == std::string("dp_shard"));
    CHECK(is.id == line.id());
    CHECK(is.rank == 2);
    CHECK(is.size == 4);
    CHECK(is.collectives == 1);
    CHECK(is.messages == 0);
}

TEST_CASE("flight recorder: messages and collectives of a line are counted separately") {
    const FlightRecorder::Line line("pp", 18, 0, 2);
    const auto here = std::source_location::current();
    for (int i = 0; i < 3; ++i) {
        const Recorded message(line, OperationKind::message, "counted send", 1, here, 1);
        const Recorded collective(line, OperationKind::patient, "counted barrier", 0, here);
    }
    CHECK(named("counted send").back().sequence == 3);
    CHECK(named("counted send").back().peer == 1);
    CHECK(named("counted barrier").back().sequence == 3);
}

TEST_CASE(
    "flight recorder: an operation given to a GPU is reached later, and a skipped one uses up its number") {
    const FlightRecorder::Line line("dp by NCCL", 19, 0, 2);
    const int entry = recorder().begin(&line, OperationKind::queued, "given", 8, "");
    CHECK_FALSE(named("given").back().reached);
    recorder().reach(entry);
    CHECK(named("given").back().reached);
    recorder().pass_over(line);
    const int later = recorder().begin(&line, OperationKind::queued, "given later", 8, "");
    CHECK(named("given later").back().sequence == 3);
    CHECK_FALSE(named("given later").back().reached);
    for (const int ended : {entry, later}) recorder().end(ended);
}

TEST_CASE("flight recorder: an operation under way stays while others reuse the entries around it") {
    const Recorded waiting(OperationKind::data, "a long wait for data", std::source_location::current());
    std::vector<std::thread> threads;
    for (int number = 0; number < 3; ++number)
        threads.emplace_back([] {
            for (int i = 0; i < 2 * FlightRecorder::remembered; ++i) const Recorded write("short", 8, "file");
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(recorder().operations().size() == FlightRecorder::remembered);
    CHECK(std::ranges::none_of(named("short"), &Operation::under_way));
    const std::vector<Operation> found = named("a long wait for data");
    REQUIRE(found.size() == 1);
    CHECK(found[0].under_way());
}

TEST_CASE("flight recorder: if all entries are under way, an operation is not recorded") {
    std::vector<int> entries;
    for (int i = 0; i < FlightRecorder::remembered; ++i)
        entries.push_back(recorder().begin(nullptr, OperationKind::file, "full", 0, ""));
    CHECK(recorder().begin(nullptr, OperationKind::file, "full", 0, "") == -1);
    recorder().end(-1);
    for (const int entry : entries) recorder().end(entry);
    const Recorded after("after full", 0, "");
    CHECK(named("after full").size() == 1);
}

TEST_CASE("flight recorder: another process of the host sees it") {
    const Recorded recorded("seen from outside", 20 << 20,
                            "/a/long/path/" + std::string(100, 'x') + "/file.h5");
    const auto other = FlightRecorder::of(getpid(), recorder().descriptor());
    REQUIRE(other);
    const std::vector<Operation> found = named("seen from outside", *other);
    REQUIRE(found.size() == 1);
    CHECK(found[0].under_way());
    CHECK(found[0].allowance == 2);
    CHECK(std::string(found[0].place.data()).ends_with("xxx/file.h5"));
    other->notes().event = 7;
    CHECK(recorder().notes().event == 7);
    recorder().notes().event = 0;
    CHECK_FALSE(FlightRecorder::of(getpid(), 0));
    CHECK_FALSE(FlightRecorder::of(getpid(), -1));
}

TEST_CASE(
    "flight recorder: lines made in the same order have the same number on all ranks, and each number is "
    "unique") {
    const FlightRecorder::Line first("tp", 5, 0, 2), second("tp", 5, 0, 2), other("tp", 6, 0, 2);
    CHECK(first.id() != second.id());
    CHECK(first.id() != other.id());
}

TEST_CASE("flight recorder: a fault intercepts an operation before its work") {
    Leaves fault;
    recorder().set_fault(&fault);
    const Recorded left("left", 0, ""), done("done", 0, "");
    recorder().set_fault(nullptr);
    CHECK(left.left_out());
    CHECK_FALSE(done.left_out());
    CHECK(fault.last == "done");
    CHECK(named("left").empty());
}

TEST_CASE("call stack: names the libraries, and the functions that are exported") {
    CallStack stack;
    stack.capture();
    const std::vector<CallStack::Call> calls = stack.calls();
    REQUIRE(calls.size() > 3);
    // a sanitizer's own call of backtrace() comes first
    CHECK((calls[0].object == "test_base" || calls[1].object == "test_base"));
    CHECK(std::ranges::any_of(calls, [](const CallStack::Call& call) {
        return call.function == "__libc_start_main" && call.object.starts_with("libc.so");
    }));
    CHECK(CallStack::Call{"coeus::run", "coeus", 5}.text() == "coeus::run in coeus");
    CHECK(CallStack::Call{"", "coeus", 0x1f}.text() == "coeus +0x1f");
}
