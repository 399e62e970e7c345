// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/step_phases.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

constexpr size_t usual_waits = 4096;  // per step

}  // namespace

const char* name_of(StepPhase phase) {
    static constexpr const char* names[num_step_phases] = {"data", "compute", "saving", "pp",   "tp",
                                                           "cp",   "ep",      "dp",     "world"};
    return names[size_t(phase)];
}

StepPhase phase_of(Exchange exchange) {
    using enum StepPhase;
    static constexpr StepPhase phases[] = {along_pp, along_tp, along_cp,
                                           along_ep, along_dp, world};  // by axis
    return phases[size_t(axis_of(exchange))];
}

StepPhases::StepPhases(Timestamps stamps) : stamps_(std::move(stamps)) {
    waits_.reserve(usual_waits);
}

void StepPhases::begin_step() {
    sees_ = true;
    waits_.clear();  // left over from a step that was refused
    if (stamps_.computation()) stamps_.restart();
}

void StepPhases::begin(const char* /*kernel*/, double /*flops*/, double /*bytes*/) {
    ++within_;
}

void StepPhases::begin_exchange(Exchange exchange, double /*bytes*/) {
    ++within_;
    if (exchange_at_ != 0) return;
    exchange_at_ = within_;
    waits_.push_back({phase_of(exchange), stamps_.take(stamps_.computation()), {}});
}

void StepPhases::end() {
    if (within_ == exchange_at_) {
        waits_.back().end = stamps_.take(stamps_.computation());
        exchange_at_ = 0;
    }
    --within_;
}

void StepPhases::end_step(double seconds, double data_seconds) {
    ++steps_;
    seconds_ += seconds;
    sums_[StepPhase::data] += data_seconds;
    if (!std::exchange(sees_, false)) return;
    ++seen_steps_;
    double others = data_seconds;
    for (const Wait& wait : waits_) {
        const double waited = stamps_.between(wait.begin, wait.end);
        sums_[wait.phase] += waited;
        others += waited;
    }
    sums_[StepPhase::compute] += std::max(0.0, seconds - others);
    waits_.clear();
}

PhaseTimes StepPhases::means() const {
    PhaseTimes means = sums_;
    for (size_t i = 0; i < num_step_phases; ++i) {
        const bool always = StepPhase(i) == StepPhase::data || StepPhase(i) == StepPhase::saving;
        means.seconds[i] /= double(always ? steps_ : seen_steps_);  // 0 / 0: NaN
    }
    return means;
}

void StepPhases::restart() {
    steps_ = seen_steps_ = 0;
    seconds_ = 0;
    sums_ = {};
}

}  // namespace coeus
