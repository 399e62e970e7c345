// SPDX-License-Identifier: Apache-2.0
// coeus train DECK [--section.option=value ...]
#include "train.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/stop_signals.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/job/job_end.hpp"
#include "coeus/observe/start_up.hpp"
#include "coeus/train/dry_run.hpp"
#include "coeus/train/trainer.hpp"
#include "coeus/watchdog/watchdog.hpp"

#include <unistd.h>

#include <csignal>

namespace coeus::apps {

int train(const Arguments& arguments) {
    // Installed before MPI starts, which takes a while, and kept until the process ends, since a second
    // signal may come late.
    static const StopSignals signals;
    // A closed pipe or terminal does not end a run: every line is also in the log file and the metrics.
    std::signal(SIGPIPE, SIG_IGN);
    set_read_patience(run_patience);
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
    if (mpi.world_rank() == 0) signals.announce(STDOUT_FILENO);
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

// They are parsed with the options of the deck (config/command_line.cpp).
Flags train_help() {
    Flags flags(
        "train", "DECK [--section.option=value ...]", "a deck",
        "Trains the model that the deck describes. The same command resumes from the newest checkpoint.\n"
        "On several ranks: mpirun -n RANKS coeus train DECK. Options of the deck are overridden by\n"
        "--section.option=value or --section.option value, booleans also by --section.option and\n"
        "--section.no_option. `coeus help options` prints every option with its meaning and default.");
    flags.add_switch("dry_run", "validate everything, print mesh, model and memory, run nothing")
        .add("ranks", "N", "", "for a dry run: as if started on N ranks")
        .add("gpu", "NAME", "", "for a dry run: plan for this GPU: h100-sxm, h200, ..., or a machine file")
        .add("memory", "SIZE", "", "for a dry run: plan for ranks with this much memory, for example 80GiB")
        .add_switch("strict",
                    "for a dry run: exit code 2 also if a run would be refused only on this host, "
                    "because of missing files or memory")
        .add_switch("profile", "print at the end which kernels the time went to (profiling.kernels)")
        .add_switch("quiet", "only warnings and errors on the terminal (log.quiet)");
    return flags;
}

}  // namespace coeus::apps
