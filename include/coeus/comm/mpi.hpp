// SPDX-License-Identifier: Apache-2.0
// Start and end of MPI, and who this process is in the world. <mpi.h> stays in src/comm.
#pragma once

#include <string>

namespace coeus {

/// The function that sleeps between MPI's tests of messages, as call stacks name it.
inline constexpr const char* waiting_function = "coeus::wait_all";

/// Initialises MPI (THREAD_MULTIPLE) and finalises it at the end. `main` destroys everything with MPI handles
/// first.
class MpiRuntime {
public:
    MpiRuntime(int* argc, char*** argv);
    ~MpiRuntime();
    MpiRuntime(const MpiRuntime&) = delete;
    MpiRuntime& operator=(const MpiRuntime&) = delete;

    int world_rank() const { return rank_; }
    int world_size() const { return size_; }
    /// Ranks on this host, and this rank's number among them.
    int local_rank() const { return local_rank_; }
    int local_size() const { return local_size_; }
    const std::string& host() const { return host_; }
    /// "Open MPI v4.1.4"
    static std::string library_version();

    /// Ranks of this host that give the same text, this one counted, and its number among them. Collective.
    struct Alike {
        int ranks = 1, number = 0;
    };
    Alike local_ranks_with(const std::string& text) const;
    /// Throws ConfigError where Slurm means several tasks but MPI sees a world of one.
    void require_all_tasks() const;

private:
    int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
    std::string host_;
};

/// This process's rank in the world; 0 where MPI is not running.
int world_rank();
/// Waits until every rank of the world calls this, `seconds` at most; true where all did, or MPI is not
/// running.
bool all_ranks_arrive(double seconds);
/// After an error that ended a command, called by main, or by a QueueWatch in its thread.
/// `same_on_all_ranks`: MPI is finalised in order; otherwise every rank is ended with this code (MPI_Abort).
/// Does nothing where MPI is not running. ~MpiRuntime leaves MPI alone while an exception is on its way here.
void end_mpi_after_error(int code, bool same_on_all_ranks);

/// What the environment says of a start; "" where a variable is not set.
struct StartEnvironment {
    std::string step_num_tasks;  ///< SLURM_STEP_NUM_TASKS: of the job step that this process is in
    std::string num_tasks;       ///< SLURM_NTASKS: of the job, in its batch shell too
    std::string launcher_size;   ///< ranks that mpirun started: OMPI_COMM_WORLD_SIZE, PMI_SIZE
    /// what Slurm calls the way in which it starts this MPI's ranks: "pmix" (Open MPI), "pmi2" (MPICH)
    std::string plugin = "pmix";
    std::string library = "Open MPI";  ///< of this program, with its version
};
/// The message for a start whose ranks do not see each other, or "" if all is well.
std::string launcher_problem(const StartEnvironment& start, int world_size);

}  // namespace coeus
