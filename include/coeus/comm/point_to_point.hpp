// SPDX-License-Identifier: Apache-2.0
// PointToPoint: asynchronous messages between single ranks, for pipeline parallelism. Each message has a
// number, by which it is waited for, and a channel: messages of one channel between two ranks arrive in the
// order in which they were sent. With MPI, channels do not wait for each other. NCCL has no channels: all
// messages of a rank form one sequence of work. Both ends must submit them in the same order, and it must be
// an order in which messages that wait for each other could all be sent one after the other.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <vector>

namespace coeus {

class MessageCarrier;

enum class Sends : uint8_t {
    standard,    ///< MPI may buffer them
    synchronous  ///< ends after its receive has begun, which exposes deadlocks that buffering hides
};

class PointToPoint {
    using Where = std::source_location;

public:
    /// Messages of host tensors, with the numbers 0 to `count` - 1. `ranks` must outlive it; if it is
    /// planned, nothing is sent.
    PointToPoint(const Communicator& ranks, int count, Sends sends);
    /// Messages of tensors where `exec` runs, which must outlive it. On a GPU, NCCL carries them if `ranks`
    /// is connected, on a queue of their own for which the computation's queue waits. Otherwise they go
    /// through pinned host memory, which the first message of each number allocates. If `ranks` is planned,
    /// nothing is sent, but on a device that is not the host its observer is told.
    PointToPoint(const Communicator& ranks, int count, Sends sends, Exec& exec);
    /// Waits for all messages.
    ~PointToPoint();
    PointToPoint(const PointToPoint&) = delete;
    PointToPoint& operator=(const PointToPoint&) = delete;

    /// Submits a message of dense rows, which must not change until wait(). With MPI it begins at once; with
    /// NCCL at the next start(), or at the first wait() for a message that has not begun. LogicError if the
    /// number is in use.
    void send(int number, Tensor tensor, int peer, int channel, Where where = Where::current());
    void receive(int number, Tensor tensor, int peer, int channel, Where where = Where::current());
    /// Begins the messages that were submitted so far. With NCCL they begin together, so the other end of
    /// each must submit the same group.
    void start();
    /// Work submitted after this call sees the message complete, and the number is free again. On the host
    /// the call blocks. It returns at once if no message with this number is pending, or if the number is
    /// negative.
    void wait(int number);
    void wait_for_all();
    /// Lets pending messages make progress. MPI may progress them only during its calls.
    void progress();

private:
    struct Message {
        const char* operation = nullptr;  ///< null: no message pending
        int64_t bytes = 0;
        int peer = 0;
        Where where;
    };
    void note(int number, const char* operation, Tensor tensor, int peer, const Where& where);
    const Communicator& ranks_;
    const Queue* computation_ = nullptr;  ///< of a GPU; null: the computation is synchronous
    std::vector<Message> under_way_;
    std::unique_ptr<MessageCarrier> messages_;  ///< null: nothing is sent or observed
};

}  // namespace coeus
