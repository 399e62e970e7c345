// SPDX-License-Identifier: Apache-2.0
// expert_loads.jsonl: which steps are recorded, its lines, and what is read of complete and damaged files.
#include "coeus/metrics/load_history.hpp"

#include "coeus/metrics/metrics.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

std::vector<int64_t> recorded(int64_t log_freq, int64_t steps) {
    std::vector<int64_t> all;
    for (int64_t step = 1; step <= steps; ++step)
        if (records_loads(step, log_freq, steps)) all.push_back(step);
    return all;
}

LoadHistory history_of(const std::string& lines) {
    const TemporaryFolder folder;
    write_file(folder / "expert_loads.jsonl", lines);
    return read_load_history(folder / "expert_loads.jsonl");
}

}  // namespace

TEST_CASE("load history: the first, the last and every n-th logged step are recorded, about 500 in all") {
    CHECK(recorded(1, 3) == std::vector<int64_t>{1, 2, 3});
    CHECK(recorded(10, 35) == std::vector<int64_t>{1, 10, 20, 30, 35});
    CHECK(recorded(10, 5) == std::vector<int64_t>{1, 5});
    CHECK(recorded(1, 500).size() == 500);
    CHECK(recorded(1, 501).size() == 1 + 250 + 1);
    CHECK(recorded(10, 10'000) == recorded(20, 10'000));
    for (const int64_t log_freq : {1, 7, 10})
        for (const int64_t steps : {499, 5000, 5003, 99'991}) {
            const std::vector<int64_t> all = recorded(log_freq, steps);
            CAPTURE(log_freq, steps, all.size());
            CHECK(int64_t(all.size()) <= most_recorded_loads + 2);
            CHECK(all.front() == 1);
            CHECK(all.back() == steps);
            for (size_t i = 1; i + 1 < all.size(); ++i) CHECK(all[i] % log_freq == 0);
        }
}

TEST_CASE("load history: a line has each load in percent of the mean of its layer") {
    const int64_t layers[] = {1, 5}, loads[] = {0, 3, 1, 4, 9, 1, 1, 1};
    const std::string line = load_line(7, layers, loads);
    CHECK(line == R"({"step":7,"layers":{"1":[0,150,50,200],"5":[300,33,33,33]}})");
    const LoadHistory history = history_of(line + "\n" + load_line(8, layers, loads) + "\n");
    REQUIRE(history.size() == 2);
    CHECK(history.at(1).at(7) == std::vector<float>{0, 1.5F, 0.5F, 2});
    CHECK(history.at(5).at(8) == std::vector<float>{3, 0.33F, 0.33F, 0.33F});
    // a step without a token
    const int64_t none[] = {0, 0, 0, 0, 0, 0, 1, 1};
    CHECK(load_line(1, layers, none) == R"({"step":1,"layers":{"1":[0,0,0,0],"5":[0,0,200,200]}})");
    // more tokens than 32 bits count
    const int64_t many[] = {3'000'000'000'000, 1'000'000'000'000}, one[] = {0};
    CHECK(load_line(1, one, many) == R"({"step":1,"layers":{"0":[150,50]}})");
}

TEST_CASE("load history: of two lines for a step the later one counts, and incomplete lines are skipped") {
    const LoadHistory history = history_of(R"({"step":1,"layers":{"0":[100,100]}})"
                                           "\n"
                                           R"({"step":2,"layers":{"0":[50,150]}})"
                                           "\n{\"step\":3,\"layers\":{\"0\":[1\n\n[]\n{}\n"
                                           R"({"step":2,"layers":{"0":[200,0]}})"
                                           "\n{\"step\":4,\"layers\":{\"0\":[100,100]");
    const LayerLoads expected = {{1, {1, 1}}, {2, {2, 0}}};
    CHECK(history == LoadHistory{{0, expected}});
    CHECK(read_load_history("/absent/expert_loads.jsonl").empty());
    CHECK(history_of("").empty());
}

TEST_CASE("load history: values that are not loads are skipped") {
    const std::string good = R"({"step":1,"layers":{"0":[100,100]}})"
                             "\n";
    const LoadHistory expected = {{0, {{1, {1, 1}}}}};
    CHECK(history_of(good) == expected);
    for (const char* bad : {R"({"step":2,"layers":{"0":[100,100,100]}})", R"({"step":2,"layers":{"0":[]}})",
                            R"({"step":2,"layers":{"0":[-1,100]}})", R"({"step":2,"layers":{"x":[100,100]}})",
                            R"({"step":2,"layers":{"-1":[100,100]}})", R"({"step":2,"layers":{"0":"text"}})",
                            R"({"step":2,"layers":{"1":[100,0.5]}})", R"({"step":0,"layers":{"0":[0,200]}})",
                            R"({"step":9e18,"layers":{"0":[0,200]}})", R"({"step":2})"}) {
        CAPTURE(bad);
        CHECK(history_of(good + bad + "\n") == expected);
    }
}

TEST_CASE("load history: a resumed run's file has each step once") {
    const TemporaryFolder folder;
    const auto path = folder / "expert_loads.jsonl";
    const int64_t layers[] = {0}, first[] = {1, 3}, second[] = {3, 1};
    {
        MetricsFile file(path, {});
        for (int64_t step = 1; step <= 4; ++step) file.write(load_line(step, layers, first));
    }
    MetricsFile file(path, {.step = 2});
    for (int64_t step = 3; step <= 5; ++step) file.write(load_line(step, layers, second));
    CHECK(count_of("\n", read_file(path)) == 5);
    const LayerLoads loads = read_load_history(path).at(0);
    CHECK(loads.size() == 5);
    CHECK(loads.at(2) == std::vector<float>{0.5F, 1.5F});
    CHECK(loads.at(3) == std::vector<float>{1.5F, 0.5F});
}
