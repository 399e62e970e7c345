// SPDX-License-Identifier: Apache-2.0
// PointToPoint: sends and receives between single ranks that run beside the computation. Each has a number,
// by which it is waited for. Those of one channel between two ranks arrive in the order in which they were
// sent. By MPI channels do not wait for each other; by NCCL, which has none, all messages of a rank are one
// line of work: each must be given in the same order by both ends, and in an order in which messages that
// wait for each other could all be sent one after the other.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <vector>

namespace coeus {

class MessageCarrier;

enum class Sends : uint8_t {
    standard,    ///< MPI may buffer them
    synchronous  ///< none ends before its receive has begun, which shows dead-locks that buffering hides
};

class PointToPoint {
    using Where = std::source_location;

public:
    /// Numbers 0 to `count` - 1. `ranks` must outlive it; where it is planned, nothing is sent.
    PointToPoint(const Communicator& ranks, int count, Sends sends);
    /// Of tensors where `exec` runs, which must outlive it. On a GPU they go by NCCL where `ranks` is
    /// connected, as work of a queue for which the computation's waits; else through pinned memory, taken by
    /// the first message of each number.
    PointToPoint(const Communicator& ranks, int count, Sends sends, Exec& exec);
    /// Waits for all.
    ~PointToPoint();
    PointToPoint(const PointToPoint&) = delete;
    PointToPoint& operator=(const PointToPoint&) = delete;

    /// A message of dense rows, which must stay as they are until wait(). It begins now, or with those of the
    /// other direction at start() or at the first wait for one of them. LogicError where the number is not
    /// free.
    void send(int number, Tensor tensor, int peer, int channel, Where where = Where::current());
    void receive(int number, Tensor tensor, int peer, int channel, Where where = Where::current());
    /// What was given until now begins. By NCCL together: then both ends of each give the same.
    void start();
    /// What follows in the computation finds the message through: on the host when it returns, at once where
    /// none of this number is under way or it is below 0. The number is free again.
    void wait(int number);
    void wait_for_all();
    /// Lets what is under way go on; MPI may do so only while it is called.
    void progress();

private:
    struct Message {
        const char* operation = nullptr;  ///< null: nothing under way
        int64_t bytes = 0;
        int peer = 0;
        Where where;
    };
    void note(int number, const char* operation, Tensor tensor, int peer, const Where& where);
    const Communicator& ranks_;
    const Queue* computation_ = nullptr;  ///< of a GPU
    std::vector<Message> under_way_;
    std::unique_ptr<MessageCarrier> messages_;  ///< null: planned
};

}  // namespace coeus
