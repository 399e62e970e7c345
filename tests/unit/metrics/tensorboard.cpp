// SPDX-License-Identifier: Apache-2.0
// Event files as a reader of the formats sees them: framing, checksums, messages, restarts.
#include "coeus/metrics/tensorboard.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/event_file.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

std::map<std::string, double> as_map(const std::vector<Scalar>& scalars) {
    std::map<std::string, double> map;
    for (const Scalar& scalar : scalars) map[scalar.key] = scalar.value;
    CHECK(map.size() == scalars.size());
    return map;
}

}  // namespace

TEST_CASE("tensorboard: masked CRC-32C of known texts") {
    // the check value of the algorithm is 0xE3069283; masked as TFRecord does
    constexpr uint32_t check = 0xE3069283u;
    CHECK(masked_crc32c("123456789") == (check >> 15 | check << 17) + 0xa282ead8u);
    CHECK(masked_crc32c("") == 0xa282ead8u);
}

TEST_CASE("tensorboard: torchtitan's keys") {
    StepMetrics m = {.step = 7,
                     .loss = 3.5,
                     .loss_max = 3.75,
                     .grad_norm = 1.25,
                     .lr = 3e-4,
                     .tokens_seen = 28672,
                     .tps = 1234,
                     .tflops = 0.5,
                     .mfu = 37.5,
                     .memory_gib = 1.25,
                     .memory_percent = 5,
                     .step_s = 0.5,
                     .data_s = 0.125};
    const std::map<std::string, double> expected = {{"loss_metrics/global_avg_loss", 3.5},
                                                    {"loss_metrics/global_max_loss", 3.75},
                                                    {"grad_norm", 1.25},
                                                    {"lr", 3e-4},
                                                    {"n_tokens_seen", 28672},
                                                    {"throughput(tps)", 1234},
                                                    {"tflops", 0.5},
                                                    {"mfu(%)", 37.5},
                                                    {"time_metrics/end_to_end(s)", 0.5},
                                                    {"time_metrics/data_loading(s)", 0.125},
                                                    {"time_metrics/data_loading(%)", 25},
                                                    {"memory/max_active(GiB)", 1.25},
                                                    {"memory/max_active(%)", 5},
                                                    {"memory/max_reserved(GiB)", 1.25},
                                                    {"memory/max_reserved(%)", 5}};
    CHECK(as_map(tensorboard_scalars(m)) == expected);
    m.mfu.reset();
    CHECK(as_map(tensorboard_scalars(m)).count("mfu(%)") == 0);
    const ValidationMetrics v = {.step = 7, .loss = 3.25, .tps = 99, .memory_gib = 1, .memory_percent = 2};
    CHECK(as_map(tensorboard_scalars(v)) ==
          std::map<std::string, double>{{"validation_metrics/loss", 3.25},
                                        {"validation_metrics/throughput(tps)", 99},
                                        {"validation_metrics/memory/max_active(GiB)", 1},
                                        {"validation_metrics/memory/max_active(%)", 2},
                                        {"validation_metrics/memory/max_reserved(GiB)", 1},
                                        {"validation_metrics/memory/max_reserved(%)", 2}});
}

TEST_CASE("tensorboard: written events are read back") {
    const TemporaryFolder folder;
    const double before = seconds_since_1970();
    TensorBoardFile file(folder / "a/tb", 0);
    file.write(1, {{"loss", 0.1}, {"a key of more than 127 bytes " + std::string(200, 'x'), -1e30}});
    file.write(int64_t(1) << 40, {{"loss", std::nan("")}});
    file.write(300, {});
    CHECK(file.path().filename().string().starts_with("events.out.tfevents."));
    const std::vector<BoardEvent> events =
        read_events(file.path());  // while the file is open: nothing may wait in a buffer
    REQUIRE(events.size() == 5);
    CHECK(events[0].file_version == "brain.Event:2");
    CHECK(events[1].session_status == 1);
    CHECK(events[1].step == 1);
    CHECK(events[2].step == 1);
    CHECK(events[2].scalars.at("loss") == 0.1f);
    CHECK(events[2].scalars.at("a key of more than 127 bytes " + std::string(200, 'x')) == -1e30f);
    CHECK(events[3].step == int64_t(1) << 40);
    CHECK(std::isnan(events[3].scalars.at("loss")));
    CHECK(events[4].scalars.empty());
    for (const BoardEvent& event : events) CHECK(event.wall_time >= before);
    CHECK(events[4].wall_time <= seconds_since_1970());
}

TEST_CASE("tensorboard: a restart withdraws the steps after the one it resumes from") {
    const TemporaryFolder folder;
    const auto run = [&](int64_t resumed, int64_t last, double value) {
        TensorBoardFile file(folder.path(), resumed);
        for (int64_t step = resumed + 1; step <= last; ++step) file.write(step, {{"loss", value}});
    };
    // three starts within a second; the files' names sort in their order
    run(0, 4, 1);
    run(2, 5, 2);
    run(3, 4, 3);
    CHECK(event_files(folder.path()).size() == 3);
    const std::map<int64_t, float> losses = shown_scalars(folder.path()).at("loss");
    CHECK(losses == std::map<int64_t, float>{{1, 1}, {2, 1}, {3, 2}, {4, 3}});
    // a file from a clock that was ahead
    write_file(folder / "events.out.tfevents.9000000000.host.1.0", "");
    const TensorBoardFile later(folder.path(), 0);
    CHECK(event_files(folder.path()).back() == later.path());
}

TEST_CASE("tensorboard: a folder that cannot be created is named") {
    const TemporaryFolder folder;
    write_file(folder / "file", "");
    CHECK_THROWS_AS(TensorBoardFile(folder / "file/tb", 0), SystemError);
    CHECK_THROWS_WITH(TensorBoardFile(folder / "file/tb", 0),
                      Contains("cannot create the folder") && Contains("file/tb: Not a directory"));
}
