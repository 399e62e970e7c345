// SPDX-License-Identifier: Apache-2.0
// The data of a Communicator: its MPI communicator, and memory for its sums.
#pragma once

#include "check_mpi.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/device/memory.hpp"
#include "transport.hpp"

#include <algorithm>
#include <vector>

namespace coeus {

struct Communicator::Handle {
    MPI_Comm comm = MPI_COMM_NULL;
    Buffer staging;                        // one piece from each peer
    std::vector<int64_t> numbers;          // one from each rank: enough for sums of single numbers
    std::vector<MPI_Request> requests;     // two for each peer
    uint64_t origin = 0;                   // the same on all ranks that made it together, by the same call
    uint64_t splits = 0;                   // how many were split from it so far
    FlightRecorder::Line line;             // the flight recorder's, for its collectives and messages
    std::unique_ptr<Transport> transport;  // for a device's tensors; made by connect() or at the first use

    explicit Handle(MPI_Comm c, uint64_t made_by = 0) : comm(c), origin(made_by) {
        int size = 1;
        if (comm != MPI_COMM_NULL) COEUS_CHECK_MPI(MPI_Comm_size(comm, &size));
        piece_bytes = bytes_from_each(size);
        ranks = size;
        requests.reserve(size_t(2 * size));
        numbers.resize(size_t(size));
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        int finalised = 0;
        MPI_Finalized(&finalised);
        if (comm != MPI_COMM_NULL && !finalised) MPI_Comm_free(&comm);
    }

    // Allocated at the first reduction unless it was prepared: most communicators of a mesh never reduce
    // anything large.
    std::byte* pieces() {
        if (staging.bytes() == 0) staging = Buffer(piece_bytes * ranks, "reduction buffers");
        return staging.data();
    }

    // 16 MiB in all, unless the pieces would become too small
    static int64_t bytes_from_each(int ranks) {
        const int64_t piece = std::min((int64_t(16) << 20) / ranks / 64 * 64, int64_t(256) << 10);
        return std::max(piece, int64_t(4) << 10);
    }
    int64_t piece_bytes = bytes_from_each(1);
    int ranks = 1;
};

}  // namespace coeus
