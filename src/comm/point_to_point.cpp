// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/point_to_point.hpp"

#include "coeus/base/flight_recorder.hpp"
#include "communicator_handle.hpp"
#include "message_carrier.hpp"

namespace coeus {

namespace {

std::unique_ptr<MessageCarrier> carrier(const Communicator& ranks, int count, Sends sends, Exec& exec) {
    if (ranks.is_planned())
        return exec.is_synchronous() ? nullptr : make_planned_messages(ranks, count, exec);
    if (exec.is_synchronous()) return make_host_messages(ranks, count, sends);
    if (Transport* transport = ranks.handle().transport.get())
        if (auto messages = transport->make_messages(exec, count)) return messages;
    return make_staged_messages(ranks, count, sends, exec);
}

}  // namespace

std::unique_ptr<MessageCarrier> Transport::make_messages(Exec& /*computation*/, int /*count*/) {
    return nullptr;
}

PointToPoint::PointToPoint(const Communicator& ranks, int count, Sends sends)
    : ranks_(ranks),
      under_way_(size_t(count)),
      messages_(ranks.is_planned() ? nullptr : make_host_messages(ranks, count, sends)) {}

PointToPoint::PointToPoint(const Communicator& ranks, int count, Sends sends, Exec& exec)
    : ranks_(ranks),
      computation_(exec.is_synchronous() ? nullptr : exec.queue.get()),
      under_way_(size_t(count)),
      messages_(carrier(ranks, count, sends, exec)) {}

PointToPoint::~PointToPoint() = default;

void PointToPoint::note(int number, const char* operation, Tensor tensor, int peer, const Where& where) {
    require(tensor.dense(), "a message needs dense rows");
    Message& message = under_way_[size_t(number)];
    require(message.operation == nullptr, "a message begins under a number that is in use");
    message = {operation, tensor.bytes(), peer, where};
}

void PointToPoint::send(int number, Tensor tensor, int peer, int channel, Where where) {
    if (!messages_) return;
    note(number, "send", tensor, peer, where);
    messages_->send(number, tensor, peer, channel);
}

void PointToPoint::receive(int number, Tensor tensor, int peer, int channel, Where where) {
    if (!messages_) return;
    note(number, "receive", tensor, peer, where);
    messages_->receive(number, tensor, peer, channel);
}

void PointToPoint::start() {
    if (messages_) messages_->start();
}

// An observer sees the waiting time, which is the part of a message that the computation does not hide.
void PointToPoint::wait(int number) {
    if (number < 0 || !under_way_[size_t(number)].operation) return;
    Message& message = under_way_[size_t(number)];
    const Recorded recorded(ranks_.handle().line, OperationKind::message, message.operation, message.bytes,
                            message.where, message.peer);
    CommunicationObserver* observer = ranks_.is_planned() ? nullptr : ranks_.observer();
    const int64_t event = observer ? observer->begin(ranks_.name(), message.operation, message.bytes,
                                                     message.where, computation_)
                                   : 0;
    messages_->wait(number);
    message.operation = nullptr;
    if (observer) observer->end(event);
}

void PointToPoint::wait_for_all() {
    for (int number = 0; number < int(under_way_.size()); ++number) wait(number);
}

void PointToPoint::progress() {
    if (messages_) messages_->progress();
}

}  // namespace coeus
