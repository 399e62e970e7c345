// SPDX-License-Identifier: Apache-2.0
// The algorithms that are stored for CUDA's libraries, and the search for the fastest one.
#include "coeus/kernels/algorithm_cache.hpp"

#include "../../../src/kernels/cuda/products/fastest.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

using namespace coeus;
using namespace coeus::cuda;
using namespace coeus::test;
namespace fs = std::filesystem;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

Algorithm algorithm(uint64_t first) {
    return {first, 2, 3, 4, 5, 6, 7, ~uint64_t(0)};
}

KeptAlgorithm kept(const std::string& problem, uint64_t first) {
    return {problem, algorithm(first), Timing::now(1e-3, 13000)};
}
/// The first word of the algorithm.
uint64_t first_of(const std::optional<KeptAlgorithm>& found) {
    return found ? found->algorithm.front() : 0;
}

int fastest_of(std::vector<double> seconds) {
    return fastest(int(seconds.size()), [&](int i) { return seconds[size_t(i)]; }).number;
}

}  // namespace

TEST_CASE("algorithm cache: all processes take the choice that the first one stored") {
    const TemporaryFolder folder;
    AlgorithmCache one(folder / "new" / "folder"), other(folder / "new" / "folder");
    CHECK(one.keeps());
    CHECK(!one.find("8x8x8"));
    CHECK(first_of(one.keep(kept("8x8x8", 1))) == 1);
    CHECK(first_of(other.keep(kept("8x8x8", 9))) == 1);
    CHECK(first_of(other.find("8x8x8")) == 1);
    CHECK(other.find("8x8x8")->algorithm == algorithm(1));
    CHECK(!other.find("8x8x9"));
}

TEST_CASE("algorithm cache: many processes at the same time agree") {
    const TemporaryFolder folder;
    constexpr int processes = 8, problems = 20;
    std::vector<pid_t> children;
    for (int process = 0; process < processes; ++process) {
        const pid_t child = fork();
        if (child == 0) {
            AlgorithmCache cache(folder.path());
            std::ofstream out(folder.path() / ("result of " + std::to_string(process)));
            for (int problem = 0; problem < problems; ++problem)
                out << first_of(cache.keep(kept(std::to_string(problem), uint64_t(process)))) << ' ';
            out.close();
            _exit(0);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = -1;
        waitpid(child, &status, 0);
        REQUIRE(status == 0);
    }
    const auto result_of = [&](int process) {
        std::string line;
        std::getline(std::ifstream(folder.path() / ("result of " + std::to_string(process))), line);
        return line;
    };
    for (int process = 1; process < processes; ++process) CHECK(result_of(process) == result_of(0));
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path()))
        CHECK(entry.path().filename().string().front() != '.');  // no temporary file is left
}

TEST_CASE("algorithm cache: files that are damaged, truncated or of another problem are replaced") {
    const TemporaryFolder folder;
    AlgorithmCache cache(folder.path());
    const std::string problem = "16x16x16";
    REQUIRE(cache.keep(kept(problem, 1)));
    const std::string whole = read_file(folder / problem), line = whole.substr(0, whole.size() - 1);
    std::string other_problem = whole, no_number = line;
    other_problem[0] = '2';
    no_number.back() = 'x';
    for (const std::string& text : {std::string(), line, whole + "\n", whole + whole, other_problem,
                                    no_number + "\n", read_file(folder / (problem + timing_suffix))}) {
        INFO(text);
        write_file(folder / problem, text);
        AlgorithmCache reader(folder.path());
        CHECK(!reader.find(problem));
        CHECK(first_of(reader.keep(kept(problem, 7))) == 7);
        CHECK(first_of(AlgorithmCache(folder.path()).find(problem)) == 7);
    }
}

TEST_CASE("algorithm cache: Coeus 0.2 and this version use each other's files, which stay as they are") {
    const TemporaryFolder folder;
    const std::string problem =
                          "bfloat16-float32-4096x512x2048-nt-add-ld2048,2048,512,512-align256,256,256,256",
                      text = problem +
                             "\t0000000000000001000000000000000200000000000000030000000000000004"
                             "000000000000000500000000000000060000000000000007ffffffffffffffff\n";
    const std::string file = folder / problem, timing_file = file + timing_suffix;
    AlgorithmCache cache(folder.path());
    SECTION("kept by this version") {
        REQUIRE(cache.keep(kept(problem, 1)));
        REQUIRE(cache.find(problem)->timing);
        // what Coeus 0.2 requires
        CHECK(read_file(file).size() == problem.size() + 1 + 128 + 1);
    }
    SECTION("kept by Coeus 0.2") {
        write_file(file, text);
        CHECK(cache.find(problem)->algorithm == algorithm(1));
        CHECK_FALSE(cache.find(problem)->timing);
        CHECK(first_of(cache.keep(kept(problem, 9))) == 1);
        CHECK_FALSE(fs::exists(timing_file));
    }
    const fs::file_time_type written = fs::last_write_time(file);
    cache.renew({problem, algorithm(1), Timing{2.5e-4, 1795724208, "node17", 12040}});
    CHECK(fs::last_write_time(file) == written);
    CHECK(read_file(file) == text);
    CHECK(read_file(timing_file) ==
          text + "seconds 2.500e-04 date 2026-11-26T20:16:48Z host node17 driver 12040\n");
    const std::optional<KeptAlgorithm> renewed = cache.find(problem);
    REQUIRE((renewed && renewed->timing));
    CHECK(renewed->algorithm == algorithm(1));
    CHECK(renewed->timing->seconds == 2.5e-4);
    CHECK(renewed->timing->date == 1795724208);
    CHECK(renewed->timing->host == "node17");
    CHECK(renewed->timing->driver == 12040);
}

