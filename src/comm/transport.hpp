// SPDX-License-Identifier: Apache-2.0
// Transport: what carries a GPU's tensors between the ranks of a communicator, as work of a queue.
#pragma once

#include "coeus/comm/communicator.hpp"

namespace coeus {

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
};

/// By way of the host: copied to pinned memory, exchanged by the communicator's own collectives, copied back;
/// so the sums have the same bits as those of a CPU's tensors. For ranks that share a GPU, and where there is
/// no NCCL.
std::unique_ptr<Transport> make_staged_transport(const Communicator& ranks, const Device& device);

}  // namespace coeus
