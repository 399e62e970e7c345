// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/stamps.hpp"

namespace coeus {

Stamps::Stamps(const Exec& computation) : device_(computation.device), computation_(computation.queue.get()) {
    restart();
}

void Stamps::restart() {
    if (!computation_) return;
    taken_ = 0;
    computation_->finish();
    take(computation_);
    computation_->finish();
    restarted_ = now_();
}

Stamp Stamps::take(const Queue* queue) {
    if (!queue) return {.seconds = now_()};
    if (taken_ == events_.size()) events_.push_back(device_->make_timed_event());
    events_[taken_]->record(*queue);
    return {.place = int64_t(taken_++)};
}

double Stamps::seconds(const Stamp& stamp) const {
    return stamp.place < 0 ? stamp.seconds : restarted_ + event_of(stamp).seconds_since(*events_[0]);
}

double Stamps::between(const Stamp& first, const Stamp& last) const {
    return first.place < 0 ? last.seconds - first.seconds : event_of(last).seconds_since(event_of(first));
}

}  // namespace coeus
