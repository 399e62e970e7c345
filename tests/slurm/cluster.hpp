// SPDX-License-Identifier: Apache-2.0
// A virtual Slurm cluster (cluster.sh) that lives as long as a test, and jobs that train on it.
#pragma once

#include "program/tiny_run.hpp"

#include <functional>

namespace coeus::test {

/// Whether Slurm is installed. If it is not, the case is skipped, or fails under COEUS_REQUIRE_GOLDEN=1. Use:
/// `if (!slurm_is_here()) return;`
bool slurm_is_here();

class Cluster {
public:
    /// Starts a cluster of so many nodes n1, n2, ... with one CPU each, so that no two jobs share a node.
    explicit Cluster(int nodes);
    /// Ends jobs and daemons. If the process is killed, they end soon after it.
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
    /// Runs a shell command in the cluster's folder, with Slurm's commands set up for it.
    Outcome run(const std::string& command) const;
    /// The same, with a CHECK that it succeeds; returns its output without the newline at the end.
    std::string ask(const std::string& command) const;

private:
    TemporaryFolder folder_;
};

/// The largest step of a run's full checkpoints, or 0 if there are none.
int64_t newest_step(const std::filesystem::path& run);

/// The number of starts in a job's log in which MPI_Init failed or a rank died in it of a segmentation fault.
/// Slurm's PMIx loses a rank in about one of 500 starts if nodes share a machine. The job script requeues
/// such a job, as after any crash.
int starts_lost_in_mpi(const std::string& log);

/// A job on 2 nodes that trains a tiny model for some seconds: 200 steps, with a checkpoint after every 5.
class TrainingJob {
public:
    struct How {
        std::string sbatch = "";       ///< options of sbatch
        std::string environment = "";  ///< "COEUS_LAUNCH=..."
        std::string deck = "";         ///< lines that are added to it
        std::string arguments = "";    ///< after the deck, for a script that is not printed
        /// Uses the script that `coeus sbatch` prints, instead of jobscripts/local/train.sbatch with the deck
        /// as argument.
        bool printed = false;
    };
    /// `name` is that of its run folder, deck and log.
    TrainingJob(const Cluster& cluster, const std::string& name) : TrainingJob(cluster, name, How()) {}
    TrainingJob(const Cluster& cluster, const std::string& name, const How& how);

    const std::string& id() const { return id_; }
    std::filesystem::path run_folder() const { return cluster_ / name_; }
    std::string log() const;
    /// "RUNNING", "COMPLETED", ...
    std::string state() const;
    std::string nodes() const;
    /// Waits for a checkpoint of this step or a later one.
    void wait_for_step(int64_t step) const;
    void wait_for_end() const;
    /// The ids of its processes.
    std::vector<std::string> ranks() const;
    /// Those of its log.
    int starts_lost_in_mpi() const;
    /// CHECKs that it succeeded, after so many starts plus the lost ones.
    void finish(int starts, bool preempted = false) const;

private:
    const Cluster& cluster_;
    std::string name_, id_;
};

}  // namespace coeus::test
