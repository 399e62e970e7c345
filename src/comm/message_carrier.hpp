// SPDX-License-Identifier: Apache-2.0
// MessageCarrier: transports the messages of a PointToPoint to other ranks, through MPI or NCCL. The
// PointToPoint has checked the messages and knows which are pending.
#pragma once

#include "coeus/comm/point_to_point.hpp"

namespace coeus {

/// The arguments are those of PointToPoint.
class MessageCarrier {
public:
    virtual ~MessageCarrier() = default;
    virtual void send(int number, Tensor tensor, int peer, int channel) = 0;
    virtual void receive(int number, Tensor tensor, int peer, int channel) = 0;
    /// Begins the messages that were submitted so far, if they have not begun yet.
    virtual void start() {}
    /// Waits for a pending message: work that the computation gets after this call sees the message complete.
    virtual void wait(int number) = 0;
    virtual void progress() {}
};

/// Carries tensors in host memory through MPI.
std::unique_ptr<MessageCarrier> make_host_messages(const Communicator& ranks, int count, Sends sends);
/// Carries tensors where `exec` runs through MPI, by way of pinned host memory.
std::unique_ptr<MessageCarrier> make_staged_messages(const Communicator& ranks, int count, Sends sends,
                                                     Exec& exec);
/// Sends nothing, for a planned communicator beside an asynchronous computation. The observer of `ranks` is
/// told of each operation.
std::unique_ptr<MessageCarrier> make_planned_messages(const Communicator& ranks, int count, Exec& exec);

}  // namespace coeus
