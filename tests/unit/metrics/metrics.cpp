// SPDX-License-Identifier: Apache-2.0
// Lines of the terminal and of metrics.jsonl, the file after a resume, and rates.
#include "coeus/metrics/metrics.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/json.hpp"
#include "coeus/metrics/tensorboard.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <regex>

using namespace coeus;
using namespace coeus::test;

namespace {

StepMetrics some_step() {
    return {.step = 7,
            .loss = 8.051123456789012,
            .loss_max = 8.25,
            .grad_norm = 1.25,
            .lr = 3e-4,
            .tokens_seen = 28672,
            .epoch = 1.75,
            .tps = 12345.6,
            .tflops = 0.128,
            .mfu = 37.5,
            .memory_gib = 1.25,
            .memory_percent = 5.125,
            .resident_gib = 1.125,
            .step_s = 0.5,
            .data_s = 0.125,
            .eta_s = 187};
}

std::string line_of(int64_t step) {
    return fmt::format("{{\"step\":{}}}", step);
}

}  // namespace

TEST_CASE("metrics: the terminal's line") {
    StepMetrics m = some_step();
    CHECK(console_line(m, false) ==
          "step:  7  loss:  8.05112  grad_norm:  1.2500  lr: 3.00e-04  memory:  1.25GiB(5.12%)  tps: "
          "12,346  tflops: 0.13  mfu: 37.50%  eta: 3 m 07 s");
    m.steps = 200;
    CHECK(console_line(m, false).ends_with("  eta: 3 m 07 s (7/200)"));
    m.steps = 0;
    m.mfu.reset();
    m.step = 12345;
    CHECK(console_line(m, false).starts_with("step: 12345  loss: "));
    CHECK(console_line(m, false).find("  mfu: N/A  ") != std::string::npos);
    const ValidationMetrics v = {.step = 100,
                                 .loss = 4.19994,
                                 .tokens = 5,
                                 .seconds = 1,
                                 .tps = 999.5,
                                 .memory_gib = 12.5,
                                 .memory_percent = 50};
    CHECK(console_line(v, false) ==
          "validate step: 100  loss:  4.1999  memory: 12.50GiB(50.00%)  tps: 1,000");
}

TEST_CASE("metrics: colours change only the colour") {
    const std::regex code("\033\\[\\d+m");
    const std::string plain = console_line(some_step(), false), colored = console_line(some_step(), true);
    CHECK(colored != plain);
    CHECK(std::regex_replace(colored, code, "") == plain);
    CHECK(colored.starts_with("\033[31mstep:  7\033[0m  \033[32mloss:"));
    CHECK(std::regex_replace(console_line(ValidationMetrics{}, true), code, "") ==
          console_line(ValidationMetrics{}, false));
}

TEST_CASE("metrics: the JSON line keeps every digit") {
    StepMetrics m = some_step();
    const JsonDocument document = JsonDocument::parse(json_line(m), "line");
    const JsonView line = document.root();
    CHECK(line.integer("step") == 7);
    CHECK(line.number("loss") == m.loss);
    CHECK(line.number("loss_max") == m.loss_max);
    CHECK(line.number("grad_norm") == m.grad_norm);
    CHECK(line.number("lr") == m.lr);
    CHECK(line.integer("tokens_seen") == m.tokens_seen);
    CHECK(line.number("epoch") == 1.75);
    CHECK(line.number("tps") == m.tps);
    CHECK(line.number("tflops") == m.tflops);
    CHECK(line.number("mfu") == 37.5);
    CHECK(line.number("memory_gib") == 1.25);
    CHECK(line.number("resident_gib") == 1.125);
    CHECK(line.number("step_s") == 0.5);
    CHECK(line.number("data_s") == 0.125);
    CHECK(line.number("data_percent") == 25);
    CHECK(line.number("eta_s") == 187);
    CHECK(json_line(m).find('\n') == std::string::npos);
    m.mfu.reset();
    m.step_s = 0;
    const JsonDocument unknown = JsonDocument::parse(json_line(m), "line");
    CHECK(unknown.root()["mfu"].is_null());
    CHECK(unknown.root().number("data_percent") == 0);
    const ValidationMetrics v = {.step = 9, .loss = 1.0 / 3, .tokens = 4096, .seconds = 2, .tps = 2048};
    const JsonDocument validation = JsonDocument::parse(json_line(v), "line");
    CHECK(validation.root().number("validation_loss") == 1.0 / 3);
    CHECK(validation.root().integer("validation_tokens") == 4096);
    CHECK_FALSE(validation.root().contains("loss"));
}

