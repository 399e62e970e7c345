// SPDX-License-Identifier: Apache-2.0
// Messages of a planned communicator. They are not sent, but have their places in a queue, as those of NCCL
// have.
#include "message_carrier.hpp"

#include <algorithm>
#include <source_location>

namespace coeus {

namespace {

class PlannedMessages : public MessageCarrier {
public:
    PlannedMessages(const Communicator& ranks, int count, Exec& computation)
        : ranks_(ranks),
          computation_(computation),
          queue_(computation.device->make_queue(Priority::high)),
          points_(size_t(count)) {}

    void send(int number, Tensor tensor, int /*peer*/, int /*channel*/) override {
        given_.push_back(number);
        sent_ += tensor.bytes();
    }
    void receive(int number, Tensor tensor, int /*peer*/, int /*channel*/) override {
        given_.push_back(number);
        received_ += tensor.bytes();
    }

    // Messages that begin together are one operation; a link carries both directions at a time.
    void start() override {
        if (given_.empty()) return;
        queue_->wait_for(*computation_.queue, computation_.queue->mark());
        if (CommunicationObserver* observer = ranks_.observer())
            observer->end(observer->begin(ranks_.name(), "send_receive", std::max(sent_, received_),
                                          std::source_location::current(), queue_.get()));
        const int64_t point = queue_->mark();
        for (const int number : given_) points_[size_t(number)] = point;
        given_.clear();
        sent_ = received_ = 0;
    }

    void wait(int number) override {
        if (std::ranges::find(given_, number) != given_.end()) start();
        computation_.queue->wait_for(*queue_, points_[size_t(number)]);
    }

private:
    const Communicator& ranks_;
    Exec& computation_;
    std::unique_ptr<Queue> queue_;
    std::vector<int64_t> points_;  // in the queue, after each message
    std::vector<int> given_;       // not begun yet
    int64_t sent_ = 0, received_ = 0;
};

}  // namespace

std::unique_ptr<MessageCarrier> make_planned_messages(const Communicator& ranks, int count, Exec& exec) {
    return std::make_unique<PlannedMessages>(ranks, count, exec);
}

}  // namespace coeus
