// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/recompute.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>

namespace coeus {

namespace {

using Choices = std::vector<Recompute>;

// True if place i of n is one of k that are evenly distributed, so that pipeline stages get equal shares.
bool is_among(int64_t i, int64_t k, int64_t n) {
    return (i + 1) * k / n > i * k / n;
}

// Recomputes `blocks` whole blocks, and the operations of `operations` other blocks.
Choices choices_of(int64_t layers, int64_t operations, int64_t blocks) {
    Choices choices;
    const int64_t others = layers - blocks;
    for (int64_t i = 0, other = 0; i < layers; ++i) {
        if (is_among(i, blocks, layers))
            choices.push_back(Recompute::block);
        else
            choices.push_back(is_among(other++, operations, others) ? Recompute::operations
                                                                    : Recompute::nothing);
    }
    return choices;
}

// The smallest number from `least` to `most` for which fits() holds, or `most`. If it holds for a number, it
// holds for all larger ones (almost always in a pipeline with uneven stages, where the result may be another
// number for which it holds). The last call has the number that is returned.
template <class Fits>
int64_t smallest(int64_t least, int64_t most, const Fits& fits) {
    while (least < most) {
        const int64_t middle = (least + most) / 2;
        if (fits(middle))
            most = middle;
        else
            least = middle + 1;
    }
    fits(least);
    return least;
}

// The choices with the fewest FLOPs whose frame has at most `limit` bytes. More operations, and more blocks
// after the first, make a frame smaller; only their numbers matter.
Choices cheapest_within(double limit, int64_t layers, const PlanOfChoices& plan_of) {
    Choices best = choices_of(layers, 0, layers);
    double best_flops = plan_of(best).flops;
    const auto fits = [&](int64_t operations, int64_t blocks) {
        const Choices choices = choices_of(layers, operations, blocks);
        const LayerMemory plan = plan_of(choices);
        if (double(plan.executor.frame) > limit) return false;
        if (plan.flops < best_flops) {
            best_flops = plan.flops;
            best = choices;
        }
        return true;
    };
    // without whole blocks
    smallest(0, layers, [&](int64_t operations) { return fits(operations, 0); });
    const int64_t first = smallest(1, layers, [&](int64_t blocks) { return fits(layers - blocks, blocks); });
    // the more whole blocks, the fewer operations are needed
    int64_t operations = layers;
    for (int64_t blocks = first; blocks <= layers; ++blocks) {
        if (plan_of(choices_of(layers, 0, blocks)).flops >= best_flops) break;
        operations = smallest(0, std::min(operations, layers - blocks),
                              [&](int64_t number) { return fits(number, blocks); });
    }
    return best;
}

}  // namespace

Choices choose_recompute(const RecomputeOptions& options, int64_t layers, const PlanOfChoices& plan_of) {
    Choices choices;
    switch (options.mode) {
        case RecomputeOptions::Mode::nothing: break;
        case RecomputeOptions::Mode::operations: choices = choices_of(layers, layers, 0); break;
        case RecomputeOptions::Mode::blocks:
            for (int64_t i = 0; i < layers; ++i)
                choices.push_back((i + 1) % options.every == 0 ? Recompute::block : Recompute::nothing);
            break;
        case RecomputeOptions::Mode::budget: {
            const double none = double(plan_of({}).executor.frame),
                         full = double(plan_of(choices_of(layers, 0, layers)).executor.frame);
            choices = cheapest_within(full + options.budget * (none - full), layers, plan_of);
        }
    }
    const bool nothing = std::all_of(choices.begin(), choices.end(),
                                     [](Recompute choice) { return choice == Recompute::nothing; });
    return nothing ? Choices{} : choices;
}

RecomputePlan plan_recompute(const RecomputeOptions& options, int64_t layers, const PlanOfChoices& plan_of) {
    RecomputePlan plan;
    plan.blocks = choose_recompute(options, layers, plan_of);
    if (plan.blocks.empty()) return plan;
    const LayerMemory with = plan_of(plan.blocks), without = plan_of({});
    plan.frame = with.executor.frame;
    plan.frame_without = without.executor.frame;
    plan.extra = with.flops / without.flops - 1;
    return plan;
}

std::string RecomputePlan::text(const std::vector<size_t>& layers) const {
    if (blocks.empty()) return "";
    const auto count = [&](Recompute what) {
        return std::ranges::count_if(layers, [&](size_t layer) { return blocks[layer] == what; });
    };
    const auto all = layers.size();
    const auto whole = count(Recompute::block), operations = count(Recompute::operations);
    std::string what;
    if (whole > 0) what = fmt::format("{} of {}", whole, counted(int64_t(all), "block"));
    if (operations > 0)
        what += fmt::format("{}norms and activation functions of {}", whole > 0 ? ", " : "",
                            whole > 0 ? counted(operations, "other")
                                      : fmt::format("{} of {}", operations, counted(int64_t(all), "block")));
    if (whole + operations == 0) what = fmt::format("none of {}", counted(int64_t(all), "block"));
    return fmt::format(
        "Activation checkpointing recomputes {}; activations per micro-batch {} instead of {}, {:.2g}% more "
        "FLOPs",
        what, bytes_text(double(frame)), bytes_text(double(frame_without)), 100 * extra);
}

}  // namespace coeus
