// SPDX-License-Identifier: Apache-2.0
// A virtual Slurm cluster (cluster.sh) as long as a test lasts, and jobs that train on it.
#pragma once

#include "program/tiny_run.hpp"

#include <functional>

namespace coeus::test {

/// Whether Slurm is installed. Where it is not the case is skipped; under COEUS_REQUIRE_GOLDEN=1 it fails.
/// Use: `if (!slurm_is_here()) return;`
bool slurm_is_here();

class Cluster {
public:
    /// Brought up with so many nodes n1, n2, ... of one CPU, so that each job has nodes of its own.
    explicit Cluster(int nodes);
    /// Jobs and daemons end here, and where the process is killed soon after it.
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
    /// Runs a shell command in the cluster's folder, with Slurm's commands set for it.
    Outcome run(const std::string& command) const;
    /// The same, CHECKed to end well; its output without the newline at the end.
    std::string ask(const std::string& command) const;

private:
    TemporaryFolder folder_;
};

/// The largest step of a run's full checkpoints; 0: none.
int64_t newest_step(const std::filesystem::path& run);

/// A job that trains a tiny model in 200 steps with a checkpoint after every 5, for some seconds, on 2 nodes.
class TrainingJob {
public:
    struct How {
        std::string sbatch = "";       ///< options of sbatch
        std::string environment = "";  ///< "COEUS_LAUNCH=..."
        std::string deck = "";         ///< lines that are added to it
        std::string arguments = "";    ///< behind the deck, of the script that is not printed
        /// What `coeus sbatch` prints, rather than jobscripts/local/train.sbatch with the deck as argument.
        bool printed = false;
    };
    /// `name`: of its run folder, deck and log.
    TrainingJob(const Cluster& cluster, const std::string& name) : TrainingJob(cluster, name, How()) {}
    TrainingJob(const Cluster& cluster, const std::string& name, const How& how);

    const std::string& id() const { return id_; }
    std::filesystem::path run_folder() const { return cluster_ / name_; }
    std::string log() const;
    /// "RUNNING", "COMPLETED", ...
    std::string state() const;
    std::string nodes() const;
    /// Until a checkpoint of this step or a later one is there.
    void wait_for_step(int64_t step) const;
    void wait_for_end() const;
    /// Its processes.
    std::vector<std::string> ranks() const;
    /// Of its starts, those of which a rank died of a segmentation fault before the program's first line:
    /// within MPI_Init by Slurm's PMIx, seen in about one of 500 where the nodes share a machine. The job
    /// script queues such a job again, as after any crash.
    int starts_lost_in_mpi() const;
    /// CHECKs that it ended well, after so many starts, and those that were lost.
    void finish(int starts, bool preempted = false) const;

private:
    const Cluster& cluster_;
    std::string name_, id_;
};

}  // namespace coeus::test
