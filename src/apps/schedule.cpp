// SPDX-License-Identifier: Apache-2.0
// coeus schedule --name 1F1B --pp 4 --microbatches 8: shows the timetable of a pipeline schedule, or of a CSV
// file, with its bubble and the number of frames (activations of one micro-batch in one stage) in memory: as
// text, as a picture and as CSV.
#include "schedule.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/pipeline/draw.hpp"
#include "coeus/pipeline/from_file.hpp"
#include "coeus/pipeline/lower.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace coeus::apps {

namespace {

Flags schedule_flags() {
    std::string names;
    for (const Schedule& schedule : schedules())
        names += fmt::format("\n  {:<22} {}", schedule.name, schedule.summary);
    Flags flags("schedule", "--name NAME --pp P --microbatches M | --csv FILE", "",
                "Shows when each rank of a pipeline does what, how long the ranks are idle (the bubble), and "
                "how many frames each has in memory (a frame is the activations of one micro-batch in one "
                "stage). A forward pass (F) and each half of a backward pass (I: gradients of inputs, W: of "
                "weights) take 1 unit of time; a whole backward pass (B) takes 2.\n"
                "Schedules:" +
                    names);
    flags.add("name", "NAME", "", "name of the schedule, as in parallelism.pipeline_parallel_schedule")
        .add("pp", "P", "", "number of ranks of the pipeline")
        .add("microbatches", "M", "", "number of micro-batches of a step")
        .add("virtual", "V", "", "number of stages per rank; default: 1 or 2, as the schedule requires")
        .add("csv", "FILE", "", "your own timetable, in PyTorch's format, instead of a schedule")
        .add("svg", "FILE", "", "write the timetable as a picture")
        .add("output", "FILE", "", "write the timetable as CSV, in PyTorch's format")
        .add_switch("lowered", "with --output: include sends and receives")
        .add_force();
    return flags;
}

Timetable from_name(const Flags& flags) {
    const std::string& name = flags.required("name");
    const Schedule* schedule = find_schedule(name);
    if (!schedule) throw ConfigError("--name {}: {}", name, unknown_schedule_text(name));
    for (const char* needed : {"pp", "microbatches"}) flags.required(needed);
    PipelineShape shape = {.ranks = int(flags.integer("pp", 1, 256)),
                           .microbatches = int(flags.integer("microbatches", 1, 1024)),
                           .virtual_stages = schedule->default_virtual_stages};
    if (flags.given("virtual")) shape.virtual_stages = int(flags.integer("virtual", 1, 8));
    if (const auto refusal = schedule->refusal(shape)) {
        const bool of_microbatches = refusal->field == Refusal::Field::microbatches;
        throw ConfigError(
            "--{} {}: {}; the nearest valid value is {}", of_microbatches ? "microbatches" : "virtual",
            of_microbatches ? shape.microbatches : shape.virtual_stages, refusal->rule, refusal->nearest);
    }
    return schedule->timetable(shape);
}

Timetable from_csv(const Flags& flags) {
    for (const char* other : {"name", "pp", "microbatches", "virtual"})
        if (flags.given(other))
            throw ConfigError("--{} and --csv cannot be used together: the file determines it", other);
    return read_timetable(flags.text("csv"));
}

void write(const std::string& path, const std::string& content) {
    std::ofstream file(path, std::ios::binary);
    file << content;
    file.close();
    if (!file) fail_at_path(fmt::format("cannot write {}: {}", path, errno_text(errno)), errno);
}

TextStyle terminal_style() {
    winsize size{};
    if (!log::is_terminal(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size.ws_col = 0;
    return {.color = log::colored(), .width = size.ws_col};
}

// "4 on each rank" if all ranks have the same value, else "4 3 2 1, rank by rank".
std::string per_rank(const std::vector<int>& values) {
    if (std::ranges::all_of(values, [&](int v) { return v == values[0]; }))
        return fmt::format("{}{}", values[0], values.size() > 1 ? " on each rank" : "");
    std::vector<std::string> parts;
    for (const int value : values) parts.push_back(std::to_string(value));
    return join(parts, " ") + ", rank by rank";
}

void line(const char* name, const std::string& value) {
    fmt::print("{:<15} {}\n", name, value);
}

void print(const Timetable& table, const Simulation& simulation, const Timetable& lowered) {
    fmt::print("{}: {}\n\n{}\n", table.name, shape_text(table),
               timetable_text(table, simulation, terminal_style()));
    line("time", fmt::format("{}, of which each rank works {}", simulation.makespan, simulation.busy[0]));
    line("bubble", fmt::format("{:.1f} %", 100 * simulation.bubble_fraction));
    line("frames alive", per_rank(simulation.peak_frames));
    if (std::ranges::max(simulation.peak_owed_weights) > 0)
        line("weights owed", per_rank(simulation.peak_owed_weights));
    int sends = 0;
    for (const Row& row : lowered.rows)
        for (const Cell& cell : row)
            for (const Action& action : cell) sends += action.sends();
    line("messages", with_commas(sends));
}

}  // namespace

Flags schedule_help() {
    return schedule_flags();
}

int schedule(const Arguments& arguments) {
    Flags flags = schedule_flags();
    flags.parse(arguments);
    if (!flags.given("name") && !flags.given("csv"))
        throw ConfigError("coeus schedule needs --name or --csv; see coeus help schedule");
    const Timetable table = flags.given("csv") ? from_csv(flags) : from_name(flags);
    if (flags.given("lowered") && !flags.given("output")) throw ConfigError("--lowered needs --output FILE");
    flags.require_different_files("svg", "output");
    for (const char* file : {"svg", "output"}) {
        flags.require_different_files("csv", file);
        if (flags.given(file)) flags.require_replaceable(flags.text(file));
    }
    const Simulation simulation = simulate(table);
    const Timetable lowered = lower(table);
    prove_unbuffered(lowered, Queues::one);
    prove_unbuffered(lowered, Queues::per_channel);
    print(table, simulation, lowered);
    if (flags.given("svg")) write(flags.text("svg"), timetable_svg(table, simulation));
    if (flags.given("output"))
        write(flags.text("output"), csv_text(flags.given("lowered") ? lowered : table));
    return 0;
}

}  // namespace coeus::apps
