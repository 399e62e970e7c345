// SPDX-License-Identifier: Apache-2.0
// ReplicaComparison: whether ranks that should hold the same bits do: data-parallel replicas all they own,
// tensor-parallel ranks what these do not divide (norms), two pipeline ranks a tied table. Compared are the
// sums that checkpoints have (io/checksum.hpp), for which no single changed element goes unseen.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/state/parameters.hpp"

#include <string>
#include <vector>

namespace coeus {

class ReplicaComparison {
public:
    /// Of parameters with memory, on a mesh; both outlive it. `hosts`: the names of all ranks'. Collective,
    /// as every member.
    ReplicaComparison(const Parameters& parameters, const Mesh& mesh, const std::vector<std::string>& hosts);

    /// What is compared among whom, in words, or that there is nothing.
    const std::string& text() const { return text_; }
    bool has_replicas() const { return !groups_.empty(); }
    /// Compares weights, moments, and the gradients that the last update saw. Reads all of it: not for every
    /// step. Returns which rank, host and tensor differ, in words, the same on all ranks; "" where none does.
    /// Where three or more hold the same, the one that most do not have is wrong.
    std::string compare() const;

private:
    struct Compared {
        std::string what;  // "weights of norm.weight"
        const Storage* storage;
        const Param* param;
        Tensor tensor;  // of the storage
        const Device* device;
    };
    // Ranks that hold the same of some tensors.
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
