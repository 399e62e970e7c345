// SPDX-License-Identifier: Apache-2.0
// Work that may fail on some ranks only (a file that one rank writes): all ranks learn of it and fail alike,
// instead of waiting in the next collective for a rank that has left.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <functional>
#include <string>
#include <vector>

namespace coeus {

/// Calls work() on every rank. Where it throws on some, the error of the lowest such rank is thrown on all,
/// as ConfigError, NotFiniteError or StoppedError if it was one, else as CollectiveError, with the same text
/// (and the rank's number where it is not rank 0). Ranks without work sleep meanwhile. Collective; work()
/// itself must not contain collectives after a point where it may throw.
void together(const Communicator& comm, const std::function<void()>& work);

/// The same for rank 0's work alone.
inline void on_first_rank(const Communicator& comm, const std::function<void()>& work) {
    together(comm, [&] {
        if (comm.rank() == 0) work();
    });
}

/// Rank `root`'s text on every rank. Collective.
std::string broadcast_text(const Communicator& comm, std::string text, int root = 0);
/// The same of several.
std::vector<std::string> broadcast_texts(const Communicator& comm, const std::vector<std::string>& texts,
                                         int root = 0);

}  // namespace coeus
