// SPDX-License-Identifier: Apache-2.0
#include "slurm/cluster.hpp"

#include "coeus/comm/mpi.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace coeus::test {

namespace fs = std::filesystem;

namespace {

const std::string script = paths::source() + "/tests/slurm/cluster.sh";

bool is_open_mpi() {
    return MpiRuntime::library_version().starts_with("Open MPI");
}

constexpr const char* deck_text = R"(
[job]
dump_folder = "{}"
[model]
dim = 32
n_layers = 2
n_heads = 4
n_kv_heads = 2
ffn_hidden = 48
vocab_size = 64
[training]
dataset_path = "tokens.h5"
seq_len = 16
local_batch_size = 4
steps = 200
threads = 1
mixed_precision_param = "float32"
[lr_scheduler]
warmup_steps = 2
[metrics]
log_freq = 10
[checkpoint]
enable = true
interval = 5
{}
)";

}  // namespace

int64_t newest_step(const fs::path& run) {
    int64_t newest = 0;
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(run / "checkpoint", absent)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("step-") && name.ends_with(".h5"))
            newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
    }
    return newest;
}

bool slurm_is_here() {
    // dash looks only for the first name
    const Outcome found = run_shell(
        "PATH=$PATH:/usr/sbin; for name in munged slurmctld slurmd srun sbatch; do command -v $name || exit "
        "1; done");
    if (found.exit_code == 0) return true;
    skip_unless_required("Slurm is not installed (Debian: slurm-wlm, munge)");
    return false;
}

Cluster::Cluster(int nodes) {
    const Outcome up = run_shell(
        // mpirun of MPICH starts its daemons by srun, which may not have PMIx
        fmt::format("PATIENCE={} MPI_DEFAULT={} {} up {} {} 1", whole_patience(1),
                    is_open_mpi() ? "pmix" : "none", script, folder_.path().string(), nodes));
    INFO(up.output);
    REQUIRE(up.exit_code == 0);
    // ends the cluster if this process is killed
    run_shell(fmt::format(
        "(setsid sh -c 'tail --pid={} -f /dev/null; exec {} down {}' < /dev/null > /dev/null 2>&1 &)",
        getpid(), script, folder_.path().string()));
    // the data of all jobs
    write_token_file(folder_ / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
}

Cluster::~Cluster() {
    run_shell(fmt::format("PATIENCE={} {} down {}", whole_patience(1), script, folder_.path().string()));
}

Outcome Cluster::run(const std::string& command) const {
    // PMIx: ranks wait for a rank that is lost within MPI_Init for twice that long, by default for 10 minutes
    return run_shell(
        fmt::format("cd {0} && export SLURM_CONF={0}/slurm.conf SLURM_PMIX_TIMEOUT={7} COEUS={1} "
                    "COEUS_JOBSCRIPTS={2}/jobscripts XDG_CACHE_HOME={3} LD_PRELOAD={4} {5} && {6}",
                    folder_.path().string(), paths::program(), paths::source(), paths::cache(), paths::naps(),
                    is_open_mpi() ? "" : "COEUS_LAUNCH='srun --mpi=pmi2 --kill-on-bad-exit=1'", command,
                    whole_patience(20)));
}

std::string Cluster::ask(const std::string& command) const {
    Outcome outcome = run(command);
    INFO(command << ": " << outcome.output);
    CHECK(outcome.exit_code == 0);
    outcome.output.erase(outcome.output.find_last_not_of('\n') + 1);
    return outcome.output;
}

TrainingJob::TrainingJob(const Cluster& cluster, const std::string& name, const How& how)
    : cluster_(cluster), name_(name) {
    const std::string deck = name + ".toml";
    write_file(cluster / deck, fmt::format(deck_text, name, how.deck));
    std::string script = paths::source() + "/jobscripts/local/train.sbatch " + deck + " " + how.arguments;
    if (how.printed) {
        script = name + ".sbatch";
        cluster.ask(paths::program() + " sbatch " + deck + " --machine=local > " + script);
    }
    id_ = cluster.ask(how.environment + " sbatch --parsable --output=" + name + ".log " + how.sbatch + " " +
                      script);
}

std::string TrainingJob::log() const {
    const fs::path file = cluster_ / (name_ + ".log");
    return fs::exists(file) ? read_file(file) : "";
}

std::string TrainingJob::state() const {
    return cluster_.ask("squeue --noheader --states=all --format=%T --jobs=" + id_);
}

std::string TrainingJob::nodes() const {
    return cluster_.ask("squeue --noheader --format=%N --jobs=" + id_);
}

void TrainingJob::wait_for_step(int64_t step) const {
    wait_until(fmt::format("step {} of {}", step, name_), [&] { return newest_step(run_folder()) >= step; });
}

void TrainingJob::wait_for_end() const {
    wait_until("the end of " + name_, [&] {
        const std::string now = state();
        for (const char* end : {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"})
            if (now == end) return true;
        return false;
    });
}

std::vector<std::string> TrainingJob::ranks() const {
    // jobs of other tests may have the same name
    const Outcome found =
        run_shell(fmt::format("for pid in $(pgrep -f '^{} train {}.toml'); do "
                              "[ \"$(readlink /proc/$pid/cwd)\" != '{}' ] || echo $pid; done",
                              paths::program(), name_, fs::canonical(cluster_ / ".").string()));
    return lines_of(found.output);
}

int starts_lost_in_mpi(const std::string& log) {
    int lost = 0;
    for (size_t at = log.find(": start "); at != std::string::npos;) {
        const size_t next = log.find(": start ", at + 1);
        const std::string start = log.substr(at, next - at);
        lost +=
            std::min(start.find("Segmentation fault"), start.find("MPI_INIT failed")) < start.find("[coeus]");
        at = next;
    }
    return lost;
}

int TrainingJob::starts_lost_in_mpi() const {
    const int lost = test::starts_lost_in_mpi(log());
    if (lost > 0) WARN(lost << " starts of " << name_ << " died within MPI_Init");
    return lost;
}

void TrainingJob::finish(int starts, bool preempted) const {
    wait_for_end();
    INFO(log());
    CHECK(state() == "COMPLETED");
    // Slurm 24 starts a preempted job once more after its end, with nothing left to do
    const int more = preempted ? count_of("of training.steps = 200: nothing to do", log()) : 0;
    CHECK(more <= 1);
    CHECK(count_of("training is complete", log()) == 1 + more);
    CHECK(count_of(": start ", log()) == starts + more + starts_lost_in_mpi());
    CHECK(ranks().empty());
}

}  // namespace coeus::test
