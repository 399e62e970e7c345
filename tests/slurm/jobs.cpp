// SPDX-License-Identifier: Apache-2.0
// Jobs of jobscripts/local on a virtual cluster. However a job is disturbed, it resumes on its own and ends
// with the bits of an undisturbed one. If resuming would not help, it stops and says why.
#include "coeus/comm/mpi.hpp"
#include "slurm/cluster.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/skip.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const char* last_weights = "checkpoint/model-00000200.h5";

void check_same_end(const TrainingJob& a, const TrainingJob& b) {
    CHECK(differing_arrays(a.run_folder() / last_weights, b.run_folder() / last_weights).empty());
    const std::vector<StepLine> of_a = read_metrics(a.run_folder()).steps,
                                of_b = read_metrics(b.run_folder()).steps;
    REQUIRE(!of_a.empty());
    REQUIRE(!of_b.empty());
    CHECK(of_a.back().step == 200);
    CHECK(of_a.back().loss == of_b.back().loss);
    CHECK(of_a.back().grad_norm == of_b.back().grad_norm);
}

// Messages of the job script.
constexpr const char *by_slurm = "stopped: Slurm is ending this job",
                     *in_order = "training was stopped before its last step; requeued",
                     *told_to_end = "; requeued", *crashed = "training crashed (exit code ";

using Disturb = std::function<void(const Cluster& cluster, const TrainingJob& job)>;

// A program that runs the shell text `train` before it trains as the real one.
std::string program_that(const Cluster& cluster, const std::string& train) {
    const fs::path file = cluster / "program";
    write_file(
        file, "#!/bin/sh\n[ \"$1\" != train ] || { " + train + "; }\nexec " + paths::program() + " \"$@\"\n");
    fs::permissions(file, fs::perms::owner_all);
    return "COEUS=" + file.string();
}

// For How::environment: the first start is slow from this step on, so it is still running when it is
// disturbed.
std::string slow_first_start(const Cluster& cluster, int step) {
    return program_that(cluster, fmt::format("[ ${{SLURM_RESTART_COUNT:-0}} != 0 ] || "
                                             "export COEUS_FAULT='slow rank=0 step={} seconds=0.5'",
                                             step));
}

void preempt(const Cluster& cluster, const TrainingJob& job) {
    cluster.ask("srun --partition=high --nodelist=" + job.nodes() + " --mpi=none true");
}

// `says`: the log's message about it.
struct Disturbance {
    Disturb disturb;
    const char* says;
    TrainingJob::How how = {};
};

// A job that is disturbed after `step`, and ends as `undisturbed` does.
struct DisturbedJob {
    Disturbance what;
    TrainingJob job;

    DisturbedJob(const Cluster& cluster, const std::string& name, const Disturbance& disturbance, int step)
        : what(disturbance), job(cluster, name, slowly(cluster, disturbance.how, step)) {
        job.wait_for_step(step);
        what.disturb(cluster, job);
    }
    void check(const TrainingJob& undisturbed) const {
        job.wait_for_end();
        const std::string log = job.log();
        CAPTURE(what.says, log);
        // if a start takes long, the time of the next start is nearly over as well; if the slow first start
        // was lost in MPI_Init, there may be no such stop
        const bool is_timed = what.how.sbatch.find("--time=") != std::string::npos;
        const int least = job.starts_lost_in_mpi() > 0 ? 0 : 1;
        const int stops = is_timed ? std::max(least, count_of(what.says, log)) : 1;
        const auto* known = what.disturb.target<void (*)(const Cluster&, const TrainingJob&)>();
        job.finish(1 + stops, known && *known == preempt);
        const int lost = what.says == crashed ? job.starts_lost_in_mpi() : 0;
        CHECK(count_of(what.says, job.log()) == stops + lost);
        check_same_end(job, undisturbed);
    }

private:
    static TrainingJob::How slowly(const Cluster& cluster, TrainingJob::How how, int step) {
        how.environment += " " + slow_first_start(cluster, step);
        return how;
    }
};

// Each disturbs a job of its own. While the jobs wait to be started again, the next ones are disturbed.
void check_go_on(const std::vector<Disturbance>& disturbances, int rounds = 1) {
    if (!slurm_is_here()) return;
    const Cluster cluster(2 * (int(disturbances.size()) + 1));
    const TrainingJob undisturbed(cluster, "undisturbed");
    for (int round = 0; round < rounds; ++round) {
        CAPTURE(round);
        std::vector<DisturbedJob> jobs;
        for (const Disturbance& disturbance : disturbances)
            jobs.emplace_back(cluster, fmt::format("disturbed_{}_{}", round, jobs.size()), disturbance,
                              10 + 15 * round);
        if (round == 0) undisturbed.finish(1);
        for (const DisturbedJob& job : jobs) job.check(undisturbed);
    }
}

