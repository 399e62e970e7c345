// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/kernel_profile.hpp"

#include "support/support.hpp"

#include <catch2/catch.hpp>

#include <regex>
#include <sstream>

using namespace coeus;

namespace {

void wait_a_moment() {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(200)) continue;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

// Percent of a line "  name   12.5%  ...", or -1.
double share_of(const std::string& line) {
    std::smatch found;
    return std::regex_search(line, found, std::regex(R"(([\d.]+)%)")) ? std::stod(found[1]) : -1;
}

}  // namespace

TEST_CASE("kernel profile: every share is there, and they make up the whole") {
    KernelProfile profile;
    CHECK(profile.table({}).empty());
    const auto start = std::chrono::steady_clock::now();
    const auto run = [&](const char* kernel, double flops, double bytes, int times) {
        profile.begin(kernel, flops, bytes);
        for (int i = 0; i < times; ++i) wait_a_moment();
        profile.end();
    };
    const std::string same_name = "gemm";  // another pointer
    for (int step = 0; step < 2; ++step) {
        run("gemm", 2e6, 1e3, 4);
        run("rms_norm", 0, 1e6, 1);
        run(same_name.c_str(), 2e6, 1e3, 4);
        wait_a_moment();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    profile.end_step(seconds / 2, 1e-4);
    profile.end_step(seconds / 2, 1e-4);
    const auto lines = lines_of(profile.table({.flops_per_second = 100e9, .bytes_per_second = 10e9}));
    REQUIRE(lines.size() == 2 + 4);
    CHECK_THAT(lines[0],
               Catch::StartsWith("2 steps of ") && Catch::Contains("100 GF/s in GEMM and 10.0 GB/s"));
    CHECK(std::regex_search(lines[2], std::regex(R"(^  gemm +[\d.]+% +2\.0 +[\d.]+ +[\d.]+ \( *\d+%\) )")));
    // no arithmetic: the column stays empty
    CHECK(std::regex_search(lines[3],
                            std::regex(R"(^  rms_norm +[\d.]+% +1\.0 +[\d.]+ {10,}[\d.]+ \( *\d+%\)$)")));
    CHECK_THAT(lines[4], Catch::StartsWith("  waiting for data"));
    CHECK_THAT(lines[5], Catch::StartsWith("  outside of kernels"));
    double sum = 0;
    for (size_t i = 2; i < lines.size(); ++i) sum += share_of(lines[i]);
    CHECK(std::abs(sum - 100) <= 0.21);  // four roundings of 0.05
    CHECK(share_of(lines[2]) > share_of(lines[3]));
    // unknown rates are not compared with
    const auto unknown = lines_of(profile.table({}));
    CHECK_THAT(unknown[0], Catch::Contains("? GF/s in GEMM"));
    CHECK_THAT(unknown[2], !Catch::Contains("("));
}
