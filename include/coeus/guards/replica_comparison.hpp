// SPDX-License-Identifier: Apache-2.0
// ReplicaComparison: checks that ranks that should hold the same bits do. Data-parallel replicas compare all
// tensors that they own, tensor-parallel ranks those that are not divided among them (norms), and two
// pipeline ranks a tied table. It compares the checksums of checkpoints (io/checksum.hpp), which detect every
// change of a single element.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/state/parameters.hpp"

#include <string>
#include <vector>

namespace coeus {

class ReplicaComparison {
public:
    /// The parameters have memory. `hosts`: name of each rank's host. All arguments outlive it. Collective,
    /// like compare().
    ReplicaComparison(const Parameters& parameters, const Mesh& mesh, const std::vector<std::string>& hosts);

    /// A line for the log: which tensors are compared over which axes, or that there are none.
    const std::string& text() const { return text_; }
    bool has_replicas() const { return !groups_.empty(); }
    /// Compares weights, moments, and the gradients of the last update. It reads all of them, so do not call
    /// it in every step. Returns in words which rank, host and tensor differ, the same on all ranks; "" if
    /// none does. With three or more replicas, those that differ from the majority are wrong.
    std::string compare() const;

private:
    struct Compared {
        std::string what;  // "weights of norm.weight"
        const Storage* storage;
        const Param* param;
        Tensor tensor;  // belongs to the storage
        const Device* device;
    };
    // Ranks that hold the same elements of some tensors.
    struct Group {
        Communicator ranks;
        std::vector<int64_t> world_ranks;
        std::vector<Compared> tensors;
    };
    void add_group(unsigned axes, bool shared_table);
    std::vector<Compared> tensors_of(unsigned axes, bool shared_table) const;
    std::string compare(const Group& group) const;

    const Parameters& parameters_;
    const Mesh& mesh_;
    const std::vector<std::string>& hosts_;
    std::string text_;
    std::vector<Group> groups_;
};

}  // namespace coeus
