// SPDX-License-Identifier: Apache-2.0
// Gathered: the weights and gradients of units while layers use them. A lease says for how long. Where
// several ranks divide the parameters (fully sharded data parallelism, Rajbhandari et al. 2020; Zhao et al.
// 2023):
//
//   weights     the owned rows, in the compute type, are all-gathered into the unit's place
//   gradients   a full gradient, zero at the beginning of the lease, is reduce-scattered at its end and added
//               to the owned rows
//
// and where replicas have the same rows, these are summed over them when the step's last gradient is there.
// Which ranks these are is said by each storage's sharding; the collectives of a unit are grouped by it, in
// the order of the shardings' numbers on every rank. What no other rank divides is used where it is owned,
// also beside storages of the same unit that are gathered.
//
// All of that runs on streams of its own: the gather of the next unit beside the present one's computation,
// the reduction of a unit beside the next one's backward. If units are released after use, they take turns in
// one buffer, which is as large as the two largest neighbours (unit_places.hpp).
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/state/parameters.hpp"

#include <utility>
#include <vector>

namespace coeus {

/// What becomes of a unit between two uses in a step.
enum class Keep : uint8_t {
    neighbours,  ///< its place is taken by the next but one: weights are gathered again for the backward,
                 ///< gradients are reduced in each micro-batch
    all          ///< every unit has a place: weights are gathered once a step, gradients reduced at its end
};

struct GatherOptions {
    Keep weights = Keep::neighbours;
    Keep gradients = Keep::neighbours;
};

/// The ranks of one sharding that gather weights and sum gradients. Two communicators over the same ranks,
/// since gathers and reductions run side by side.
struct GatherRanks {
    const Communicator& gather;
    const Communicator& reduce;
    const Communicator& replicas;
};

class Gathered {
public:
    /// Lays the units out; takes no memory yet.
    Gathered(Parameters& parameters, const GatherOptions& options);
    ~Gathered();
    Gathered(const Gathered&) = delete;
    Gathered& operator=(const Gathered&) = delete;

    struct Bytes {
        int64_t weights = 0, gradients = 0;
    };
    Bytes bytes() const;
    /// `ranks`: of each sharding, by its number. `compute`: on whose device it is, whose threads clear
    /// gradients, and whose observer sees the waiting.
    void allocate(const std::vector<GatherRanks>& ranks, Stream::Mode streams, Exec& compute,
                  const Kernels& kernels);

    /// Keeps w of a unit's storages valid. `gathered` null (planning, one rank): w is always valid.
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
    /// The same for g. After the last addition release() reduces what was added; a lease that ends without
    /// it, because an exception is on its way, only gives its place back.
    class [[nodiscard]] GradientLease {
    public:
        GradientLease(Gathered* gathered, size_t unit) : gathered_(gathered), unit_(unit) {
            if (gathered_) gathered_->hold_gradients(unit);
        }
        ~GradientLease() {
            if (gathered_) gathered_->give_back_gradients(unit_);
        }
        /// Ends the lease; once. Throws what the reduction throws.
        void release() {
            if (Gathered* gathered = std::exchange(gathered_, nullptr)) gathered->release_gradients(unit_);
        }
        GradientLease(const GradientLease&) = delete;
        GradientLease& operator=(const GradientLease&) = delete;

    private:
        Gathered* gathered_;
        size_t unit_;
    };

    /// Whether a lease on its weights lives: units take turns in the same memory.
    bool is_in_use(size_t unit) const;
    /// Begins to gather a unit, if its place is free.
    void prefetch(size_t unit);
    /// From here on, or no longer: leases of gradients are the last of their use in the step, so that a unit
    /// is complete when as many have ended as it has uses.
    void expect_last_uses(bool last) { last_uses_ = last; }
    /// Counts a use whose lease ended before that was known.
    void end_use(size_t unit);
    /// After the last backward of a step: every gradient is in the owned rows, summed over all ranks that
    /// read data, and none of the streams has work that was not waited for.
    void finish_gradients();
    /// After an update of the owned weights: what was gathered is stale.
    void forget_weights();

private:
    class Places;
    bool is_gathered(size_t unit) const;
    void hold_weights(size_t unit);
    void release_weights(size_t unit);
    void hold_gradients(size_t unit);
    void release_gradients(size_t unit);
    void give_back_gradients(size_t unit) noexcept;
    template <class Each>  // (number, storage)
    void for_each_gathered(size_t unit, const Each& each) const;
    template <class Each>  // (number, storage)
    void for_each_gathered(size_t unit, size_t sharding, const Each& each) const;
    void gather(Exec& exec, size_t unit);
    void scatter(Exec& exec, size_t unit);
    void sum_over_replicas(Exec& exec, size_t unit);
    void reduce_later(size_t unit, bool complete);
    void expect_uses();

    Parameters& parameters_;
    GatherOptions options_;
    std::unique_ptr<Places> weights_, gradients_;
    std::vector<bool> is_gathered_;   // of each unit: some of its storages
    std::vector<GatherRanks> ranks_;  // of each sharding
    const Kernels* kernels_ = nullptr;
    Exec* compute_ = nullptr;
    bool last_uses_ = false;
    bool gave_back_ = false;      // gradients that were not reduced
    std::vector<int> uses_left_;  // of each unit's gradient, the last ones of the step
    std::unique_ptr<Stream> gather_stream_, reduce_stream_;  // end before what their work refers to
    Pending reduction_;                                      // the last one; the stream keeps their order
};

}  // namespace coeus
