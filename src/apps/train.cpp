// SPDX-License-Identifier: Apache-2.0
// coeus train DECK [--section.option=value ...]
#include "train.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/stop_signals.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/config/config.hpp"
#include "coeus/job/job_end.hpp"
#include "coeus/observe/start_up.hpp"
#include "coeus/train/dry_run.hpp"
#include "coeus/train/trainer.hpp"
#include "coeus/watchdog/watchdog.hpp"

#include <csignal>
#include <cstdio>

namespace coeus::apps {

int train(const Arguments& arguments) {
    // Installed before MPI starts, which takes a while, and kept until the process ends, since a second
    // signal may come late.
    static const StopSignals signals;
    // A closed pipe or terminal does not end a run: every line is also in the log file and the metrics.
    std::signal(SIGPIPE, SIG_IGN);
    StartUp start_up;
    const auto mpi = start_up.phase("MPI", [] { return MpiRuntime(nullptr, nullptr); });
    log::init({.rank = mpi.world_rank()});
    const CommandLine command_line =
        start_up.phase("deck", [&] { return parse_command_line(arguments, Communicator::world("deck")); });
    if (command_line.dry_run) {
        const Config& config = command_line.config;
        // only rank 0 logs, whatever log.ranks says
        log::init({.rank = mpi.world_rank(),
                   .color = !config.metrics.disable_color_printing,
                   .quiet = config.log.quiet});
        return mpi.world_rank() == 0 ? dry_run(command_line, mpi.world_size()) : 0;
    }
    if (mpi.world_rank() == 0) signals.announce();
    mpi.require_all_tasks();
    Watchdog watchdog(command_line.config.comm, mpi);
    watchdog.guard([&] {
        Trainer trainer(command_line, mpi, watchdog, start_up);
        trainer.run();
    });
    log::flush();
    if (mpi.world_rank() == 0) tell_job_script(JobNote::complete);
    return 0;
}

void train_help() {
    std::puts(
        "usage: [mpirun -n RANKS] coeus train DECK [--section.option=value ...]\n\n"
        "Trains the model that the deck describes. If checkpoint.enable is set, the same command again\n"
        "resumes from the newest checkpoint.\n\n"
        "  --dry_run             check everything, print mesh, model and memory plan, train nothing\n"
        "  --ranks N             with --dry_run: plan for N ranks\n"
        "  --gpu NAME            with --dry_run: plan for this GPU model: h100, h200, a100-40gb, ...\n"
        "  --memory SIZE         with --dry_run: plan for this much memory per rank, such as 80GiB\n"
        "  --strict              with --dry_run: exit code 2 if a real run would be refused\n"
        "  --profile             print at the end how much time each kind of kernel took "
        "(profiling.kernels)\n"
        "  --quiet               show only warnings and errors on the terminal (log.quiet)\n"
        "  --section.option=V    set an option; overrides the deck. Also --section.option V; for a boolean,\n"
        "                        --section.option or --section.no_option\n\n"
        "  coeus help options    all options with meaning and default");
}

}  // namespace coeus::apps