TEST_CASE("algorithm cache: a timing that is damaged or of another algorithm is none, and is replaced") {
    const TemporaryFolder folder;
    AlgorithmCache cache(folder.path());
    const std::string problem = "16x16x16", timing_file = folder / (problem + timing_suffix);
    REQUIRE(cache.keep(kept(problem, 1)));
    const std::string whole = read_file(folder / problem), both = read_file(timing_file),
                      timing = both.substr(whole.size());
    std::string no_date = both, other_problem = both;
    no_date.replace(no_date.find(" 20") + 1, 4, "abcd");
    other_problem[0] = '2';
    for (const std::string& text :
         {std::string(), whole, timing, timing + whole, both + "\n", both.substr(0, both.size() - 1), no_date,
          other_problem, kept(problem, 9).timing_text(), std::string(10000, 'x'),
          whole + "seconds 0.000e+00 date 2026-11-26T20:16:48Z host node17 driver 12040\n"}) {
        INFO(text);
        write_file(timing_file, text);
        AlgorithmCache reader(folder.path());
        REQUIRE(first_of(reader.find(problem)) == 1);
        CHECK_FALSE(reader.find(problem)->timing);
        reader.renew(kept(problem, 1));
        CHECK(reader.find(problem)->timing);
    }
    fs::remove(timing_file);
    CHECK_FALSE(cache.find(problem)->timing);
    CHECK(read_file(folder / problem) == whole);
}

TEST_CASE("algorithm cache: deleting an algorithm's file is enough to keep another one") {
    const TemporaryFolder folder;
    AlgorithmCache cache(folder.path());
    REQUIRE(cache.keep(kept("8x8x8", 1)));
    fs::remove(folder / "8x8x8");
    CHECK_FALSE(cache.find("8x8x8"));
    CHECK(first_of(cache.keep({"8x8x8", algorithm(2)})) == 2);
    CHECK_FALSE(cache.find("8x8x8")->timing);
    fs::remove(folder / "8x8x8");
    CHECK(first_of(cache.keep(kept("8x8x8", 3))) == 3);
    CHECK(cache.find("8x8x8")->timing);
}

TEST_CASE("the number of operations of a product is known from its text") {
    CHECK(operations_of("bfloat16-float32-4096x512x2048-nt-add-ld1") == 2.0 * 4096 * 512 * 2048);
    CHECK(operations_of("float8_e4m3,float8_e5m2-bfloat16-16x32x64-nn-put") == 2.0 * 16 * 32 * 64);
    for (const char* text :
         {"", "a", "a-b", "a-b-", "a-b-16x32", "a-b-16x32x", "a-b-16x0x8-nn", "16x32x64-nn"}) {
        CAPTURE(text);
        CHECK_FALSE(operations_of(text));
    }
}

TEST_CASE("algorithm cache: without a folder nothing is stored") {
    const TemporaryFolder folder;
    std::ofstream(folder / "file") << "x";
    for (const std::string& place : {std::string(), (folder / "file").string()}) {
        AlgorithmCache cache(place);
        CHECK(!cache.keeps());
        CHECK(!cache.find("8x8x8"));
        CHECK(!cache.keep(kept("8x8x8", 1)));
    }
}

TEST_CASE("file names have no character that is special in a path or a shell") {
    CHECK(file_name_of("NVIDIA H100/80GB: x-1.2,3") == "NVIDIA_H100_80GB__x-1.2,3");
}

TEST_CASE("the fastest candidate has the least time, and the earlier one wins if times are alike") {
    CHECK(fastest_of({3, 1, 2}) == 1);
    CHECK(fastest_of({1.01, 1, 1}) == 0);
    CHECK(fastest_of({1.03, 1.01, 1}) == 1);
    CHECK(fastest_of({never, 2, 1}) == 2);
    CHECK(fastest_of({std::nan(""), 2, 1.5}) == 2);
    CHECK(fastest_of({never, never}) == 0);
    CHECK(fastest_of({5}) == 0);
}

