// SPDX-License-Identifier: Apache-2.0
// Start and end of MPI, and this process's place in the MPI world. <mpi.h> is included only in src/comm.
#pragma once

#include <string>

namespace coeus {

/// Name of the function that sleeps between MPI's tests of messages, as call stacks show it.
inline constexpr const char* waiting_function = "coeus::wait_all";

/// Initialises MPI (with MPI_THREAD_MULTIPLE) and finalises it in the destructor. `main` destroys everything
/// that holds MPI handles first.
class MpiRuntime {
public:
    MpiRuntime(int* argc, char*** argv);
    ~MpiRuntime();
    MpiRuntime(const MpiRuntime&) = delete;
    MpiRuntime& operator=(const MpiRuntime&) = delete;

    int world_rank() const { return rank_; }
    int world_size() const { return size_; }
    /// This rank's number among the ranks of its host, and how many these are.
    int local_rank() const { return local_rank_; }
    int local_size() const { return local_size_; }
    const std::string& host() const { return host_; }
    /// "Open MPI v4.1.4"
    static std::string library_version();

    /// Number of ranks of this host that pass the same text (this one included), and this rank's number among
    /// them. Collective.
    struct Alike {
        int ranks = 1, number = 0;
    };
    Alike local_ranks_with(const std::string& text) const;
    /// Throws ConfigError if Slurm started several tasks but MPI sees a world of one rank.
    void require_all_tasks() const;

private:
    int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
    std::string host_;
};

/// This process's rank in the world; 0 if MPI is not running.
int world_rank();
/// Waits until every rank of the world has called this function, at most `seconds`. Returns true if all have,
/// or if MPI is not running.
bool all_ranks_arrive(double seconds);
/// Ends MPI after an error that ended a command; called by main, or by a QueueWatch in its thread. If
/// `same_on_all_ranks`, MPI is finalised in order; otherwise MPI_Abort ends every rank with this code. Does
/// nothing if MPI is not running. ~MpiRuntime does not finalise MPI during an exception, so that this
/// function can.
void end_mpi_after_error(int code, bool same_on_all_ranks);

/// The environment variables that describe how the program was started; empty if a variable is not set.
struct StartEnvironment {
    std::string step_num_tasks;  ///< SLURM_STEP_NUM_TASKS: tasks of the job step of this process
    std::string num_tasks;       ///< SLURM_NTASKS: tasks of the job, also set in its batch shell
    std::string launcher_size;   ///< ranks that mpirun started: OMPI_COMM_WORLD_SIZE, PMI_SIZE
    /// Slurm's name for its way to start ranks of this MPI: "pmix" (Open MPI), "pmi2" (MPICH)
    std::string plugin = "pmix";
    std::string library = "Open MPI";  ///< name and version of the program's MPI
};
/// The error message if the ranks of this start do not see each other, or "" if all is well.
std::string launcher_problem(const StartEnvironment& start, int world_size);

}  // namespace coeus
