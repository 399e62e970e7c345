// SPDX-License-Identifier: Apache-2.0
// RankNumbers: an asynchronous gather of a few numbers from every rank to rank 0.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <span>
#include <vector>

namespace coeus {

class RankNumbers {
public:
    /// Gathers `count` numbers per rank. Allocates all its memory, and a communicator of its own. Collective.
    RankNumbers(const Communicator& ranks, size_t count);
    /// Waits for a gather in progress.
    ~RankNumbers();
    RankNumbers(const RankNumbers&) = delete;
    RankNumbers& operator=(const RankNumbers&) = delete;

    /// Begins a gather of `values` and returns at once. Collective. Only one gather may be in progress.
    void begin(std::span<const double> values);
    bool is_under_way() const { return under_way_; }
    /// Ends the gather. On rank 0, returns the values of rank 0, then of rank 1, ..., valid until the next
    /// begin(); on other ranks the result is empty. Blocks if the gather is not complete yet.
    std::span<const double> finish();

private:
    struct Request;
    Communicator ranks_;
    std::vector<double> own_, all_;
    std::unique_ptr<Request> request_;
    bool under_way_ = false;
};

}  // namespace coeus
