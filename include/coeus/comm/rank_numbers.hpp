// SPDX-License-Identifier: Apache-2.0
// RankNumbers: a few numbers of every rank on rank 0, on their way while the ranks do other things.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <span>
#include <vector>

namespace coeus {

class RankNumbers {
public:
    /// Of so many numbers a rank. Takes all its memory, and a communicator of its own. Collective.
    RankNumbers(const Communicator& ranks, size_t count);
    /// Waits for what is under way.
    ~RankNumbers();
    RankNumbers(const RankNumbers&) = delete;
    RankNumbers& operator=(const RankNumbers&) = delete;

    /// Returns at once. Collective; nothing else may be under way.
    void begin(std::span<const double> values);
    bool is_under_way() const { return under_way_; }
    /// What begin() was given by rank 0, then by rank 1, ...; nothing elsewhere than on rank 0. Until the
    /// next begin(). Waits where it has to: called a while after begin(), it does not.
    std::span<const double> finish();

private:
    struct Request;
    Communicator ranks_;
    std::vector<double> own_, all_;
    std::unique_ptr<Request> request_;
    bool under_way_ = false;
};

}  // namespace coeus
