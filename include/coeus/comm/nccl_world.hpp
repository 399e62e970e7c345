// SPDX-License-Identifier: Apache-2.0
// NcclWorld: owns the NCCL communicators of a process, whoever uses them.
#pragma once

#include "coeus/comm/nccl.hpp"

#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace coeus {

class Communicator;

/// One of them; `comm` is null once its world has ended.
struct NcclConnection {
    const NcclLibrary& nccl;
    nccl::Comm comm = nullptr;
    std::string name;  ///< as its Communicator has it

    /// Throws SystemError with the name and what NCCL says, unless all is well.
    void check(nccl::Result result, const char* operation, const std::source_location& where) const;
};

class NcclWorld {
public:
    /// The library outlives it.
    explicit NcclWorld(const NcclLibrary& nccl) : nccl_(nccl) {}
    /// Destroys them all, whose work is done; while an exception is on its way aborts them, so that no queue
    /// waits for ranks that have left: it must end before the queues do.
    ~NcclWorld();
    NcclWorld(const NcclWorld&) = delete;
    NcclWorld& operator=(const NcclWorld&) = delete;

    /// One more, between these ranks. Collective among them. CollectiveError with what NCCL says where it
    /// cannot connect them.
    std::shared_ptr<const NcclConnection> connect(const Communicator& ranks);

private:
    const NcclLibrary& nccl_;
    std::vector<std::shared_ptr<NcclConnection>> connections_;
};

}  // namespace coeus
