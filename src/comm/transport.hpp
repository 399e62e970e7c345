// SPDX-License-Identifier: Apache-2.0
// Transport: carries a GPU's tensors between the ranks of a communicator, as work of a queue.
#pragma once

#include "coeus/comm/communicator.hpp"

namespace coeus {

class MessageCarrier;
struct NcclConnection;

/// The rows of a range; LogicError if the tensor does not have them.
inline Tensor rows_of(Tensor t, RowRange range) {
    return t.slice_rows(range.first, range.count);
}
/// The bytes of the rows in `to`, or of those in `from`, whichever are more.
int64_t larger_bytes(Tensor t, std::span<const RowRange> to, std::span<const RowRange> from);
/// Those bytes of a dense tensor from `first` on, at most `most`. None, if it has no more.
std::span<std::byte> piece_of(Tensor t, int64_t first, int64_t most);

/// Operands are as in Communicator, which has checked them, and dense. A call returns when its work was
/// submitted to the queue, or is done. It reports itself to the communicator's observer.
class Transport {
public:
    using Where = std::source_location;
    virtual ~Transport() = default;
    virtual void all_reduce(Queue& queue, Tensor inout, Reduce op, Where where) = 0;
    virtual void all_gather(Queue& queue, Tensor out, Tensor in, Where where) = 0;
    virtual void reduce_scatter(Queue& queue, Tensor out, Tensor in, Where where) = 0;
    virtual void all_to_all(Queue& queue, Tensor out, Tensor in, Where where) = 0;
    /// Reads the ranges before it returns.
    virtual void all_to_all(Queue& queue, Tensor out, std::span<const RowRange> to, Tensor in,
                            std::span<const RowRange> from, Where where) = 0;
    virtual void send_receive(Queue& queue, Tensor sent, int to, Tensor received, int from, Where where) = 0;
    /// Groups calls, which may begin together when the last one is submitted.
    virtual void grouped(FunctionRef<void()> calls) { calls(); }
    /// The carrier of a PointToPoint with `count` numbers for that computation; null: MPI carries them.
    virtual std::unique_ptr<MessageCarrier> make_messages(Exec& computation, int count);
};

/// Carries tensors through the host: copies them to pinned memory, exchanges them by the communicator's own
/// collectives, and copies them back. So sums have the same bits as those of a CPU's tensors. Used for ranks
/// that share a GPU, and if there is no NCCL.
std::unique_ptr<Transport> make_staged_transport(const Communicator& ranks, const Device& device);

/// Carries tensors by NCCL, from GPU to GPU. The bits of a sum depend on NCCL's algorithm and protocol, which
/// it chooses by size and machine unless NCCL_ALGO and NCCL_PROTO name them. (A ring, for example, adds in
/// the order of its ranks, and each part of the tensor begins at another rank.) They are the same from run to
/// run on the same machine.
std::unique_ptr<Transport> make_nccl_transport(const Communicator& ranks,
                                               std::shared_ptr<const NcclConnection> connection);

}  // namespace coeus