TEST_CASE("metrics: a line has the time, and the seconds of the run, to the millisecond") {
    CHECK(with_times(line_of(3), 1764515181.12345, 86400.0456) ==
          "{\"step\":3,\"time\":1764515181.123,\"run_s\":86400.046}");
    const JsonDocument line = JsonDocument::parse(with_times(json_line(some_step()), 1.5e9, 0.5), "line");
    CHECK(line.root().number("time") == 1.5e9);
    CHECK(line.root().number("run_s") == 0.5);
    CHECK(line.root().number("eta_s") == 187);
    CHECK_THROWS_AS(with_times("{}", 0, 0), LogicError);
}

TEST_CASE("metrics: a validation shows the loss of each source") {
    const ValidationMetrics v = {
        .step = 9, .loss = 3, .tokens = 12, .sources = {{"web", 2.5, 12}, {"code_loss", std::nan(""), 0}}};
    CHECK_THAT(console_line(v, false), Catch::EndsWith("  web: 2.5000  code_loss: no labels"));
    const JsonDocument line = JsonDocument::parse(json_line(v), "line");
    CHECK(line.root().number("validation_loss/web") == 2.5);
    CHECK(line.root().integer("validation_tokens/web") == 12);
    CHECK(line.root()["validation_loss/code_loss"].is_null());
    CHECK(line.root().integer("validation_tokens/code_loss") == 0);
    CHECK_FALSE(is_part_of_loss("validation_loss/code_loss"));
    const std::vector<Scalar> scalars = tensorboard_scalars(v);
    CHECK(std::ranges::count(scalars, "validation_metrics/loss/web", &Scalar::key) == 1);
    CHECK(std::ranges::count(scalars, "validation_metrics/loss/code_loss", &Scalar::key) == 0);
}

TEST_CASE("metrics: a GPU's values are written only if they are known") {
    StepMetrics m = some_step();
    const std::string without = console_line(m, false);
    CHECK(without.find("gpu") == std::string::npos);
    CHECK(json_line(m).find("gpu") == std::string::npos);
    const size_t scalars = tensorboard_scalars(m).size();
    m.gpu_memory_gib = 30.25;
    m.gpu_power_w = 650.5;
    m.gpu_clock_mhz = 1755;
    m.gpu_temperature_c = 61;
    m.gpu_throttle = "power cap";
    CHECK(console_line(m, false) == without + "  gpu: 30.25GiB 650W 1755MHz 61C power cap");
    const JsonDocument line = JsonDocument::parse(json_line(m), "line");
    CHECK(line.root().number("gpu_memory_gib") == 30.25);
    CHECK(line.root().number("gpu_power_w") == 650.5);
    CHECK(line.root().number("gpu_clock_mhz") == 1755);
    CHECK(line.root().number("gpu_temperature_c") == 61);
    CHECK(line.root().string("gpu_throttle", "") == "power cap");
    REQUIRE(tensorboard_scalars(m).size() == scalars + 5);
    CHECK(tensorboard_scalars(m).back().key == "gpu/throttled");
    CHECK(tensorboard_scalars(m).back().value == 1);
    m.gpu_throttle = "";
    CHECK(tensorboard_scalars(m).back().value == 0);
    m.gpu_power_w.reset();
    CHECK(console_line(m, false) == without + "  gpu: 30.25GiB 1755MHz 61C");
    CHECK(json_line(m).find("gpu_power_w") == std::string::npos);
}

