// SPDX-License-Identifier: Apache-2.0
// OverlappedTokens: tokens are exchanged in parts, so that the product of one part is computed while the next
// one is transferred (asynchronous tensor parallelism; Wang et al. 2023, Overlap Communication with Dependent
// Computation via Decomposition).
#pragma once

#include "coeus/device/stream.hpp"
#include "coeus/layers/exchanges/sequence_parallel.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

/// Bytes of the memory in which rows arrive.
struct TokenRooms {
    int64_t gathered = 0;  ///< the rows of all ranks
    int64_t parts = 0;     ///< all ranks' parts of the sums of this rank's rows
};

/// A processor computes a product in tiles, and so many of them at a time.
struct ProductTiles {
    int64_t rows = 128, columns = 256;
    int64_t at_a_time = 0;  ///< 0: any product occupies it
};

/// How many ranks' rows one product computes: 1, 2 or 4. `rows` are those of one rank, `columns` those of the
/// result. It is the smallest number with which the most of the processor is busy, but at most half of the
/// ranks, so that something overlaps.
int ranks_together(int64_t rows, int64_t columns, int ranks, const ProductTiles& tiles);

/// Who sends to whom. Groups of ranks with adjacent numbers exchange one after the other; those of a group
/// exchange in adjacent steps.
class TokenSteps {
public:
    /// `together` divides `ranks`.
    TokenSteps(int rank, int ranks, int together) : rank_(rank), ranks_(ranks), together_(together) {}
    /// The ranks to which this one sends in a step, 1 to ranks - 1, and from which it receives. The steps
    /// below `together` are those of the own group.
    int to(int step) const { return rank_of(step / together_, step % together_); }
    int from(int step) const { return rank_of(groups() - step / together_, together_ - step % together_); }
    int groups() const { return ranks_ / together_; }
    int first_of_group(int rank) const { return rank - rank % together_; }

private:
    int rank_of(int groups_after, int places_after) const {
        const int group = (rank_ / together_ + groups_after) % groups(),
                  place = (rank_ % together_ + places_after) % together_;
        return group * together_ + place;
    }
    int rank_, ranks_, together_;
};

/// Each pair of ranks exchanges its rows by a message of its own, on a stream. Sums are taken in rank order,
/// as in one collective.
class OverlappedTokens : public TokenExchange {
public:
    /// Both must outlive it. The stream does the exchanges in the order of the calls, for a computation on
    /// its device. `rooms`: how much memory it gets; absent: it only measures. With `copies`, GPUs copy rows
    /// into each other's memory if they can (PeerMemory).
    /// Collective.
    OverlappedTokens(const Communicator& tp, Stream& stream, const ProductTiles& tiles, bool copies,
                     std::optional<TokenRooms> rooms);
    ~OverlappedTokens() override;
    /// Bytes of the memory that has these rooms.
    static int64_t bytes(const TokenRooms& rooms, int ranks, Backend backend);
    void gather_parts(Ctx& c, Tensor x, int64_t columns, EachRows each) const override;
    Tensor gather(Ctx& c, Tensor x, int64_t columns, EachRows each) const override;
    Tensor gather(Ctx& c, Tensor x) const override;
    void begin_gather(Ctx& c, Tensor x) const override;
    void scatter(Ctx& c, Tensor y, EachRows compute, Work meanwhile) const override;

    /// The most bytes that were ever in use.
    TokenRooms used() const;
    /// The arenas of the rooms, by name.
    std::vector<std::pair<std::string, const Arena*>> arenas() const;
    void observe(ArenaObserver* observer);
    /// Why GPUs that should copy into each other's memory cannot; empty if they can, or should not.
    const std::string& why_no_copies() const;

private:
    class Messages;
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace coeus
