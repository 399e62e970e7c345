// SPDX-License-Identifier: Apache-2.0
// coeus report RUN...: reports runs as text, as an HTML page and as CSV.
#include "report.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/report/report.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

namespace coeus::apps {

namespace {

int terminal_columns() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

Flags report_flags() {
    Flags flags(
        "report", "RUN... [--output FILE.html] [--csv FILE.csv]", "the folder of a run (job.dump_folder)",
        "Shows plots of loss, gradient norm, learning rate, throughput and memory, the last metrics, the use "
        "of wall time over all starts, and, for several runs, the differences between their decks. A run may "
        "still be in progress. Each run also writes its own report.html into its folder when it ends.");
    flags.add("output", "FILE.html", "", "write a self-contained page with plots")
        .add("csv", "FILE.csv", "", "write all values of metrics.jsonl: run, step, loss, ...")
        .add_force();
    return flags;
}

// The files in a run's folder that are not reports themselves.
std::vector<std::string> files_of_run(const std::string& run) {
    std::vector<std::string> files;
    std::error_code unseen;
    for (const std::filesystem::path& file : entries_patiently(run, unseen))
        if (file.extension() != ".html" && file.extension() != ".csv") files.push_back(file.string());
    return files;
}

}  // namespace

Flags report_help() {
    return report_flags();
}

int report(const Arguments& arguments) {
    Flags flags = report_flags();
    flags.parse(arguments);
    for (const char* file : {"output", "csv"}) {
        if (!flags.given(file)) continue;
        for (const std::string& run : flags.words())
            flags.require_not_read(fmt::format("--{}", file), flags.required(file), files_of_run(run));
        flags.require_replaceable(flags.required(file));
    }
    flags.require_different_files("output", "csv");
    const std::vector<RunData> runs = read_runs(flags.words());
    std::fputs(report_text(runs, terminal_columns(), log::colored()).c_str(), stdout);
    std::fflush(stdout);
    if (flags.given("output")) {
        write_report(flags.required("output"), report_html(runs));
        log::info("Wrote {}", flags.text("output"));
    }
    if (flags.given("csv")) {
        write_report(flags.required("csv"), report_csv(runs));
        log::info("Wrote {}", flags.text("csv"));
    }
    return 0;
}

}  // namespace coeus::apps
