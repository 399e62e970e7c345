// SPDX-License-Identifier: Apache-2.0
// NcclWorld: owns the NCCL communicators of a process, whoever uses them.
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

/// One of them; `comm` is null once its world has ended.
struct NcclConnection {
    const NcclLibrary& nccl;
    const std::string name;                  ///< as its Communicator has it
    std::atomic<nccl::Comm> comm = nullptr;  ///< the watch's thread asks for it too
    std::unique_ptr<QueueWatch::Line> line;  ///< null: nobody watches

    NcclConnection(const NcclLibrary& library, std::string communicator)
        : nccl(library), name(std::move(communicator)) {}
    /// What NCCL says of a result: "unhandled system error: ...".
    std::string text_of(nccl::Result result) const;
    /// Throws SystemError with that and the name, unless all is well.
    void check(nccl::Result result, const char* operation, const std::source_location& where) const;
};

class NcclWorld {
public:
    /// The GPU of this rank is the one that this thread uses; no two of the ranks share one. Its
    /// communicators are those of parts of `world`, which outlives it like the others. `watch` null: nobody
    /// watches them. Collective, like every member. CollectiveError where NCCL cannot connect the ranks.
    NcclWorld(const NcclLibrary& nccl, const Communicator& world, const Device& device,
              QueueWatch* watch = nullptr);
    /// Destroys them all, whose work is done; while an exception is on its way aborts them, so that no queue
    /// waits for ranks that have left: it must end before the queues do.
    ~NcclWorld();
    NcclWorld(const NcclWorld&) = delete;
    NcclWorld& operator=(const NcclWorld&) = delete;

    /// One more, between these ranks, each rank of the world giving those that it is one of; null for a rank
    /// alone.
    std::shared_ptr<const NcclConnection> connect(const Communicator& ranks);
    /// "6 communicators in 1.25 s, split from one of all 8 ranks"
    std::string text() const;

private:
    NcclConnection& add(const Communicator& ranks);
    void make(NcclConnection& made, const Communicator& ranks);
    void split(NcclConnection& made, const Communicator& ranks);

    const NcclLibrary& nccl_;
    const Communicator& world_;
    const Device& device_;
    QueueWatch* watch_;
    std::vector<std::shared_ptr<NcclConnection>> connections_;
    const NcclConnection* all_ = nullptr;  // what the others are split from; null: NCCL cannot
    double seconds_ = 0;
};

}  // namespace coeus
