// SPDX-License-Identifier: Apache-2.0
// Guards: what a run does about a step whose update was refused, since its loss or gradient is not finite or
// is a spike, and about silent data corruption. After a loss spike the step is skipped, or the run rewinds to
// a snapshot and skips all samples since then, including those of the spike (Chowdhery et al. 2022, PaLM,
// section 5.1). record() stores everything on which the decisions depend, so that a resumed run makes the
// same decisions.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/guards/replica_comparison.hpp"
#include "coeus/guards/spike_guard.hpp"
#include "coeus/state/state_snapshot.hpp"

#include <optional>
#include <string>

namespace coeus {

/// Where a run is.
struct RunPlace {
    int64_t step = 0;         ///< optimizer steps taken
    int64_t sample = 0;       ///< number of the next sample of the data stream
    int64_t tokens_seen = 0;  ///< by these steps
};

class Guards {
public:
    /// Allocates the memory of the snapshot if an option asks for rewinds. The engine has allocated its
    /// memory. `hosts`: name of each rank's host. Both outlive it. Collective, like every member that takes
    /// or returns a place.
    Guards(const Config::Guards& options, Engine& engine, const std::vector<std::string>& hosts);

    bool watches_loss() const { return coeus::watches_loss(options_); }
    /// Restores the state of the guards from `record`, which the checkpoint has from record().
    void resume(const std::string& record);
    /// Takes the first snapshot, at the place where the run begins.
    void begin(const RunPlace& place);
    /// JSON for /train of a checkpoint; "" if there is nothing to store.
    std::string record() const;
    /// Number of samples before the present place that were skipped.
    int64_t samples_passed_over() const { return state_.passed_over; }
    /// Number of events so far, which is also the number of the last event.
    int64_t events() const { return state_.events; }

    /// Limits on loss and gradient norm of the next step.
    StepLimits limits() const;
    /// Call it after a step whose update was made.
    void accept(double loss, double norm);
    /// Call it if the update of the step after `place`, with this number of samples, was refused. Sets
    /// `place` to where the run continues; after a rewind, weights and moments are those of that place.
    /// Returns the event for metrics.jsonl. NotFiniteError if the loss or the gradient norm is not finite on
    /// any rank, and after guards.spike_patience spikes in a row.
    std::string pass_over(RunPlace& place, int64_t samples, double loss, double norm);
    /// After a step, and before its checkpoint if there is one (`saves`): compares replicas and takes a
    /// snapshot if these are due. If replicas differ and the run rewinds: as pass_over(), but the same
    /// samples are read again. Else returns "". CollectiveError if replicas differ and the run does not
    /// rewind, or has rewound before to the same snapshot.
    std::string look_after(RunPlace& place, bool saves);

private:
    /// The state on which decisions depend.
    struct State {
        SpikeGuard spikes;
        int64_t in_a_row = 0;     ///< consecutive skips, or rewinds to the same snapshot
        int64_t passed_over = 0;  ///< skipped samples
        int64_t skips = 0, rewinds = 0;
        int64_t events = 0;  ///< in metrics.jsonl
    };
    void take_snapshot(const RunPlace& place);
    void restore_snapshot();
    std::string rewind_from(RunPlace& place, const std::string& difference);

    Config::Guards options_;
    Engine& engine_;
    State state_, snapshot_state_;
    std::optional<ReplicaComparison> replicas_;
    std::optional<StateSnapshot> snapshot_;
    RunPlace snapshot_place_;
    bool repeats_ = false;  // the run repeats the steps since the snapshot, because replicas differed
};

}  // namespace coeus
