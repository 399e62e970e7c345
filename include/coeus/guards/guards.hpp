// SPDX-License-Identifier: Apache-2.0
// Guards: what a run does about loss spikes and about weights that went wrong silently. A refused step is
// skipped, or the run rewinds to a snapshot and passes over all samples since, the spike's included
// (Chowdhery et al. 2022, PaLM, section 5.1). What the decisions need is in record(), so that a resumed run
// takes the same ones.
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
    /// Takes the memory of the snapshot, where something rewinds. The engine has its memory, and outlives it.
    /// `hosts`: the names of all ranks', which outlive it too. Collective, as every member that takes or
    /// returns a place.
    Guards(const Config::Guards& options, Engine& engine, const std::vector<std::string>& hosts);

    bool watches_loss() const { return coeus::watches_loss(options_); }
    /// What the checkpoint from which the run goes on has of an earlier record().
    void resume(const std::string& record);
    /// Where the run begins: the first snapshot.
    void begin(const RunPlace& place);
    /// JSON for a checkpoint's /train; "" where there is nothing to keep.
    std::string record() const;
    /// Samples before the present place that no step of the run's past has seen.
    int64_t samples_passed_over() const { return state_.passed_over; }
    /// Of the run's past; the last one has this number.
    int64_t events() const { return state_.events; }

    /// Of the next step.
    StepLimits limits() const;
    /// The update of a step was made.
    void accept(double loss, double norm);
    /// The update of the step after `place`, of so many samples, was refused: `place` is then where the run
    /// goes on, and with a rewind weights and moments are those of there. Returns the event for
    /// metrics.jsonl. NotFiniteError where spikes do not end.
    std::string pass_over(RunPlace& place, int64_t samples, double loss, double norm);
    /// After a step, before a checkpoint of it (`saves`): compares replicas and takes a snapshot, where these
    /// are due. Where replicas differ and the run rewinds, as pass_over(), but the same samples come again;
    /// else returns "". CollectiveError where it does not rewind, or did before since the last snapshot.
    std::string look_after(RunPlace& place, bool saves);

private:
    /// What decisions depend on.
    struct State {
        SpikeGuard spikes;
        int64_t in_a_row = 0;     ///< skips, or rewinds to the snapshot
        int64_t passed_over = 0;  ///< samples
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
    bool repeats_ = false;  // the steps since the snapshot, after replicas differed
};

}  // namespace coeus
