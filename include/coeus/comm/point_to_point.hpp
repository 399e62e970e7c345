// SPDX-License-Identifier: Apache-2.0
// PointToPoint: sends and receives between single ranks that run beside the computation. Each has a number,
// by which it is waited for. Those of one channel between two ranks arrive in the order in which they were
// sent; channels do not wait for each other.
#pragma once

#include "coeus/comm/communicator.hpp"

namespace coeus {

enum class Sends : uint8_t {
    standard,    ///< MPI may buffer them
    synchronous  ///< none ends before its receive has begun, which shows dead-locks that buffering hides
};

class PointToPoint {
    using Where = std::source_location;

public:
    /// Numbers 0 to `count` - 1. `ranks` must outlive it; where it is planned, nothing is sent.
    PointToPoint(const Communicator& ranks, int count, Sends sends);
    /// Of tensors where `exec` runs, which must outlive it: on a GPU they pass through pinned memory, taken
    /// by the first message of each number.
    PointToPoint(const Communicator& ranks, int count, Sends sends, Exec& exec);
    /// Waits for all.
    ~PointToPoint();
    PointToPoint(const PointToPoint&) = delete;
    PointToPoint& operator=(const PointToPoint&) = delete;

    /// Begin a message of dense rows, which must stay as they are until wait(). LogicError where the number
    /// is not free.
    void send(int number, Tensor tensor, int peer, int channel, Where where = Where::current());
    void receive(int number, Tensor tensor, int peer, int channel, Where where = Where::current());
    /// Returns when the message is through, at once where none of this number is under way or it is below 0.
    /// The number is free again.
    void wait(int number);
    void wait_for_all();
    /// Lets what is under way go on; MPI may do so only while it is called.
    void progress();

private:
    struct Requests;
    const Communicator& ranks_;
    Exec* exec_ = nullptr;
    std::unique_ptr<Requests> requests_;
    Sends sends_;
};

}  // namespace coeus