TEST_CASE("metrics: loads of experts, and of the ranks that divide them") {
    CHECK_FALSE(expert_loads({}, 4, 2).has_value());
    // the ranks cannot divide what is counted
    const std::vector<int64_t> counts = {1, 2, 3, 4};
    CHECK_THROWS_AS(expert_loads(counts, 2, 4), LogicError);
    CHECK_THROWS_AS(expert_loads(counts, 3, 1), LogicError);
    // two layers with the means 6 and 2
    const std::vector<int64_t> loads = {0, 9, 12, 3, 4, 2, 2, 0};
    const ExpertLoads whole = expert_loads(loads, 4, 1).value();
    CHECK(whole.max == 2);
    CHECK(whole.min == 0);
    CHECK(whole.idle == 2);
    CHECK_FALSE(whole.rank_max.has_value());
    // 9 and 15 rows, 6 and 2
    CHECK(expert_loads(loads, 4, 2)->rank_max == 1.5);
    CHECK(expert_loads(loads, 4, 4)->rank_max == 2);

    StepMetrics m = some_step();
    const std::string without = console_line(m, false);
    CHECK(json_line(m).find("moe") == std::string::npos);
    const size_t scalars = tensorboard_scalars(m).size();
    m.experts = whole;
    CHECK(console_line(m, false) == without + "  expert load: 0.00 to 2.00");
    CHECK(json_line(m).find("rank_load") == std::string::npos);
    CHECK(tensorboard_scalars(m).size() == scalars + 3);
    m.experts->rank_max = 1.5;
    m.extra_rounds = 0;
    CHECK(console_line(m, false) == without + "  expert load: 0.00 to 2.00");
    m.extra_rounds = 7;
    m.steps_computed_twice = 2;
    CHECK(console_line(m, false) == without + "  expert load: 0.00 to 2.00  extra rounds: 7");
    const JsonDocument line = JsonDocument::parse(json_line(m), "line");
    CHECK(line.root().number("moe_rank_load_max") == 1.5);
    CHECK(line.root().integer("moe_extra_rounds") == 7);
    CHECK(line.root().integer("moe_steps_computed_twice") == 2);
    const std::vector<Scalar> all = tensorboard_scalars(m);
    CHECK(all.size() == scalars + 6);
    CHECK(std::ranges::count(all, std::string("moe/extra_rounds"), &Scalar::key) == 1);
    CHECK(std::ranges::count(all, std::string("moe/steps_computed_twice"), &Scalar::key) == 1);
}

TEST_CASE("metrics: the loss that balances sequences is written only if there is one") {
    StepMetrics m = some_step();
    const std::string without = console_line(m, false);
    CHECK(json_line(m).find("balance") == std::string::npos);
    const size_t scalars = tensorboard_scalars(m).size();
    m.losses = {{"moe", "sequence_balance_loss", 1.0 / 3000}};
    CHECK(console_line(m, false) == without + "  sequence balance loss: 0.00033");
    const JsonDocument line = JsonDocument::parse(json_line(m), "line");
    CHECK(line.root().number("moe_sequence_balance_loss") == 1.0 / 3000);
    const std::vector<Scalar> all = tensorboard_scalars(m);
    CHECK(all.size() == scalars + 1);
    CHECK(std::ranges::count(all, std::string("moe/sequence_balance_loss"), &Scalar::key) == 1);
}

TEST_CASE("metrics: the loss of multi-token prediction is written only if there is one") {
    StepMetrics m = some_step();
    const std::string without = console_line(m, false);
    CHECK(json_line(m).find("mtp") == std::string::npos);
    const size_t scalars = tensorboard_scalars(m).size();
    m.losses = {{"", "mtp_loss", 2.0 / 3}};
    CHECK(console_line(m, false) == without + "  mtp loss: 0.66667");
    CHECK(JsonDocument::parse(json_line(m), "line").root().number("mtp_loss") == 2.0 / 3);
    const std::vector<Scalar> all = tensorboard_scalars(m);
    CHECK(all.size() == scalars + 1);
    CHECK(std::ranges::count(all, std::string("loss_metrics/mtp_loss"), &Scalar::key) == 1);
}

