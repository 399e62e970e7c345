// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_RUNNER
#include "support/support.hpp"

#include <catch2/catch.hpp>

namespace coeus::test {
Runner runner = nullptr;
}

int main(int argc, char** argv) {
    if (coeus::test::runner) return coeus::test::runner(argc, argv);
    return Catch::Session().run(argc, argv);
}
