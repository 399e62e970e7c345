// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_RUNNER
#include "support/support.hpp"

#include <catch2/catch.hpp>

namespace coeus::test {
Runner runner = nullptr;
int64_t resident_at_start = 0;

int run_cases(int argc, char** argv) {
    return Catch::Session().run(argc, argv);
}
}  // namespace coeus::test

int main(int argc, char** argv) {
    if (coeus::test::runner) return coeus::test::runner(argc, argv);
    return coeus::test::run_cases(argc, argv);
}
