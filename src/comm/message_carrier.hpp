// SPDX-License-Identifier: Apache-2.0
// MessageCarrier: how the messages of a PointToPoint get to other ranks. The PointToPoint has checked them
// and knows which are under way.
#pragma once

#include "coeus/comm/point_to_point.hpp"

namespace coeus {

/// Tensors as those of PointToPoint, of one that is not planned.
class MessageCarrier {
public:
    virtual ~MessageCarrier() = default;
    virtual void send(int number, Tensor tensor, int peer, int channel) = 0;
    virtual void receive(int number, Tensor tensor, int peer, int channel) = 0;
    /// What was given until now begins, if it has not yet.
    virtual void start() {}
    /// Of one that is under way: the tensor's computation goes on behind it.
    virtual void wait(int number) = 0;
    virtual void progress() {}
};

/// By MPI, tensors of the host.
std::unique_ptr<MessageCarrier> make_host_messages(const Communicator& ranks, int count, Sends sends);
/// By MPI, tensors where `exec` runs, by way of pinned memory.
std::unique_ptr<MessageCarrier> make_staged_messages(const Communicator& ranks, int count, Sends sends,
                                                     Exec& exec);

}  // namespace coeus
