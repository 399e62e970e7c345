// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/tracer.hpp"

#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <thread>

using namespace coeus;
using namespace coeus::test;

namespace {

double now_seconds = 0;
double tracer_clock() {
    return now_seconds;
}

// A step: an action from 0 to 6; in it a kernel from 0 to 4, a gather on another thread from 1 to 6, the wait
// for it from 4 to 6; then a collective of the computing thread from 6 to 7.
void trace_a_step(Tracer& tracer) {
    static const std::string fsdp = "dp_shard", tp = "tp";
    const auto where = std::source_location::current();
    now_seconds = 0;
    tracer.begin_action(Action{ActionKind::backward_input, 2, 5});
    tracer.begin("gemm", 2e9, 1e6);
    int64_t gather = 0;
    std::thread([&] {
        now_seconds = 1;
        gather = tracer.begin(fsdp, "all_gather", 5000, where, nullptr);
    }).join();
    now_seconds = 4;
    tracer.end();
    tracer.begin_exchange(Exchange::gather_weights, 0);
    now_seconds = 6;
    std::thread([&] { tracer.end(gather); }).join();
    tracer.end();
    tracer.end_action();
    const int64_t sum = tracer.begin(tp, "all_reduce", 100, where, nullptr);
    now_seconds = 7;
    tracer.end(sum);
}

}  // namespace

TEST_CASE("tracer: events with thread, kind, time, axis, bytes and call site") {
    const TemporaryFolder folder;
    Tracer tracer(3, 16, tracer_clock);
    trace_a_step(tracer);
    tracer.write(folder / "trace.json");
    const JsonDocument document = JsonDocument::read(folder / "trace.json");
    std::vector<std::string> lines, tracks;
    for (const JsonView& event : document.root()["traceEvents"].elements()) {
        CHECK(event.integer("pid") == 3);
        if (event.string("name") == "thread_name") tracks.push_back(event["args"].string("name"));
        if (event.string("ph") != "X") continue;
        lines.push_back(fmt::format("{} {} track {} {}+{}", event.string("cat"), event.string("name"),
                                    event.integer("tid"), event.number("ts") / 1e6,
                                    event.number("dur") / 1e6));
        if (event.string("cat") != "communication") continue;
        CHECK(event["args"].integer("bytes") > 0);
        CHECK_THAT(event["args"].string("call_site"), Catch::Contains("tracer.cpp:"));
    }
    CHECK(lines == std::vector<std::string>{"action I stage 2 micro_batch 5 track 0 0+6",
                                            "kernel gemm track 1 0+4", "communication all_gather track 2 1+5",
                                            "wait gather_weights track 1 4+2",
                                            "communication all_reduce track 1 6+1"});
    CHECK(tracks == std::vector<std::string>{"pipeline actions", "compute", "dp_shard"});
}

TEST_CASE("tracer: the time that the computing thread waits is exposed, the rest is hidden") {
    Tracer tracer(0, 16, tracer_clock);
    CHECK_THAT(tracer.overlap(), Catch::Contains("no communication"));
    trace_a_step(tracer);
    const std::vector<std::string> lines = lines_of(tracer.overlap());
    REQUIRE(lines.size() == 3);
    // 5 s, of which the computing thread waits 2; plus 1 s on that thread itself
    CHECK(lines[1] ==
          "dp_shard                                       1    4.88 KiB    5000.00    3000.00     2000.00    "
          " 0.00");
    CHECK(lines[2] ==
          "tp                                             1       100 B    1000.00       0.00     1000.00    "
          " 0.00");
    tracer.clear();
    CHECK_THAT(tracer.overlap(), Catch::Contains("no communication"));
}

TEST_CASE("tracer: events without room are counted") {
    const TemporaryFolder folder;
    Tracer tracer(0, 3, tracer_clock);
    trace_a_step(tracer);
    tracer.write(folder / "trace.json");
    const JsonDocument document = JsonDocument::read(folder / "trace.json");
    CHECK(document.root()["otherData"].integer("events_without_room") == 2);
    CHECK_THROWS_WITH(tracer.write(folder / "absent" / "trace.json"), Catch::Contains("cannot be written"));
}
