// SPDX-License-Identifier: Apache-2.0
// PeerMemory: the ranks of a communicator copy rows into each other's GPUs by copy engines, which take no
// multiprocessors from the kernels that run at the same time. Each rank has memory of the same size, which
// all ranks open. Before a copy its receiver tells the sender that the place is free, and after it the sender
// tells the receiver that the rows have arrived, by numbers in this memory that queues write and wait for. As
// they become 0 again, a recorded graph repeats everything. NCCL's own copies do the same (its copy-engine
// collectives); they need windows and a newer library.
#pragma once

#include "coeus/base/host_name.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/device/peers.hpp"

#include <source_location>
#include <string>
#include <vector>

namespace coeus {

class PeerMemory {
    using Where = std::source_location;

public:
    /// Bytes for the numbers, at the beginning of the memory of each rank.
    static int64_t bytes_of_numbers(int ranks);
    /// Opens the memory of all ranks, which has the same size everywhere, and tries it: by copies and
    /// numbers, kernel by kernel and in a graph. `exec` is the one that will copy. Collective. Returns null
    /// on all ranks if it fails on one of them, and `why_not` says why. `host`: the name of this rank's host.
    static std::unique_ptr<PeerMemory> open(const Communicator& ranks, Exec& exec, const Buffer& memory,
                                            std::string& why_not, const std::string& host = host_name());
    /// Copies nothing, but tells the observer of a planned communicator.
    static std::unique_ptr<PeerMemory> planned(const Communicator& ranks);
    /// Collective, except during an exception.
    ~PeerMemory();
    PeerMemory(const PeerMemory&) = delete;
    PeerMemory& operator=(const PeerMemory&) = delete;

    /// Work of a queue, always of the same one: copies `sent` to the place in the memory of rank `to` that
    /// `place` has in this rank's, while `received`, a place in this memory, arrives from rank `from`. All
    /// ranks call it with matching partners and sizes. Rows are dense.
    void send_receive(Queue& queue, Tensor sent, int to, Tensor place, Tensor received, int from,
                      Where where = Where::current());

private:
    explicit PeerMemory(const Communicator& ranks) : ranks_(ranks) {}
    void connect(const Device& device, const Buffer& memory, const std::string& host);
    void try_out(Exec& exec) const;
    void pass(Queue& queue, Tensor sent, int to, Tensor place, Tensor received, int from) const;

    const Communicator& ranks_;
    std::unique_ptr<Peers> peers_;    // null: planned
    std::vector<std::byte*> memory_;  // of each rank, as it is here
    int64_t bytes_ = 0;
};

}  // namespace coeus