void queue_again(const Cluster& cluster, const TrainingJob& job) {
    cluster.ask("scontrol requeue " + job.id());
}

void take_node_down(const Cluster& cluster, const TrainingJob& job) {
    const std::string second = cluster.ask("scontrol show hostnames " + job.nodes() + " | tail -n 1");
    cluster.ask("scontrol update nodename=" + second + " state=down reason=test");
    // refused if the node has already come back
    cluster.run("scontrol update nodename=" + second + " state=resume");
}

void kill_one_rank(const Cluster&, const TrainingJob& job) {
    const std::vector<std::string> ranks = job.ranks();
    REQUIRE(ranks.size() == 2);
    run_shell("kill -KILL " + ranks[1]);
}

void tell_to_stop(const Cluster& cluster, const TrainingJob& job) {
    cluster.ask("scancel --signal=USR1 " + job.id());
}

void tell_the_script_to_stop(const Cluster& cluster, const TrainingJob& job) {
    cluster.ask("scancel --batch --signal=USR1 " + job.id());
}

// Slurm may signal up to half a minute early and checks every half minute: 20 to 50 seconds after the start.
const TrainingJob::How time_nearly_over = {.sbatch = "--time=1 --signal=B:USR1@10",
                                           .arguments = "--checkpoint.walltime_margin=0"};
const TrainingJob::How by_mpirun = {.environment = "COEUS_LAUNCH='" + paths::mpirun() + "'"};
// The daemons that mpirun of MPICH starts call it back, by the name of its host.
bool mpirun_can_be_called_back() {
    if (MpiRuntime::library_version().starts_with("Open MPI")) return true;
    if (run_shell("getent hosts \"$(hostname)\"").exit_code == 0) return true;
    skip("this machine's name has no address (/etc/hosts), which mpirun of MPICH needs inside a job");
    return false;
}

void wait_for_its_time(const Cluster&, const TrainingJob& job) {
    wait_until("the signal before the end of its time",
               [&] { return count_of("; requeued", job.log()) == 1; });
}

std::vector<Disturbance> disturbances_of_srun() {
    return {{queue_again, by_slurm},  {take_node_down, by_slurm},
            {kill_one_rank, crashed}, {preempt, in_order},
            {tell_to_stop, in_order}, {wait_for_its_time, in_order, time_nearly_over}};
}

std::vector<Disturbance> disturbances_of_mpirun() {
    // the signal ends the daemons of Open MPI 5, and with them the ranks
    const bool daemons_end = MpiRuntime::library_version().starts_with("Open MPI v5");
    return {{tell_the_script_to_stop, in_order, by_mpirun},
            {tell_to_stop, daemons_end ? told_to_end : in_order, by_mpirun},
            {kill_one_rank, crashed, by_mpirun},
            // its daemons end with the nodes, so there may be no time to save; that is not a crash
            {preempt, told_to_end, by_mpirun}};
}

}  // namespace

TEST_CASE("a start is lost if MPI_Init fails or a rank dies in it, and only then") {
    const std::string start = "2026-11-28 18:52:22 job 3: start 2 on n[3-4]: srun coeus\n",
                      began = "[coeus] 2026-11-28 18:52:23,000 - info - Job: default job\n",
                      died = "srun: error: n3: task 0: Segmentation fault\n",
                      failed = "It looks like MPI_INIT failed for some reason\n";
    CHECK(starts_lost_in_mpi("") == 0);
    CHECK(starts_lost_in_mpi(start) == 0);
    CHECK(starts_lost_in_mpi(start + began) == 0);
    CHECK(starts_lost_in_mpi(start + began + died) == 0);
    CHECK(starts_lost_in_mpi(start + died) == 1);
    CHECK(starts_lost_in_mpi(start + failed) == 1);
    CHECK(starts_lost_in_mpi(start + failed + start + began + start + died + start + began + died) == 2);
}

TEST_CASE(
    "a job trains by srun with PMIx, by mpirun, and by the script of coeus sbatch, always to the same bits") {
    if (!slurm_is_here() || !mpirun_can_be_called_back()) return;
    const Cluster cluster(2);
    const TrainingJob by_srun(cluster, "by_srun");
    const TrainingJob mpirun(cluster, "by_mpirun", by_mpirun);
    const TrainingJob printed(cluster, "printed", {.printed = true});
    for (const TrainingJob* job : {&by_srun, &mpirun, &printed}) job->finish(1);
    check_same_end(by_srun, mpirun);
    check_same_end(by_srun, printed);
    CHECK_THAT(by_srun.log(), Contains("Mesh: 2 ranks"));
}

TEST_CASE(
    "jobs that are requeued, preempted or told to stop, or lose a node or a rank, resume to the same bits") {
    check_go_on(disturbances_of_srun());
}

