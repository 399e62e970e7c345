// SPDX-License-Identifier: Apache-2.0
// Work that may fail on some ranks only (such as a file that one rank writes). All ranks learn of the failure
// and throw alike, instead of waiting in the next collective for a rank that has left.
#pragma once

#include "coeus/comm/communicator.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace coeus {

/// Calls work() on every rank. If it throws on some ranks, all ranks throw the error of the lowest of them:
/// as ConfigError, NotFiniteError or StoppedError if it was one, else as CollectiveError. The text is the
/// same, with the rank's number if that is not 0. Ranks without work sleep meanwhile. Collective; work() must
/// not contain a collective after a point at which it may throw.
void together(const Communicator& comm, const std::function<void()>& work);

/// The same, with work only on rank 0.
inline void on_first_rank(const Communicator& comm, const std::function<void()>& work) {
    together(comm, [&] {
        if (comm.rank() == 0) work();
    });
}

/// Returns rank `root`'s text on every rank. Collective.
std::string broadcast_text(const Communicator& comm, std::string text, int root = 0);
/// The same for several texts.
std::vector<std::string> broadcast_texts(const Communicator& comm, const std::vector<std::string>& texts,
                                         int root = 0);

/// Gives rank 0's numbers to every rank. Collective.
void broadcast_numbers(const Communicator& comm, std::vector<int32_t>& numbers);

/// Returns the texts of all ranks on every rank. Collective.
std::vector<std::string> gather_texts(const Communicator& comm, const std::string& text);

}  // namespace coeus
