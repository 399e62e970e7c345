// SPDX-License-Identifier: Apache-2.0
// Learning-rate factors against those of torchtitan's scheduler, stepped with PyTorch.
#include "coeus/optim/lr_schedule.hpp"

#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

void compare(const JsonView& c) {
    const JsonView options = c["lr_scheduler"];
    const std::string decay = options.string("decay_type", "linear");
    REQUIRE((decay == "linear" || decay == "sqrt" || decay == "cosine"));
    const int64_t steps = c.integer("steps"), total = options.integer("total_steps", steps);
    const double minimum = options.number("min_lr_factor", 0);
    LrSchedule::Options o = {.warmup_steps = options.integer("warmup_steps"),
                             .total_steps = total,
                             .decay_ratio = std::nullopt,
                             .decay = decay == "sqrt"     ? Decay::sqrt
                                      : decay == "cosine" ? Decay::cosine
                                                          : Decay::linear,
                             .min_factor = minimum};
    if (options.contains("decay_ratio")) o.decay_ratio = options.number("decay_ratio");
    const LrSchedule schedule(o, nullptr);

    const std::vector<JsonView> factors = c["factor"].elements();
    REQUIRE(int64_t(factors.size()) == steps);
    for (int64_t k = 0; k < steps; ++k) {
        INFO(c.string("name") << ", after " << k << " steps");
        if (k > total) {
            // after the last step torchtitan's factor falls below the minimum, even below zero; ours stays at
            // the minimum
            CHECK(factors[size_t(k)].number() < minimum);
            CHECK(schedule.factor(k) == minimum);
        } else {
            CHECK(close(schedule.factor(k), factors[size_t(k)].number(), 1e-12));
        }
    }
    // a resumed run asks for the same k: the schedule is stateless
    if (const auto part = c.find("resumed")) {
        const int64_t after = part->integer("after_step");
        const std::vector<JsonView> rest = (*part)["factor"].elements();
        CHECK(part->integer("last_epoch") == after);
        CHECK(int64_t(rest.size()) == steps - after);
        for (size_t i = 0; i < rest.size(); ++i)
            CHECK(close(schedule.factor(after + int64_t(i)), rest[i].number(), 1e-12));
    }
}

}  // namespace

TEST_CASE("golden: learning-rate schedules") {
    const auto file = golden("lr_schedule.json");
    if (file.empty()) return;
    const JsonDocument document = JsonDocument::read(file);
    std::vector<GoldenCase> cases;
    for (const JsonView& c : document.root()["cases"].elements())
        cases.push_back(
            {"lr_schedule/" + c.string("name"), [] { return std::string(); }, [c] { compare(c); }});
    compare_golden(cases);
}