TEST_CASE("the search takes a candidate's best run, and not its first") {
    std::vector<int> turns(2);
    const Fastest best = fastest(2, [&](int i) {
        const int turn = turns[size_t(i)]++ % 6;
        return i == 0 ? (turn == 0 ? 1e-6 : 2e-3) : (turn == 3 ? 1e-3 : 9e-3);
    });
    CHECK(best.number == 1);
    CHECK(best.seconds == 1e-3);
    CHECK(turns[0] == turns[1]);
}

TEST_CASE("the two best are timed once more, in turn with each other, and only these times count") {
    std::vector<int> calls;
    const Fastest best = fastest(4, [&](int i) {
        calls.push_back(i);
        const bool is_last_round = calls.size() > 4 * 6;
        return std::vector{7e-6, is_last_round ? 6e-6 : 4e-6, 9e-6, 5e-6}[size_t(i)];
    });
    CHECK(best.number == 3);
    CHECK(best.seconds == 5e-6);
    REQUIRE(calls.size() == 4 * 6 + 2 * 6);
    for (size_t i = 4 * 6; i < calls.size(); ++i) CHECK(calls[i] == (i % 2 == 0 ? 1 : 3));
}

TEST_CASE("the search for a long product is short") {
    int runs = 0;
    fastest(3, [&](int) {
        ++runs;
        return 1.0;
    });
    CHECK(runs == 6 + 4);
}

TEST_CASE(
    "algorithm cache: the timing of a steady search is kept with its watts, and earlier timings are read") {
    const TemporaryFolder folder;
    AlgorithmCache cache(folder.path());
    KeptAlgorithm steady = kept("8x8x8", 1);
    steady.timing->steady = Timing::Steady{655, 1590};
    REQUIRE(cache.keep(steady));
    const std::optional<KeptAlgorithm> found = cache.find("8x8x8");
    REQUIRE((found && found->timing && found->timing->steady));
    CHECK(found->timing->steady->watts == 655);
    CHECK(found->timing->steady->megahertz == 1590);
    cache.renew(kept("8x8x8", 1));
    REQUIRE(cache.find("8x8x8")->timing);
    CHECK_FALSE(cache.find("8x8x8")->timing->steady);
    // other words after the driver make it invalid
    const std::string path = cache.path_of("8x8x8"), text = kept("8x8x8", 1).timing_text();
    for (const char* more : {" watts 655", " watts 655 mhz", " mhz 1590 watts 655 "}) {
        CAPTURE(more);
        std::ofstream(path + timing_suffix) << text.substr(0, text.size() - 1) << more << "\n";
        CHECK_FALSE(cache.find("8x8x8")->timing);
    }
}

TEST_CASE("algorithm cache: a kept algorithm is replaced only by replace()") {
    const TemporaryFolder folder;
    AlgorithmCache cache(folder.path());
    CHECK(first_of(cache.keep(kept("8x8x8", 1))) == 1);
    CHECK(first_of(cache.keep(kept("8x8x8", 2))) == 1);
    CHECK(cache.replace(kept("8x8x8", 3)));
    CHECK(first_of(cache.find("8x8x8")) == 3);
    CHECK(cache.find("8x8x8")->timing);
    CHECK(first_of(cache.keep(kept("8x8x8", 4))) == 3);
    CHECK_FALSE(AlgorithmCache("").replace(kept("8x8x8", 5)));
}

TEST_CASE("a steady search lets the best four of short turns, and the kept one, decide in long turns") {
    const std::vector<double> in_short = {7, 2, 3, 4, never, 5, 6};
    std::vector<double> in_long = {0.5, 9, 8, 7, never, 6, 0.1};
    std::vector<std::pair<int, int>> turns;
    const auto search = [&](int had) {
        turns.clear();
        return steadiest(
            int(in_short.size()), had, 20, [&](int i) { return in_short[size_t(i)]; },
            [&](int i, int runs) {
                turns.emplace_back(i, runs);
                return in_long[size_t(i)];
            });
    };
    // 60 seconds of the fastest, then two turns of each finalist
    const Steadiest found = search(-1);
    CHECK(found.of_short_turns == 1);
    CHECK(found.shortest_turn == 2);
    CHECK(found.number == 5);
    CHECK(turns == std::vector<std::pair<int, int>>{
                       {1, 30}, {1, 10}, {2, 6}, {3, 5}, {5, 4}, {1, 10}, {2, 6}, {3, 5}, {5, 4}});
    CHECK(found.means[5] == 6);
    CHECK(found.means[1] == 9);
    CHECK(found.means[0] == never);
    // also if it is not among the best four
    CHECK(search(6).number == 6);
    CHECK(turns.size() == 11);
    CHECK(search(4).number == 5);  // it cannot be run
    CHECK(turns.size() == 9);
    const Steadiest none = steadiest(
        2, 0, 1, [](int) { return never; }, [](int, int) { return 1.0; });
    CHECK(none.number == 0);
    CHECK(none.shortest_turn == never);
}
