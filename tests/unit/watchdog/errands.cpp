// SPDX-License-Identifier: Apache-2.0
#include "../../../src/watchdog/errands.hpp"

#include "support/catch.hpp"
#include "support/patience.hpp"

#include <future>
#include <memory>
#include <stdexcept>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("errands: what ends gives its answer, what does not holds nobody up") {
    auto answers = std::make_shared<std::promise<void>>();
    {
        Errands errands;
        CHECK(errands.ask<int>(patience(60), 1, [] { return 2; }) == 2);
        CHECK(errands.run(patience(60), [] { throw std::runtime_error("an errand that fails"); }));
        CHECK(errands.ask<int>(patience(60), 1, [] { return 3; }) == 3);
        const auto waits = [until = answers->get_future().share()] { until.wait(); };
        CHECK_FALSE(errands.run(0.01, waits));
        // it is still under way
        CHECK(errands.ask<int>(0.01, 1, [] { return 2; }) == 1);
        answers->set_value();
        while (errands.ask<int>(patience(60), 1, [] { return 4; }) != 4)
            continue;  // what was late is given little more
        answers = std::make_shared<std::promise<void>>();
        CHECK_FALSE(errands.run(0.01, [until = answers->get_future().share()] { until.wait(); }));
    }
    answers->set_value();  // it outlives its errands
}
