// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/copy_rate.hpp"

#include "support/catch.hpp"

using namespace coeus;

TEST_CASE("the rate of a copy on the host is that of our own kernel, read plus written") {
    static double copied;
    Kernels table = cpu_kernels();
    table.cast = [](Exec& exec, Tensor out, Tensor a) {
        copied += double(out.bytes() + a.bytes());
        cpu_kernels().cast(exec, out, a);
    };
    Exec exec;
    const CopyRate rate = copy_rate(exec, table);
    CHECK(rate.by_kernel);
    CHECK(rate.bytes == int64_t(64) << 20);
    CHECK(copied == 5.0 * 2 * double(rate.bytes));
    CHECK(rate.bytes_per_second > 1e8);
    CHECK(rate.bytes_per_second < 1e13);
}
