// SPDX-License-Identifier: Apache-2.0
#include "coeus/job/stop.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/stop_signals.hpp"

#include <limits>
#include <utility>

namespace coeus {

namespace {

constexpr double patience_seconds = 2;  // waiting for squeue, which reduces the time for saving

}  // namespace

Stop::Stop(const Communicator& world, JobEnd::Options end, double margin)
    : world_(world), end_(world.rank() == 0 ? std::move(end) : JobEnd::Options(), margin), margin_(margin) {}

bool Stop::agreed(double needed) {
    if (reason_ != 0) return true;
    StopReason own = stop_request();
    if (const auto left = end_.seconds_left(); own == 0 && left && *left < margin_ + needed)
        own = out_of_time;
    reason_ = StopReason(world_.all_reduce(int64_t(own), Reduce::max));
    if (reason_ != 0) end_announcements();
    return reason_ != 0;
}

std::string Stop::reason() const {
    return text_of(reason_);
}

std::optional<double> Stop::seconds_left() {
    constexpr double unknown = std::numeric_limits<double>::max();
    double left = 0;
    if (world_.rank() == 0) {
        if (reason_ != out_of_time) end_.ask_again(patience_seconds);
        left = end_.seconds_left().value_or(unknown);
    }
    left = world_.all_reduce(left);
    return left < unknown ? std::optional(left) : std::nullopt;
}

void Stop::end_if_agreed(const char* state) {
    if (agreed()) throw StoppedError(fmt::format("Stopped by {}: {}", reason(), state));
}

}  // namespace coeus
