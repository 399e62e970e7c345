// SPDX-License-Identifier: Apache-2.0
// NcclWorld: owns the NCCL communicators of a process.
#pragma once

#include "coeus/comm/nccl.hpp"
#include "coeus/comm/queue_watch.hpp"

#include <atomic>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace coeus {

class Communicator;

/// One NCCL communicator. `comm` is null after its NcclWorld was destroyed.
struct NcclConnection {
    const NcclLibrary& nccl;
    const std::string name;                  ///< name of the Communicator that it carries
    std::atomic<nccl::Comm> comm = nullptr;  ///< atomic: the thread of the QueueWatch reads it too
    std::unique_ptr<QueueWatch::Line> line;  ///< null: no QueueWatch

    NcclConnection(const NcclLibrary& library, std::string communicator)
        : nccl(library), name(std::move(communicator)) {}
    /// NCCL's description of a result: "unhandled system error: ...".
    std::string text_of(nccl::Result result) const;
    /// Throws SystemError with that description and the name unless the result is success.
    void check(nccl::Result result, const char* operation, const std::source_location& where) const;
};

/// The most blocks (CTAs) of a GPU that an operation takes; 0: NCCL chooses.
struct NcclCtas {
    int state = 0;   ///< for communicators of weights and gradients
    int others = 0;  ///< for all others
};

class NcclWorld {
public:
    /// Beyond this number of ranks, the ranks meet in several places, if NCCL can do that (2.23): a single
    /// one would have to answer all of them.
    static constexpr int usual_ranks_per_id = 1000;

    /// Uses the GPU of the calling thread; each rank must have a GPU of its own, unless NCCL lets ranks share
    /// one (nccl_environment.hpp). The communicators to connect are parts of `world`; the library, `world`
    /// and the device must outlive the NcclWorld. `watch` null: nothing watches them. All members are
    /// collective. CollectiveError if NCCL cannot connect the ranks.
    NcclWorld(const NcclLibrary& nccl, const Communicator& world, const Device& device,
              QueueWatch* watch = nullptr, int ranks_per_id = usual_ranks_per_id);
    /// Destroys all communicators, whose work must be complete. During an exception it aborts them instead,
    /// so that no queue waits for ranks that have left; therefore it must be destroyed before the queues.
    ~NcclWorld();
    NcclWorld(const NcclWorld&) = delete;
    NcclWorld& operator=(const NcclWorld&) = delete;

    /// Makes an NCCL communicator between these ranks. Each rank of the world passes the communicator that it
    /// belongs to. Null for a rank alone. `max_ctas`: most blocks of an operation, from NCCL 2.17 on; 0: NCCL
    /// chooses.
    std::shared_ptr<const NcclConnection> connect(const Communicator& ranks, int max_ctas = 0);
    /// Ends the communicator of all ranks from which the others are split, with its memory. Called when all
    /// communicators are connected: connect() is a LogicError after it.
    void end_connecting();
    /// "6 communicators in 1.25 s, split from one of all 8 ranks"
    std::string text() const;

private:
    std::shared_ptr<NcclConnection> start(const Communicator& ranks);
    void make(NcclConnection& made, const Communicator& ranks, nccl::Config* config);
    void split(NcclConnection& made, const Communicator& ranks, nccl::Config* config);
    std::vector<nccl::UniqueId> ids(const NcclConnection& made, const Communicator& ranks) const;

    const NcclLibrary& nccl_;
    const Communicator& world_;
    const Device& device_;
    QueueWatch* watch_;
    int ranks_per_id_;
    std::vector<std::shared_ptr<NcclConnection>> connections_;
    // from which the others are split; null: NCCL cannot split, or all are connected
    std::shared_ptr<NcclConnection> all_;
    bool splits_ = false, is_complete_ = false;
    double seconds_ = 0;
};

}  // namespace coeus
