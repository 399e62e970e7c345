// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/step_phases.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace coeus {

namespace {

constexpr size_t usual_exchanges = 4096;  // of a step

}  // namespace

const char* name_of(StepPhase phase) {
    static constexpr const char* names[num_step_phases] = {"data", "compute", "saving", "pp",
                                                           "tp",   "cp",      "dp",     "world"};
    return names[size_t(phase)];
}

StepPhase phase_of_exchange(const char* name) {
    using enum StepPhase;
    static constexpr std::pair<std::string_view, StepPhase> phases[] = {
        {"wait_for_stage", along_pp},    {"gather_tokens", along_tp},    {"scatter_tokens", along_tp},
        {"gather_log_sums", along_tp},   {"sum_label_logits", along_tp}, {"gather_logits", along_tp},
        {"gather_keys", along_cp},       {"scatter_keys", along_cp},     {"pass_keys_on", along_cp},
        {"pass_gradients_on", along_cp}, {"tokens_to_heads", along_cp},  {"heads_to_tokens", along_cp},
        {"gather_weights", along_dp},    {"reduce_gradients", along_dp}, {"count_labels", world},
        {"sum_squared_norm", world},     {"compare_losses", world},      {"agree_to_stop", world},
    };
    for (const auto& [exchange, phase] : phases)
        if (exchange == name) return phase;
    return world;
}

StepPhases::StepPhases(Timestamps stamps) : stamps_(std::move(stamps)) {
    exchanges_.reserve(usual_exchanges);
}

KernelObserver* StepPhases::begin_step(KernelObserver* next) {
    next_ = next;
    sees_ = true;
    exchanges_.clear();  // of a step that was refused
    if (stamps_.computation()) stamps_.restart();
    return this;
}

void StepPhases::begin(const char* kernel, double flops, double bytes) {
    ++within_;
    if (next_) next_->begin(kernel, flops, bytes);
}

void StepPhases::begin_exchange(const char* name, double bytes) {
    ++within_;
    if (exchange_at_ == 0) {
        exchange_at_ = within_;
        exchanges_.push_back({phase_of_exchange(name), stamps_.take(stamps_.computation()), {}});
    }
    if (next_) next_->begin_exchange(name, bytes);
}

void StepPhases::operands(std::span<const Tensor> tensors) {
    if (next_) next_->operands(tensors);
}

void StepPhases::end() {
    if (next_) next_->end();
    if (within_ == exchange_at_) {
        exchanges_.back().end = stamps_.take(stamps_.computation());
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
    for (const Exchange& exchange : exchanges_) {
        const double waited = stamps_.between(exchange.begin, exchange.end);
        sums_[exchange.phase] += waited;
        others += waited;
    }
    sums_[StepPhase::compute] += std::max(0.0, seconds - others);
    exchanges_.clear();
}

PhaseTimes StepPhases::means() const {
    PhaseTimes means = sums_;
    for (size_t i = 0; i < num_step_phases; ++i) {
        const bool always = StepPhase(i) == StepPhase::data || StepPhase(i) == StepPhase::saving;
        means.seconds[i] /= double(always ? steps_ : seen_steps_);  // 0 / 0: not a number
    }
    return means;
}

void StepPhases::restart() {
    steps_ = seen_steps_ = 0;
    seconds_ = 0;
    sums_ = {};
}

}  // namespace coeus
