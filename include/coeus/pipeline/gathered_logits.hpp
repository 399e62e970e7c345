// SPDX-License-Identifier: Apache-2.0
// GatheredLogits: the logits of a few tokens. Each tensor-parallel rank computes some of their columns, and
// gets all of them on the host.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/state/param.hpp"

namespace coeus {

class GatheredLogits {
public:
    /// For up to `tokens` tokens at a time, without memory. `output`: the table [V, D] that the ranks divide.
    GatheredLogits(const Param& output, Dtype type, int64_t tokens, int ranks);

    /// The most columns that a rank computes.
    int64_t columns() const { return columns_; }
    /// Bytes where the ranks compute, and more on the host; `gpu`: these are two places.
    int64_t bytes() const { return ranks_ * tokens_ * columns_ * size_of(type_); }
    int64_t bytes_on_host(bool gpu) const;
    /// Allocates the memory. `ranks` must outlive it.
    void allocate(const Communicator& ranks, const Device& device);

    /// The place of this rank's columns of the logits of `tokens` tokens: [tokens, columns of this rank].
    Tensor own(int64_t tokens) const;
    /// All columns on the host, [tokens, V], valid until the next call. Collective over the ranks.
    Tensor gather(Exec& exec, int64_t tokens) const;

private:
    int64_t columns_of(int rank) const { return output_.part(ranks_, rank).rows; }
    Tensor of_rank(Tensor all, int rank, int64_t tokens) const {
        return all.slice_rows(rank * tokens, tokens);
    }
    Param output_;
    Dtype type_;
    int64_t tokens_, columns_;
    int ranks_;
    const Communicator* communicator_ = nullptr;
    OwnedTensor there_;  // of all ranks, one after the other
    OwnedTensor copy_;   // the same on the host of a GPU
    OwnedTensor rows_;   // whole rows, if several ranks divide them
};

}  // namespace coeus
