// SPDX-License-Identifier: Apache-2.0
// Gathered: the weights and gradients of units (blocks, embedding, head) while layers use them. A lease says
// how long a unit is in use. If several ranks divide the parameters (fully sharded data parallelism,
// Rajbhandari et al. 2020; Zhao et al. 2023):
//
//   weights     the owned rows are all-gathered in the compute type, or in 8 bits (one_scale_weights.hpp),
//               into the unit's place in a buffer
//   gradients   a full gradient, which is zero or counts as zero (Storage::forget_gradient) at the beginning
//               of the lease, is reduce-scattered at its end and added to the owned rows. Frozen
//               parameters have none
//
// Gradients in bfloat16 are summed over ranks in float32: pieces, across all gradients of a unit, are
// converted into one half of a buffer, summed there, and added to the owned rows, which are float32 (or,
// without shards, converted back). The next piece is converted into the other half at the same time.
//
// If replicas have the same rows, the owned gradients are summed over the replicas once the step's last
// gradient of the unit is complete. Each storage's sharding says which ranks these are. The collectives of a
// unit are grouped by sharding, in the order of the shardings' numbers on every rank; the sums of a
// sharding's gradients in bfloat16 follow its group. A storage that no other rank divides is used where it is
// owned, even if other storages of its unit are gathered.
//
// All collectives run on streams: the gather of the next unit overlaps with the computation of the present
// one, and the reduction of a unit with the backward of the next one. If units are released after use, they
// take turns in one buffer, which is as large as the two largest neighbours (unit_places.hpp), or as three
// units in a row if weights are gathered two units ahead, or if two neighbours are in use at a time.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/state/parameters.hpp"

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace coeus {

/// What happens to a unit between two uses in a step.
enum class Keep : uint8_t {
    neighbours,  ///< units take turns in a buffer: weights are gathered again for the backward, and gradients
                 ///< are reduced in each micro-batch
    all  ///< every unit has a place of its own: weights are gathered once a step, and gradients are reduced
         ///< at its end
};

struct GatherOptions {
    Keep weights = Keep::neighbours;
    Keep gradients = Keep::neighbours;
    int prefetch = 1;  ///< how many units are gathered ahead of the one in use, if weights are not kept
    int in_use =
        1;  ///< units in use at a time: 1, or 2 neighbours, for which the buffers have one more place
    /// Most elements of gradients in bfloat16 that are in float32 at a time, over all ranks: 128 MiB.
    int64_t most_summed = int64_t(1) << 25;
};

/// The ranks of one sharding that gather weights and sum gradients. `gather` and `reduce` are two
/// communicators over the same ranks, since gathers and reductions run at the same time.
struct GatherRanks {
    const Communicator& gather;
    const Communicator& reduce;
    const Communicator& replicas;
};

class Gathered {
public:
    /// Lays out the units; allocates no memory yet.
    Gathered(Parameters& parameters, const GatherOptions& options);
    ~Gathered();
    Gathered(const Gathered&) = delete;
    Gathered& operator=(const Gathered&) = delete;

    struct Bytes {
        int64_t weights = 0, gradients = 0;
        int64_t sums = 0;  ///< gradients in float32 while they are summed
    };
    Bytes bytes() const;
    /// Allocates the memory. `ranks` has the communicators of each sharding, by its number. `compute` is the
    /// Exec of the computation: the memory is on its device, its threads zero the gradients, and its
    /// observers see the waits.
    void allocate(const std::vector<GatherRanks>& ranks, Stream::Mode streams, Exec& compute,
                  const Kernels& kernels);

    /// The Execs of gathers and reductions. Their observers are notified by the threads of the streams. Valid
    /// after allocate().
    struct Execs {
        Exec &gather, &reduce;
        Exec* convert;  ///< null: no gradient in bfloat16 is summed
    };
    Execs execs() const { return {gather_stream_->exec(), reduce_stream_->exec(), convert_.get()}; }

    /// Keeps w of a unit's storages valid while it lives. `gathered` null (planning, one rank): w is always
    /// valid.
    class [[nodiscard]] WeightLease {
    public:
        WeightLease(Gathered* gathered, size_t unit) : gathered_(gathered), unit_(unit) {
            if (gathered_) gathered_->hold_weights(unit);
        }
        ~WeightLease() {
            if (gathered_) gathered_->release_weights(unit_);
        }
        WeightLease(const WeightLease&) = delete;
        WeightLease& operator=(const WeightLease&) = delete;

    private:
        Gathered* gathered_;
        size_t unit_;
    };
    /// The same for g. release() must be called after the last addition and reduces the gradients. A lease
    /// that ends without it, because of an exception, only gives its place back.
    class [[nodiscard]] GradientLease {
    public:
        GradientLease(Gathered* gathered, size_t unit) : gathered_(gathered), unit_(unit) {
            if (gathered_) gathered_->hold_gradients(unit);
        }
        ~GradientLease() {
            if (gathered_) gathered_->give_back_gradients(unit_);
        }
        /// Ends the lease; may be called once. Throws any error of the reduction.
        void release() {
            if (Gathered* gathered = std::exchange(gathered_, nullptr)) gathered->release_gradients(unit_);
        }
        GradientLease(const GradientLease&) = delete;
        GradientLease& operator=(const GradientLease&) = delete;

    private:
        Gathered* gathered_;
        size_t unit_;
    };

    /// True if a lease on the unit's weights lives, or if they are not gathered.
    bool is_in_use(size_t unit) const;
    /// GatherOptions::prefetch.
    int prefetched_units() const { return options_.prefetch; }
    /// Begins to gather a unit if its place in the buffer is free.
    void prefetch(size_t unit);
    /// Sets the first unit of the forward that follows the backward; none: no forward follows it at once.
    void expect_next(std::optional<size_t> unit) { next_ = unit; }
    /// Prefetches that unit.
    void prefetch_next() {
        if (next_) prefetch(*next_);
    }
    /// Sets whether the leases of gradients that follow are the last uses of their units in the step. A
    /// unit's gradient is complete when as many of these leases have ended as the unit has uses.
    void expect_last_uses(bool last) { last_uses_ = last; }
    /// Sets whether the leases of gradients that follow are of the first of two halves. After each of them
    /// the other half has one on the same unit, and both are reduced together. Between the two, at most one
    /// other unit gets a lease.
    void expect_other_half(bool follows) { other_half_follows_ = follows; }
    /// Counts the last use of a unit whose lease has ended without being counted. If a schedule divides
    /// backwards into I and W, a looked-up table has its whole gradient after I, but only W tells which
    /// micro-batch is the last.
    void end_use(size_t unit);
    /// Makes the computation wait for all work of the streams.
    void finish_streams();
    /// Called after the last backward of a step. Afterwards every gradient is in the owned rows, summed over
    /// all ranks that read data, and no work of the streams is left to wait for.
    void finish_gradients();
    /// Called after the owned weights were updated: gathered weights are out of date.
    void forget_weights();

private:
    class Places;
    bool is_gathered(size_t unit) const;
    bool is_scattered(size_t unit) const;
    void hold_weights(size_t unit);
    void release_weights(size_t unit);
    void hold_gradients(size_t unit);
    void release_gradients(size_t unit);
    void give_back_gradients(size_t unit) noexcept;
    template <class Each>  // each(number, storage)
    void for_each_gathered(size_t unit, const Each& each) const;
    template <class Each>  // each(number, storage)
    void for_each_gathered(size_t unit, size_t sharding, const Each& each) const;
    void gather(Exec& exec, size_t unit);
    template <class Each>  // each(number, storage, first in its part, first in the piece, count)
    void for_each_of_piece(size_t unit, size_t sharding, int64_t first, int64_t count,
                           const Each& each) const;
    int64_t most_summed() const;
    int64_t piece_of(int64_t ranks) const;
    template <class Convert, class Sum>  // convert(exec, piece, first), sum(piece, first)
    void sum_in_pieces(Exec& exec, int64_t ranks, int64_t count, const Convert& convert, const Sum& sum);
    void scatter(Exec& exec, size_t unit);
    void scatter_in_float32(Exec& exec, size_t unit, size_t sharding);
    void sum_over_replicas(Exec& exec, size_t unit);
    void sum_in_float32(Exec& exec, const Communicator& ranks, Tensor gradients);
    void reduce_later(size_t unit, bool complete);
    void expect_uses();

    Parameters& parameters_;
    GatherOptions options_;
    std::unique_ptr<Places> weights_, gradients_;
    Buffer sums_;                     // two pieces of gradients in float32; used by the reductions only
    std::vector<bool> is_gathered_;   // by unit: whether some of its storages are gathered
    std::vector<bool> is_scattered_;  // by unit: whether gradients of some of these are reduce-scattered
    std::vector<GatherRanks> ranks_;  // by sharding
    const Kernels* kernels_ = nullptr;
    Exec* compute_ = nullptr;
    bool last_uses_ = false, other_half_follows_ = false;
    std::optional<size_t> next_;
    bool gave_back_ = false;         // gradients that were not reduced
    std::vector<int> uses_left_;     // by unit: the step's last uses of its gradient that remain
    std::unique_ptr<Exec> convert_;  // where a piece becomes float32 while the one before is summed
    std::array<std::unique_ptr<Event>, 2> summed_;           // what was last in each half of sums_
    std::unique_ptr<Stream> gather_stream_, reduce_stream_;  // must end before what their work refers to
    Pending reduction_;                                      // the last one; the stream keeps the order
};

}  // namespace coeus
