// SPDX-License-Identifier: Apache-2.0
// Transport: what carries a GPU's tensors between the ranks of a communicator, as work of a queue.
#pragma once

#include "coeus/comm/communicator.hpp"

namespace coeus {

class MessageCarrier;
struct NcclConnection;

/// Operands as those of Communicator, dense and checked by it. A call returns when its work is given to the
/// queue, or done, and tells the communicator's observer.
class Transport {
public:
    using Where = std::source_location;
    virtual ~Transport() = default;
    virtual void all_reduce(Queue& queue, Tensor inout, Where where) = 0;
    virtual void all_gather(Queue& queue, Tensor out, Tensor in, Where where) = 0;
    virtual void reduce_scatter(Queue& queue, Tensor out, Tensor in, Where where) = 0;
    virtual void all_to_all(Queue& queue, Tensor out, Tensor in, Where where) = 0;
    virtual void send_receive(Queue& queue, Tensor sent, int to, Tensor received, int from, Where where) = 0;
    /// Calls that may begin together, when the last is given.
    virtual void grouped(FunctionRef<void()> calls) { calls(); }
    /// Of a PointToPoint with so many numbers whose computation that is; null: MPI carries them.
    virtual std::unique_ptr<MessageCarrier> make_messages(Exec& computation, int count);
};

/// By way of the host: copied to pinned memory, exchanged by the communicator's own collectives, copied back;
/// so the sums have the same bits as those of a CPU's tensors. For ranks that share a GPU, and where there is
/// no NCCL.
std::unique_ptr<Transport> make_staged_transport(const Communicator& ranks, const Device& device);

/// By NCCL, from GPU to GPU. A sum's bits depend on NCCL's algorithm and protocol (a ring adds in the order
/// of its ranks, from another one on for each part), which it chooses by size and machine, unless NCCL_ALGO
/// and NCCL_PROTO name them: the same from run to run on the same machine.
std::unique_ptr<Transport> make_nccl_transport(const Communicator& ranks,
                                               std::shared_ptr<const NcclConnection> connection);

}  // namespace coeus
