// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/timestamps.hpp"

namespace coeus {

Timestamps::Timestamps(const Exec& computation)
    : device_(computation.device),
      computation_(computation.is_synchronous() ? nullptr : computation.queue.get()) {
    restart();
}

void Timestamps::restart() {
    if (!computation_) return;
    taken_ = 0;
    computation_->finish();
    take(computation_);
    computation_->finish();
    restarted_ = now_();
}

Timestamp Timestamps::take(const Queue* queue) {
    if (!queue) return {.seconds = now_()};
    if (taken_ == events_.size()) events_.push_back(device_->make_timed_event());
    events_[taken_]->record(*queue);
    return {.place = int64_t(taken_++)};
}

double Timestamps::seconds(const Timestamp& stamp) const {
    return stamp.place < 0 ? stamp.seconds : restarted_ + event_of(stamp).seconds_since(*events_[0]);
}

double Timestamps::between(const Timestamp& first, const Timestamp& last) const {
    return first.place < 0 ? last.seconds - first.seconds : event_of(last).seconds_since(event_of(first));
}

}  // namespace coeus
