// SPDX-License-Identifier: Apache-2.0
// A folder that all ranks share, and groups of 1, 2 or 4 ranks of one world that write into it.
#pragma once

#include "coeus/comm/together.hpp"
#include "support/support.hpp"

#include <optional>
#include <string>

namespace coeus::test {

/// A folder whose path all ranks know; rank 0 owns it.
struct SharedFolder {
    explicit SharedFolder(const Communicator& world) : world_(world) {
        if (world.rank() == 0) own_.emplace();
        path = broadcast_text(world, own_ ? own_->path().string() : "");
    }
    ~SharedFolder() { world_.barrier(); }
    std::string path;

private:
    const Communicator& world_;
    std::optional<test::TemporaryFolder> own_;
};

/// Groups of `size` adjacent ranks; the remaining ranks form a smaller group that takes no part.
struct Group {
    Communicator comm;
    bool takes_part;
    int number;
    Group(const Communicator& world, int size)
        : comm(world.split(world.rank() / size, "group")),
          takes_part(comm.size() == size),
          number(world.rank() / size) {}
};

}  // namespace coeus::test