TEST_CASE("metrics: a resumed run's file has each step once") {
    const TemporaryFolder folder;
    const auto path = folder / "metrics.jsonl";
    {
        MetricsFile file(path, {});
        for (int64_t step : {1, 2, 3, 4}) file.write(line_of(step));
        CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");  // immediately
    }
    write_file(path, read_file(path) + "{\"step\":5,\"lo");
    {
        MetricsFile file(path, {.step = 2});
        CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n");
        file.write(line_of(3));
    }
    CHECK(read_file(path) == "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
    // an incomplete last line is dropped, even if the run resumes after it
    write_file(path, "{\"step\":1}\nnonsense\n{\"loss\":1}\n{\"step\":2");
    { const MetricsFile file(path, {.step = 100}); }
    CHECK(read_file(path) == "{\"step\":1}\n");
    { const MetricsFile file(path, {}); }
    CHECK(read_file(path).empty());
    CHECK_FALSE(std::filesystem::exists(folder / "metrics.jsonl.part"));
    CHECK_THROWS_AS(MetricsFile(folder / "absent/metrics.jsonl", {}), SystemError);
    // it may have all lines; root can read every file, except this one
    const auto loop = folder / "loop.jsonl";
    std::filesystem::create_symlink(loop, loop);
    CHECK_THROWS_WITH(
        MetricsFile(loop, {}),
        Catch::Contains("loop.jsonl cannot be read: Too many levels of symbolic links; it was not changed. "
                        "Make it readable, or move it away"));
    CHECK(std::filesystem::is_symlink(loop));
    CHECK_FALSE(std::filesystem::exists(folder / "loop.jsonl.part"));
    CHECK_THROWS_WITH(MetricsFile(folder / "absent/metrics.jsonl", {}),
                      Catch::Contains("absent/metrics.jsonl: No such file or directory"));
}

TEST_CASE("metrics: a return keeps events after its step, and repeats a validation that was interrupted") {
    const TemporaryFolder folder;
    const auto path = folder / "metrics.jsonl";
    const std::string steps = "{\"step\":1}\n{\"step\":2}\n",
                      validation =
                          "{\"step\":2,\"validation_loss\":3}\n"
                          "{\"step\":2,\"task\":\"a\",\"acc\":0.5}\n"
                          "{\"step\":2,\"prompt\":\"a\",\"text\":\"b\"}\n",
                      first = "{\"step\":3,\"event\":\"loss_spike\",\"event_number\":1}\n",
                      second = "{\"step\":3,\"event\":\"loss_spike\",\"event_number\":2}\n";
    const auto kept = [&](const MetricsFile::Past& past) {
        write_file(path, steps + validation + first + "{\"step\":3}\n" + second);
        const MetricsFile file(path, past);
        return read_file(path);
    };
    CHECK(kept({.step = 2}) == steps + validation);
    CHECK(kept({.step = 2, .events = 1}) == steps + validation + first);
    CHECK(kept({.step = 2, .events = 2}) == steps + validation + first + second);
    CHECK(kept({.step = 2, .events = 1, .validation_is_left = true}) == steps + first);
    CHECK(kept({.step = 3, .events = 2, .validation_is_left = true}) ==
          steps + validation + first + "{\"step\":3}\n" + second);
}

TEST_CASE("metrics: rates are means since the last line") {
    StepClock clock;
    clock.add(0.5, 0.25);
    clock.add(1.5, 0.25);
    StepMetrics m;
    clock.finish(m, 1000, 2e9, 4e12, 30);
    CHECK(m.step_s == 1);
    CHECK(m.data_s == 0.25);
    CHECK(m.tps == 1000);
    CHECK(m.tflops == 2);
    CHECK(m.mfu.value() == 50);
    CHECK(m.eta_s == 30);
    clock.add(0.25, 0);
    StepMetrics next;
    clock.finish(next, 1000, 2e9, std::nullopt, 0);
    CHECK(next.step_s == 0.25);
    CHECK(next.data_s == 0);
    CHECK(next.tps == 4000);
    CHECK_FALSE(next.mfu.has_value());
    CHECK(next.eta_s == 0);
    for (const auto& [peak, known] : {std::pair(8e12, true), {7.9e12, false}}) {
        clock.add(0.25, 0);
        StepMetrics fast;
        clock.finish(fast, 1000, 2e9, peak, 0);
        CHECK(fast.tflops == 8);
        CHECK(fast.mfu.has_value() == known);
    }
}
