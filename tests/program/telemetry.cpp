// SPDX-License-Identifier: Apache-2.0
// A run without room for its metrics, traces and the like trains to its end and reports the losses.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/event_file.hpp"
#include "support/paths.hpp"

#include <iterator>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// The count of a "12 lines of FILE are lost" message; 0 if there is none.
int64_t said_lost(const std::string& thing, const std::string& file, const std::string& output) {
    std::smatch found;
    const std::regex line("warning - (\\d+) " + thing + "s? [a-z]+ [^:\n]*" + file + "[^:\n]* lost: ");
    return std::regex_search(output, found, line) ? std::stoll(found[1]) : 0;
}

}  // namespace

TEST_CASE("telemetry: a run without room for it trains to its end and counts the losses") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5", out = folder / "out";
    write_token_file(data, {.tokens = learnable_tokens(30 * 17)});
    constexpr int64_t all = 80;
    // the limit on the size of files stands in for a full disk, as in checkpoint.cpp
    std::string command = "ulimit -f 16; PMIX_MCA_gds=hash UCX_TLS=self '" + paths::program() + "'";
    for (const std::string& word :
         tiny_run(out, data,
                  {steps(all), "--metrics.enable_tensorboard", "--profiling.enable_profiling",
                   "--profiling.profile_freq=40", "--profiling.profiler_warmup=0", "--quiet",
                   "--profiling.enable_memory_snapshot", "--profiling.memory_snapshot_freq=40"}))
        command += " '" + word + "'";
    const Outcome run = run_shell(command);
    INFO(run.output);
    CHECK(run.exit_code == 0);
    const auto warned = [&](const std::string& file) {
        const std::regex line("warning - [^\n]*" + file +
                              "[^\n]* cannot be written: File too large[^\n]*\\. Training continues; lost "
                              "records are counted\n");
        return std::distance(std::sregex_iterator(run.output.begin(), run.output.end(), line), {});
    };
    for (const char* file :
         {"metrics.jsonl", "tfevents", "rank0_trace.json", "memory_snapshot/step-00000040/rank_0.json"})
        CHECK(warned(file) == 1);
    // only whole lines and records
    const auto written = int64_t(read_metrics(out).steps.size());
    CHECK(written > 5);
    CHECK(written + said_lost("line", "metrics.jsonl", run.output) == all);
    const std::vector<BoardEvent> events = read_events(event_files(out / "tb").front());
    CHECK(int64_t(events.size()) - 2 + said_lost("record", "tfevents", run.output) == all);
    CHECK(said_lost("trace", "profile_traces", run.output) == 2);
    CHECK(said_lost("memory snapshot", "steps", run.output) == 2);
    CHECK_FALSE(fs::exists(out / "profile_traces/iteration_40/rank0_trace.json"));
    const Outcome report = run_coeus({"report", out.string()});
    CHECK(report.exit_code == 0);
}
