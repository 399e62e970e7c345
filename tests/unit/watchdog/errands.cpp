// SPDX-License-Identifier: Apache-2.0
#include "../../../src/watchdog/errands.hpp"

#include "support/catch.hpp"
#include "support/patience.hpp"

#include <future>
#include <memory>
#include <stdexcept>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("errands: one that ends returns its answer, and one that does not blocks no other") {
    auto answers = std::make_shared<std::promise<void>>();
    {
        Errands errands;
        CHECK(errands.ask<int>(patience(60), 1, [] { return 2; }) == 2);
        CHECK(errands.run(patience(60), [] { throw std::runtime_error("an errand that fails"); }));
        CHECK(errands.ask<int>(patience(60), 1, [] { return 3; }) == 3);
        const auto waits = [until = answers->get_future().share()] { until.wait(); };
        CHECK_FALSE(errands.run(0.01, waits));
        // the earlier errand has not ended
        CHECK(errands.ask<int>(0.01, 1, [] { return 2; }) == 1);
        answers->set_value();
        while (errands.ask<int>(patience(60), 1, [] { return 4; }) != 4)
            continue;  // after a late errand, the next one gets little time
        answers = std::make_shared<std::promise<void>>();
        CHECK_FALSE(errands.run(0.01, [until = answers->get_future().share()] { until.wait(); }));
    }
    answers->set_value();  // it lives longer than `errands`
}
