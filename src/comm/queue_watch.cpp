// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/queue_watch.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace coeus {

QueueWatch::~QueueWatch() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void QueueWatch::allow(double seconds, const std::string& option) {
    const std::lock_guard lock(mutex_);
    allowed_ = seconds;
    option_ = option;
}

void QueueWatch::start() {
    thread_ = std::thread([this] { loop(); });
}

void QueueWatch::loop() {
    while (true) {
        {
            std::unique_lock lock(mutex_);
            const std::chrono::duration<double> pause(std::clamp(allowed_ / 10, 0.001, 1.0));
            const Timer timer;
            if (changed_.wait_for(lock, pause, [this] { return ending_; })) return;
            // the job was suspended: the operations in progress have not taken that time
            if (timer.seconds() > pause.count() + 1 + allowed_ / 2)
                for (Line* line : lines_) line->begin_again();
        }
        look();
    }
}

void QueueWatch::look() {
    std::string message;
    {
        const std::lock_guard lock(mutex_);
        const double now = settings_.clock();
        for (Line* line : lines_) {
            if (failed_) break;
            const Line::Operation* operation = line->first_under_way();
            const std::string what =
                operation ? fmt::format("{} (operation {}, {})", operation->name, operation->number + 1,
                                        bytes_text(double(operation->bytes)))
                          : "no operation under way";
            if (const std::string failure = line->failure_ ? line->failure_() : ""; !failure.empty()) {
                message = fmt::format("{}: the communicator between the ranks of {} failed: {} ({})",
                                      settings_.who, line->communicator_, failure, what);
            } else if (operation && operation->since >= 0 &&
                       now - operation->since > allowed_ + operation->seconds) {
                message = fmt::format(
                    "{}: {} between the ranks of {} has not ended after {:.0f} s ({} = {:.0f}{}): another "
                    "rank has not reached it, has ended, or is that much slower; look for the first message "
                    "of the other ranks",
                    settings_.who, what, line->communicator_, now - operation->since, option_, allowed_,
                    operation->seconds > 0 ? fmt::format(", and {:.0f} of its own", operation->seconds) : "");
            }
            failed_ = !message.empty();
        }
    }
    if (!message.empty()) settings_.fail(message);
}

void QueueWatch::join(Line& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(&line);
}

void QueueWatch::leave(Line& line) {
    const std::lock_guard lock(mutex_);
    std::erase(lines_, &line);
}

QueueWatch::Line::Line(QueueWatch& watch, std::string communicator, std::function<std::string()> failure,
                       const Device* device, FlightRecorder::Line recorded, OperationKind kind)
    : watch_(watch),
      communicator_(std::move(communicator)),
      failure_(std::move(failure)),
      recorded_(std::move(recorded)),
      kind_(kind) {
    if (device)
        for (Operation& operation : ring_) {
            operation.begun = device->make_event();
            operation.ended = device->make_event();
        }
    watch_.join(*this);
}

QueueWatch::Line::~Line() {
    watch_.leave(*this);
    for (Operation& operation : ring_) FlightRecorder::own().end(operation.entry);
}

// The time of an operation counts from when the device was first seen to have reached it: the host is far
// ahead of the device, and the device's other work may take any time.
QueueWatch::Line::Operation* QueueWatch::Line::first_under_way() {
    for (; first_ < given_; ++first_) {
        Operation& operation = at(first_);
        if (operation.begun && !operation.begun->passed()) return &operation;
        if (operation.since < 0) {
            operation.since = watch_.settings_.clock();
            FlightRecorder::own().reach(operation.entry);
        }
        if (!(operation.host_ended && (!operation.ended || operation.ended->passed()))) return &operation;
        FlightRecorder::own().end(std::exchange(operation.entry, -1));
    }
    return nullptr;
}

void QueueWatch::Line::begin_again() {
    for (int64_t number = first_; number < given_; ++number)
        if (at(number).since >= 0) at(number).since = watch_.settings_.clock();
}

// If the ring is full of operations in progress, the last slot represents all later ones.
void QueueWatch::Line::begin(const char* operation, int64_t bytes, const Queue* queue, double seconds) {
    if (queue && queue->is_recording()) return;
    const std::lock_guard lock(watch_.mutex_);
    if (given_ - first_ == int64_t(remembered_)) first_under_way();
    const bool full = given_ - first_ == int64_t(remembered_);
    if (!full) ++given_;
    Operation& place = at(given_ - 1);
    place.host_ended = false;
    if (full) return FlightRecorder::own().pass_over(recorded_);
    place.name = operation;
    place.bytes = bytes;
    place.number = given_ - 1;
    place.since = -1;
    place.seconds = seconds;
    place.entry = FlightRecorder::own().begin(&recorded_, kind_, operation, bytes, "", 0, -1, seconds);
    if (!queue) FlightRecorder::own().reach(place.entry);
    if (queue && place.begun) place.begun->record(*queue);
}

void QueueWatch::Line::end(const Queue* queue) {
    if (queue && queue->is_recording()) return;
    const std::lock_guard lock(watch_.mutex_);
    Operation& place = at(given_ - 1);
    if (queue && place.ended) place.ended->record(*queue);
    place.host_ended = true;
}

}  // namespace coeus
