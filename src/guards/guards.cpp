// SPDX-License-Identifier: Apache-2.0
#include "coeus/guards/guards.hpp"

#include "coeus/base/log.hpp"
#include "coeus/file/json.hpp"

#include <cmath>

namespace coeus {

namespace {

std::vector<double> numbers(const JsonView& values) {
    std::vector<double> all;
    for (const JsonView& value : values.elements()) all.push_back(value.number());
    return all;
}

// The "step" of an event is the step that is taken next.
Json event_at(const RunPlace& place, int64_t number, const char* what, const char* action) {
    return Json::object()
        .set("step", place.step + 1)
        .set("event", what)
        .set("event_number", number)
        .set("action", action);
}

// "the loss is 7.6246, the gradient norm is not a number"
std::string what_is_not_finite(double loss, double norm) {
    const auto said = [](double value) -> std::string {
        if (std::isnan(value)) return "not a number";
        return std::isinf(value) ? "infinite" : fmt::format("{:.5g}", value);
    };
    return fmt::format("the loss is {}, the gradient norm is {}", said(loss), said(norm));
}

}  // namespace

Guards::Guards(const Config::Guards& options, Engine& engine, const std::vector<std::string>& hosts)
    : options_(options),
      engine_(engine),
      state_{.spikes = SpikeGuard(options.spike_window, options.spike_z_score)},
      snapshot_state_(state_) {
    const Parameters& parameters = engine.model().parameters();
    if (rewinds(options)) snapshot_.emplace(parameters, engine.exec());
    if (options.compare_replicas_interval == 0) return;
    replicas_.emplace(parameters, engine.mesh(), hosts);
    if (engine.mesh().world().rank() == 0) log::info("{}", replicas_->text());
    if (!replicas_->has_replicas()) replicas_.reset();
}

void Guards::resume(const std::string& record) {
    if (record.empty()) return;
    const JsonDocument document = JsonDocument::parse(record, "/train guards of the checkpoint");
    const JsonView root = document.root();
    state_.spikes.assign(numbers(root["loss"]), numbers(root["grad_norm"]));
    state_.in_a_row = root.integer("in_a_row");
    state_.passed_over = root.integer("samples_passed_over");
    state_.skips = root.integer("skips");
    state_.rewinds = root.integer("rewinds");
    state_.events = root.integer("events");
}

std::string Guards::record() const {
    if (!watches_loss() && state_.events == 0) return "";
    return Json::object()
        .set("loss", state_.spikes.losses().values())
        .set("grad_norm", state_.spikes.norms().values())
        .set("in_a_row", state_.in_a_row)
        .set("samples_passed_over", state_.passed_over)
        .set("skips", state_.skips)
        .set("rewinds", state_.rewinds)
        .set("events", state_.events)
        .text();
}

void Guards::begin(const RunPlace& place) {
    if (snapshot_) take_snapshot(place);
}

StepLimits Guards::limits() const {
    return watches_loss() ? state_.spikes.limits() : StepLimits{};
}

namespace {

// Takes the values of rank 0: ranks that sum in other orders still have the same window.
void agree(double& loss, double& norm, const Communicator& ranks) {
    double both[] = {loss, norm};
    ranks.broadcast(Tensor(both, Dtype::f64, {2}), 0);
    loss = both[0];
    norm = both[1];
}

}  // namespace

void Guards::accept(double loss, double norm) {
    if (!watches_loss()) return;
    agree(loss, norm, engine_.mesh().world());
    state_.spikes.accept(loss, norm);
    if (options_.loss_spike == "skip") state_.in_a_row = 0;
}

std::string Guards::pass_over(RunPlace& place, int64_t samples, double loss, double norm) {
    const Communicator& world = engine_.mesh().world();
    const int64_t step = place.step + 1;
    // only some ranks may see a value that is not finite
    const bool finite = std::isfinite(loss) && std::isfinite(norm);
    if (!watches_loss() || world.all_reduce(int64_t(!finite), Reduce::max) != 0)
        throw NotFiniteError(fmt::format("step {}: {}; the optimizer step was not taken", step,
                                         what_is_not_finite(loss, norm)));
    agree(loss, norm, world);
    const bool goes_back = options_.loss_spike == "rewind";
    const SpikeGuard::Spike spike = state_.spikes.spike(loss, norm);
    const std::string text = fmt::format(
        "step {}: {} {:.6g} is a spike: the last {} accepted steps have mean {:.6g} and deviation {:.3g}, "
        "z = {:.1f} (limit {})",
        step, spike.what, spike.value, options_.spike_window, spike.mean, spike.deviation, spike.z,
        options_.spike_z_score);
    if (state_.in_a_row == options_.spike_patience)
        throw NotFiniteError(fmt::format(
            "{}. It came after {} {} (guards.spike_patience): the skipped samples are not the cause", text,
            state_.in_a_row, goes_back ? "rewinds to the same snapshot" : "updates skipped in a row"));
    ++state_.in_a_row;
    ++(goes_back ? state_.rewinds : state_.skips);
    ++state_.events;
    const int64_t first = goes_back ? snapshot_place_.sample : place.sample;
    place.sample += samples;
    state_.passed_over += place.sample - first;
    if (goes_back) {
        restore_snapshot();
        place.step = snapshot_place_.step;
        place.tokens_seen = snapshot_place_.tokens_seen;
        state_.spikes = snapshot_state_.spikes;
        snapshot_state_ = state_;
        snapshot_place_ = place;
    }
    if (world.rank() == 0)
        log::warn("{}. {}; samples {} to {} are skipped", text,
                  goes_back ? fmt::format("The run rewinds to the snapshot of step {}", place.step)
                            : "Its update is skipped",
                  first, place.sample - 1);
    return event_at(place, state_.events, "loss_spike", goes_back ? "rewind" : "skip")
        .set("spike_step", step)
        .set("measure", spike.what)
        .set("value", spike.value)
        .set("mean", spike.mean)
        .set("deviation", spike.deviation)
        .set("z", spike.z)
        .set("first_sample", first)
        .set("last_sample", place.sample - 1)
        .text();
}

std::string Guards::look_after(RunPlace& place, bool saves) {
    const bool keeps = snapshot_ && (saves || place.step % options_.snapshot_interval == 0);
    // before a snapshot or a checkpoint is taken, since a later rewind or resume would restore a wrong state
    const bool compares =
        replicas_ && (saves || keeps || place.step % options_.compare_replicas_interval == 0);
    if (compares)
        if (const std::string difference = replicas_->compare(); !difference.empty())
            return rewind_from(place, difference);
    if (!keeps) return "";
    if (options_.loss_spike == "rewind") state_.in_a_row = 0;
    take_snapshot(place);
    return "";
}

std::string Guards::rewind_from(RunPlace& place, const std::string& difference) {
    const std::string text = fmt::format("step {}: replicas differ: {}", place.step, difference);
    constexpr const char* cause = "Memory or arithmetic failed there: check the host";
    if (options_.on_mismatch == "stop")
        throw CollectiveError(
            fmt::format("{}. {}; this step is not saved, and the same command resumes from the last "
                        "checkpoint",
                        text, cause));
    if (repeats_)
        throw CollectiveError(fmt::format(
            "{}. They differed before, and the run has already rewound to the snapshot of step {}. {}; "
            "this step is not saved",
            text, snapshot_place_.step, cause));
    repeats_ = true;
    const int64_t step = place.step;
    restore_snapshot();
    place = snapshot_place_;
    snapshot_state_.events = state_.events + 1;
    state_ = snapshot_state_;
    if (engine_.mesh().world().rank() == 0)
        log::warn("{}. {}. The run rewinds to the snapshot of step {} and repeats the steps since then", text,
                  cause, place.step);
    return event_at(place, state_.events, "replicas_differ", "rewind")
        .set("found_step", step)
        .set("difference", difference)
        .text();
}

void Guards::take_snapshot(const RunPlace& place) {
    snapshot_->take();
    snapshot_place_ = place;
    snapshot_state_ = state_;
    repeats_ = false;
}

void Guards::restore_snapshot() {
    snapshot_->restore();
    engine_.renew_weights();
}

}  // namespace coeus