TEST_CASE("jobs of mpirun that are told to stop, lose a rank or are preempted resume to the same bits") {
    if (mpirun_can_be_called_back()) check_go_on(disturbances_of_mpirun());
}

TEST_CASE("a job that crashes again and again stops, and says where and how") {
    if (!slurm_is_here()) return;
    const Cluster cluster(1);
    const TrainingJob job(cluster, "crashing",
                          {.sbatch = "--nodes=1", .environment = program_that(cluster, "kill -SEGV $$")});
    job.wait_for_end();
    INFO(job.log());
    CHECK_THAT(job.log(), Contains("start 3 on n1") && !Contains("start 4 on n1"));
    CHECK_THAT(job.log(),
               Contains("stopped: training crashed 3 times (exit code 139, SIGSEGV) after the checkpoint of "
                        "step 0, without a new checkpoint"));
    CHECK(job.state() == "FAILED");
}

TEST_CASE("a job with a wrong deck, with a loss that is not finite, or that is cancelled is not requeued") {
    if (!slurm_is_here()) return;
    const Cluster cluster(2);
    const TrainingJob wrong(cluster, "wrong", {.sbatch = "--nodes=1", .deck = "keep_lates_k = 2"});
    wrong.wait_for_end();
    INFO(wrong.log());
    CHECK_THAT(
        wrong.log(),
        Contains("keep_lates_k") &&
            Contains("stopped: an error in the deck, the command line, the data or the folder; see above"));
    const TrainingJob diverged(cluster, "diverged",
                               {.sbatch = "--nodes=1", .environment = program_that(cluster, "exit 4")});
    diverged.wait_for_end();
    CHECK_THAT(diverged.log(), Contains("stopped: the loss or a gradient was not finite"));
    const TrainingJob cancelled(cluster, "cancelled");
    cancelled.wait_for_step(5);
    cluster.ask("scancel " + cancelled.id());
    cancelled.wait_for_end();
    CHECK(cancelled.state() == "CANCELLED");
    wait_until("the last words of the script",
               [&] { return count_of("stopped: Slurm is ending this job", cancelled.log()) == 1; });
    for (const TrainingJob* job : {&wrong, &diverged, &cancelled})
        CHECK(count_of(": start ", job->log()) == 1);
}

TEST_CASE("each task of an array is a run, and a job that depends on the array waits for all of them") {
    if (!slurm_is_here()) return;
    const Cluster cluster(2);
    const TrainingJob array(
        cluster, "array",
        {.sbatch = "--array=1-2 --nodes=1", .arguments = "--job.dump_folder=run_%a --debug.seed=%a"});
    const TrainingJob after(cluster, "after",
                            {.sbatch = "--dependency=afterok:" + array.id(),
                             .arguments = "--job.dump_folder=run_2 --debug.seed=2"});
    after.finish(1);
    INFO(after.log());
    // there was nothing left to do
    CHECK_THAT(after.log(), Contains("complete") && !Contains("Training starts"));
    const auto loss = [&](const char* run) { return read_metrics(cluster / run).steps.back().loss; };
    CHECK(loss("run_1") != loss("run_2"));
}

TEST_CASE("a task of an array that is told to stop resumes, and the other tasks are not affected") {
    if (!slurm_is_here()) return;
    const Cluster cluster(2);
    const TrainingJob::How how = {.sbatch = "--array=1-2 --nodes=1 --output=task_%a.log",
                                  .environment = slow_first_start(cluster, 10),
                                  .arguments = "--job.dump_folder=run_%a"};
    const TrainingJob array(cluster, "array", how);
    const auto log = [&](const char* task) {
        const fs::path file = cluster / (std::string("task_") + task + ".log");
        return fs::exists(file) ? read_file(file) : "";
    };
    for (const char* task : {"2", "1"}) {
        wait_until("the first steps",
                   [&] { return newest_step(cluster / (std::string("run_") + task)) >= 10; });
        cluster.ask("scancel --signal=USR1 --batch " + array.id() + "_" + task);
        wait_until("its end", [&] { return count_of("training is complete", log(task)) == 1; });
        INFO(log(task));
        CHECK(count_of(": start ", log(task)) == 2);
        CHECK(count_of(in_order, log(task)) == 1);
    }
    wait_until("the end of the array", [&] { return array.state() == "COMPLETED\nCOMPLETED"; });
    for (const char* task : {"1", "2"}) CHECK(count_of(": start ", log(task)) == 2);
    CHECK(read_metrics(cluster / "run_1").steps.back().loss ==
          read_metrics(cluster / "run_2").steps.back().loss);
}

TEST_CASE("ten of each disturbance", "[.][soak]") {
    check_go_on(disturbances_of_srun(), 10);
    check_go_on(disturbances_of_mpirun(), 10);
}
