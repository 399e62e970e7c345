// SPDX-License-Identifier: Apache-2.0
// The algorithms that are stored for CUDA's libraries, and the search for the fastest one.
#include "../../../src/kernels/cuda/algorithm_cache.hpp"

#include "../../../src/kernels/cuda/fastest.hpp"
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

int fastest_of(std::vector<double> seconds) {
    return fastest(int(seconds.size()), [&](int i) { return seconds[size_t(i)]; });
}

}  // namespace

TEST_CASE("algorithm cache: all processes take the choice that the first one stored") {
    const TemporaryFolder folder;
    AlgorithmCache one(folder / "new" / "folder"), other(folder / "new" / "folder");
    CHECK(one.keeps());
    CHECK(!one.find("8x8x8"));
    CHECK(one.keep("8x8x8", algorithm(1)) == algorithm(1));
    CHECK(other.keep("8x8x8", algorithm(9)) == algorithm(1));
    CHECK(other.find("8x8x8") == algorithm(1));
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
                out << cache.keep(std::to_string(problem), algorithm(uint64_t(process)))->front() << ' ';
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
    REQUIRE(cache.keep(problem, algorithm(1)));
    std::string whole;
    std::getline(std::ifstream(folder / problem), whole);
    std::string other_problem = whole, no_number = whole;
    other_problem[0] = '2';
    no_number.back() = 'x';
    for (const std::string& text :
         {std::string(), whole, whole + "\n\n", other_problem + "\n", no_number + "\n"}) {
        INFO(text);
        std::ofstream(folder / problem) << text;
        AlgorithmCache reader(folder.path());
        CHECK(!reader.find(problem));
        CHECK(reader.keep(problem, algorithm(7)) == algorithm(7));
        CHECK(AlgorithmCache(folder.path()).find(problem) == algorithm(7));
    }
}

TEST_CASE("algorithm cache: without a folder nothing is stored") {
    const TemporaryFolder folder;
    std::ofstream(folder / "file") << "x";
    for (const std::string& place : {std::string(), (folder / "file").string()}) {
        AlgorithmCache cache(place);
        CHECK(!cache.keeps());
        CHECK(!cache.find("8x8x8"));
        CHECK(!cache.keep("8x8x8", algorithm(1)));
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
    const int best = fastest(2, [&](int i) {
        const int turn = turns[size_t(i)]++;
        return i == 0 ? (turn == 0 ? 1e-6 : 2e-3) : (turn == 3 ? 1e-3 : 9e-3);
    });
    CHECK(best == 1);
    CHECK(turns[0] == turns[1]);
}

TEST_CASE("the search for a long product is short") {
    int runs = 0;
    fastest(3, [&](int) {
        ++runs;
        return 1.0;
    });
    CHECK(runs == 6);
}
