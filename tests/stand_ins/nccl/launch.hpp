// SPDX-License-Identifier: Apache-2.0
// The operations of the stand-in for NCCL: how they begin, exchange their data by MPI and end.
#pragma once

#include "stand_ins/cuda/runtime.hpp"
#include "stand_ins/nccl/nccl.hpp"

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace coeus::nccl {

struct OpaqueComm {
    int id = 0, rank = 0;
    std::vector<int> world_ranks;       // of the communicator's ranks
    int max_ctas = 0;                   // most blocks of an operation; 0: the stand-in's usual number
    int64_t bytes = 0;                  // of the GPU's memory
    int collectives = 0;                // number given until now
    std::map<int, int> sent, received;  // numbers of messages to and from each rank, given until now
    int given = 0, done = 0;            // numbers of launches
    int kept = 0;                       // number of graphs that use it
    bool finalized = false;             // only its destruction may follow
    std::atomic<bool> aborted = false;  // if true, its remaining work does nothing
    bool has_met = false;               // its ranks have met on the host, for collectives
    std::set<int> met_to, met_from;     // ranks that this one has met for messages to and from them
};

}  // namespace coeus::nccl

namespace coeus::test::stand_in {

enum class Kind : int { all_reduce, reduce_scatter, all_gather, message };

/// The properties on which ranks must agree; for a message, sender and receiver.
struct Header {
    Kind kind;
    int number;  ///< counts the communicator's collectives, or its messages between two ranks
    int64_t count;
    nccl::DataType type;
    nccl::RedOp operation = nccl::RedOp::sum;
    bool operator==(const Header&) const = default;
};

/// One rank's part of a call: the data sent to a peer, or received from one.
struct Transfer {
    int peer;
    int tag;
    Header own, theirs = {};
    std::vector<std::byte> data;
};

struct Call {
    Header header;
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int peer = -1;  ///< of a message
    bool sends = true, receives = true;
    std::vector<Transfer> out, in;
};

/// Calls that begin together.
struct Launch {
    nccl::Comm comm = nullptr;
    coeus_emulated_stream* stream = nullptr;
    int number = 0;
    bool begun = false;
    std::vector<Call> calls;
    std::vector<MPI_Request> requests;
};

/// 0 for a type that NCCL does not have here.
int64_t bytes_of(nccl::DataType type);
/// The bytes of a rank's input that a peer needs.
int64_t sent_bytes(const Call& call);
/// Submits calls to their stream; during a capture, at each launch of the graph.
nccl::Result launch(const Launch& calls);
/// Forgets the launches of a communicator that are under way.
void forget(nccl::Comm comm);
/// Collective over the world in its first call.
void set_up_stand_in();

inline MPI_Comm world = MPI_COMM_NULL;
/// Guards the streams' work and the calls of other threads.
inline std::recursive_mutex mutex;
inline int launches = 0;
inline NcclMode mode;

}  // namespace coeus::test::stand_in
