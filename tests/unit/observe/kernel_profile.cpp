// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/kernel_profile.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

double clock_seconds = 0;
double fake_clock() {
    return clock_seconds;
}

}  // namespace

TEST_CASE("kernel profile: all parts of the time are listed, and add up to the whole") {
    KernelProfile profile(fake_clock);
    CHECK(profile.table({}).empty());
    const auto run = [&](const char* kernel, double flops, double bytes, double seconds) {
        profile.begin(kernel, flops, bytes);
        clock_seconds += seconds;
        profile.end();
    };
    const std::string same_name = "gemm";  // another pointer
    for (int step = 0; step < 2; ++step) {
        run("rms_norm", 0, 4e6, 0.001);
        run("gemm", 2e8, 1e6, 0.004);
        run(same_name.c_str(), 2e8, 1e6, 0.003);
        profile.end_step(0.010, 0.0005);
    }
    const auto lines = lines_of(profile.table({.flops_per_second = 100e9, .bytes_per_second = 10e9}));
    REQUIRE(lines.size() == 2 + 4);
    CHECK_THAT(lines[0], Catch::StartsWith("2 steps of 10.0 ms; ") &&
                             Catch::Contains("100 GF/s in GEMM and 10.0 GB/s in a copy"));
    CHECK(lines[2] ==
          "  gemm                    70.0%        2.0         7.00     57.1 ( 57%)      0.3 (  3%)");
    // no arithmetic: the column is empty
    CHECK(lines[3] ==
          "  rms_norm                10.0%        1.0         1.00                      4.0 ( 40%)");
    CHECK(lines[4] == "  waiting for data         5.0%                    0.50");
    CHECK(lines[5] == "  outside of kernels      15.0%                    1.50");
    // there is no comparison with unknown rates
    const auto unknown = lines_of(profile.table({}));
    CHECK_THAT(unknown[0], Catch::Contains("? GF/s in GEMM"));
    CHECK(unknown[2] ==
          "  gemm                    70.0%        2.0         7.00            57.1             0.3");
}
