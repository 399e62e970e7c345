// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/mpi.hpp"

#include "check_mpi.hpp"
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/flight_recorder.hpp"
#include "coeus/device/cpu.hpp"
#include "world_line.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

namespace coeus {

namespace {

constexpr int farewell_tag = 1;  // no other message uses MPI_COMM_WORLD itself

bool mpi_is_running() {
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    return initialised && !finalised;
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

}  // namespace

std::string launcher_problem(const StartEnvironment& start, int world_size) {
    const bool in_step = !start.step_num_tasks.empty();
    const auto count_in = [](const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); };
    const long long tasks = count_in(in_step ? start.step_num_tasks : start.num_tasks),
                    launched = count_in(start.launcher_size);
    if (world_size > 1 || launched == 1) return "";
    if (launched > 1 && !in_step)
        return fmt::format(
            "mpirun started {} ranks, but each sees an MPI world of one rank: this mpirun belongs to another "
            "MPI than the program, which was built with {}. Start it with the mpirun of that MPI",
            launched, start.library);
    if (tasks <= 1) return "";
    const std::string missing =
        fmt::format("{} is missing between Slurm and this MPI", start.plugin == "pmix" ? "PMIx" : "PMI2");
    const std::string remedy = fmt::format(
        "`srun --mpi={0} ...` (`srun --mpi=list` shows what the cluster offers), or with `mpirun` inside "
        "the allocation; if {0} is not in that list, the MPI of this build must be one with the cluster's "
        "PMIx or PMI2",
        start.plugin);
    if (in_step)
        return fmt::format(
            "Slurm started {} tasks, but each sees an MPI world of one rank: {}. Start with {}", tasks,
            missing, remedy);
    return fmt::format(
        "Slurm gives this job {} tasks (SLURM_NTASKS), but MPI sees one rank: the program was started "
        "without a launcher, or {}. Start with {}. For one rank on purpose: `mpirun -n 1 ...`",
        tasks, missing, remedy);
}

MpiRuntime::MpiRuntime(int* argc, char*** argv) {
    run_in_short_slices();  // also affects MPI's threads
    int provided = 0;
    COEUS_CHECK_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided));
    if (provided < MPI_THREAD_MULTIPLE)
        throw SystemError("this MPI does not offer MPI_THREAD_MULTIPLE, which Coeus needs");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    COEUS_CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    COEUS_CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size_));
    MPI_Comm node = MPI_COMM_NULL;
    COEUS_CHECK_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
    COEUS_CHECK_MPI(MPI_Comm_rank(node, &local_rank_));
    COEUS_CHECK_MPI(MPI_Comm_size(node, &local_size_));
    COEUS_CHECK_MPI(MPI_Comm_free(&node));
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    COEUS_CHECK_MPI(MPI_Get_processor_name(name, &length));
    host_.assign(name, size_t(length));
}

void MpiRuntime::require_all_tasks() const {
    const std::string open_mpi = environment("OMPI_COMM_WORLD_SIZE");
    const std::string library = library_version();
    const StartEnvironment start = {.step_num_tasks = environment("SLURM_STEP_NUM_TASKS"),
                                    .num_tasks = environment("SLURM_NTASKS"),
                                    .launcher_size = open_mpi.empty() ? environment("PMI_SIZE") : open_mpi,
                                    .plugin = library.starts_with("Open MPI") ? "pmix" : "pmi2",
                                    .library = library};
    if (const std::string problem = launcher_problem(start, size_); !problem.empty())
        throw ConfigError("{}", problem);
    const int of_torchrun = std::atoi(environment("WORLD_SIZE").c_str());
    if (size_ == 1 && of_torchrun > 1 && !environment("RANK").empty())
        throw ConfigError(
            "torchrun (or another launcher that sets RANK and WORLD_SIZE) started {0} processes, but MPI "
            "sees one "
            "rank: each of them would train alone. Start the ranks with MPI: `mpirun -n {0} coeus train "
            "DECK`, or "
            "srun. For one rank on purpose: `env -u RANK -u WORLD_SIZE coeus train DECK`",
            of_torchrun);
}

MpiRuntime::~MpiRuntime() {
    if (std::uncaught_exceptions() == 0 && mpi_is_running()) MPI_Finalize();
}

std::string MpiRuntime::library_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string version(text, size_t(length));
    return version.substr(0, version.find_first_of(",\n"));
}

const FlightRecorder::Line& world_line() {
    static const FlightRecorder::Line line = [] {
        int rank = 0, size = 1;
        COEUS_CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
        COEUS_CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
        return FlightRecorder::Line("MPI_COMM_WORLD", 0, rank, size);
    }();
    return line;
}

MpiRuntime::Alike MpiRuntime::local_ranks_with(const std::string& text) const {
    const Recorded recorded(world_line(), OperationKind::collective, "compare_hosts", 0,
                            std::source_location::current());
    MPI_Comm node = MPI_COMM_NULL;
    COEUS_CHECK_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
    const uint64_t own = std::hash<std::string>()(text);
    std::vector<uint64_t> all(static_cast<size_t>(local_size_));
    COEUS_CHECK_MPI(MPI_Allgather(&own, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, node));
    COEUS_CHECK_MPI(MPI_Comm_free(&node));
    return {int(std::count(all.begin(), all.end(), own)),
            int(std::count(all.begin(), all.begin() + local_rank_, own))};
}

int world_rank() {
    int rank = 0;
    if (mpi_is_running()) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

bool all_ranks_arrive(double seconds) {
    if (!mpi_is_running()) return true;
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    // empty messages to rank 0 and back, since other ranks may be inside a collective
    const auto exchange = [&](auto call, int first, int last, double allowed) {
        std::vector<MPI_Request> requests;
        for (int peer = first; peer < last; ++peer) call(peer, &requests.emplace_back(MPI_REQUEST_NULL));
        const Timer timer;
        for (int done = 0;;) {
            MPI_Testall(int(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
            if (done || timer.seconds() > allowed) return done != 0;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    };
    const auto send = [](int peer, MPI_Request* request) {
        MPI_Isend(nullptr, 0, MPI_BYTE, peer, farewell_tag, MPI_COMM_WORLD, request);
    };
    const auto receive = [](int peer, MPI_Request* request) {
        MPI_Irecv(nullptr, 0, MPI_BYTE, peer, farewell_tag, MPI_COMM_WORLD, request);
    };
    if (rank > 0) return exchange(send, 0, 1, seconds) && exchange(receive, 0, 1, seconds);
    return exchange(receive, 1, size, seconds) && exchange(send, 1, size, seconds);
}

void end_mpi_after_error(int code, bool same_on_all_ranks) {
    if (!mpi_is_running()) return;
    // mpirun of Open MPI 5 ends all ranks at the first exit code that is not 0, and may lose output of theirs
    // that it has not read yet
    const char* launcher = std::getenv("PMIX_NAMESPACE");
    if (launcher && std::string_view(launcher).starts_with("prterun"))
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (same_on_all_ranks)
        MPI_Finalize();
    else
        MPI_Abort(MPI_COMM_WORLD, code);
}

}  // namespace coeus
