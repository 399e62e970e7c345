// SPDX-License-Identifier: Apache-2.0
#include "rank_state.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace coeus {

namespace {

constexpr size_t last_of_a_line = 16;

// ".../src/train/trainer.cpp" -> "train/trainer.cpp:374"; the path of a file that is read or written stays
// unchanged
std::string place_text(const Operation& operation) {
    std::string place = operation.place.data();
    if (operation.source_line == 0) return place;
    if (const size_t at = place.rfind("src/"); at != std::string::npos) place = place.substr(at + 4);
    return fmt::format("{}:{}", place, operation.source_line);
}

}  // namespace

std::string RankState::Entry::text() const {
    std::string text = name;
    if (sequence > 0) text += fmt::format(" {}", sequence);
    if (!line.empty()) text += " of " + line;
    std::vector<std::string> rest;
    if (bytes > 0) rest.push_back(bytes_text(double(bytes)));
    if (!place.empty()) rest.push_back(place);
    return rest.empty() ? text : fmt::format("{} ({})", text, join(rest, ", "));
}

std::string RankState::who() const {
    return fmt::format("rank {} (host {}{}{})", rank, host, gpu.empty() ? "" : ", GPU " + gpu,
                       pid > 0 ? fmt::format(", process {}", pid) : "");
}

const RankState::Entry* RankState::at() const {
    const Entry *on_main = nullptr, *on_gpu = nullptr, *talks = nullptr, *works = nullptr;
    double quiet = 1e9;  // seconds since the main thread's last operation
    for (const Entry& entry : entries) {
        if (!entry.under_way) {
            if (entry.thread == pid) quiet = std::min(quiet, entry.seconds);
        } else if (entry.is_given_to_gpu()) {
            // the first that the GPU has reached, in any communicator, else the first that it was given
            if (!on_gpu || (entry.reached && !on_gpu->reached)) on_gpu = &entry;
        } else if (entry.thread == pid) {
            on_main = &entry;  // ends as the innermost
        } else if (entry.is_communication()) {
            if (!talks || entry.seconds > talks->seconds) talks = &entry;
        } else if (!works || entry.seconds > works->seconds) {
            works = &entry;
        }
    }
    if (on_main) return on_main;
    if (on_gpu) return on_gpu;
    if (talks) return talks;
    return works && works->seconds > 0.8 * quiet ? works : nullptr;
}

const RankState::Entry* RankState::last() const {
    const Entry* last = nullptr;
    for (const Entry& entry : entries)
        if (!entry.under_way && (!last || entry.seconds <= last->seconds)) last = &entry;
    return last;
}

const RankState::Stack* RankState::stack_of(int64_t thread) const {
    const auto found = std::ranges::find(stacks, thread, &Stack::thread);
    return found == stacks.end() ? nullptr : &*found;
}

RankState state_of(const FlightRecorder& recorder, double now) {
    RankState state;
    state.pid = recorder.pid();
    state.step = recorder.notes().step;
    const std::vector<OperationLine> lines = recorder.lines();
    for (const OperationLine& line : lines)
        if (line.name[0] != 0)
            state.lines.push_back({line.name.data(), line.id, line.rank, line.size, line.collectives});
    const std::vector<Operation> operations = recorder.operations();
    std::map<int32_t, size_t> kept;
    for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
        const auto number = size_t(operation->line);
        const bool has_line = operation->line >= 0 && number < lines.size();
        if (!operation->under_way() && kept[operation->line]++ >= last_of_a_line) continue;
        state.entries.push_back(
            {.line = has_line ? lines[number].name.data() : "",
             .id = has_line ? lines[number].id : 0,
             .kind = operation->kind,
             .name = operation->name.data(),
             .place = place_text(*operation),
             .sequence = operation->sequence,
             .bytes = operation->bytes,
             .peer = operation->peer,
             .thread = operation->thread,
             .under_way = operation->under_way(),
             .reached = operation->reached,
             .seconds = now - (operation->under_way() ? operation->began : operation->ended)});
    }
    std::ranges::reverse(state.entries);
    return state;
}

Json json_of(const RankState& state) {
    Json json = Json::object(), lines = Json::array(), entries = Json::array(), stacks = Json::array();
    for (const RankState::Line& line : state.lines)
        lines.push(Json::object()
                       .set("name", line.name)
                       .set("id", std::bit_cast<int64_t>(line.id))
                       .set("rank", line.rank)
                       .set("size", line.size)
                       .set("collectives", line.collectives));
    for (const RankState::Entry& entry : state.entries)
        entries.push(Json::object()
                         .set("operation", entry.name)
                         .set("communicator", entry.line)
                         .set("id", std::bit_cast<int64_t>(entry.id))
                         .set("kind", int(entry.kind))
                         .set("sequence", entry.sequence)
                         .set("bytes", entry.bytes)
                         .set("place", entry.place)
                         .set("peer", entry.peer)
                         .set("thread", entry.thread)
                         .set("under_way", entry.under_way)
                         .set("reached", entry.reached)
                         .set("seconds", entry.seconds));
    for (const RankState::Stack& stack : state.stacks)
        stacks.push(Json::object()
                        .set("thread", stack.thread)
                        .set("in_mpi", stack.in_mpi)
                        .set("on_disk", stack.on_disk)
                        .set("calls", stack.calls));
    return json.set("rank", state.rank)
        .set("host", state.host)
        .set("gpu", state.gpu)
        .set("pid", state.pid)
        .set("step", state.step)
        .set("condition", int(state.condition))
        .set("crash", state.crash)
        .set("error", state.error)
        .set("communicators", std::move(lines))
        .set("operations", std::move(entries))
        .set("stacks", std::move(stacks));
}

RankState rank_state_of(const JsonView& json) {
    RankState state;
    state.rank = int(json.integer("rank"));
    state.host = json.string("host");
    state.gpu = json.string("gpu");
    state.pid = json.integer("pid");
    state.step = json.integer("step");
    state.condition = RankState::Condition(json.integer("condition"));
    state.crash = json.string("crash");
    state.error = json.string("error");
    for (const JsonView& line : json["communicators"].elements())
        state.lines.push_back({line.string("name"), std::bit_cast<uint64_t>(line.integer("id")),
                               int(line.integer("rank")), int(line.integer("size")),
                               line.integer("collectives")});
    for (const JsonView& entry : json["operations"].elements())
        state.entries.push_back({.line = entry.string("communicator"),
                                 .id = std::bit_cast<uint64_t>(entry.integer("id")),
                                 .kind = OperationKind(entry.integer("kind")),
                                 .name = entry.string("operation"),
                                 .place = entry.string("place"),
                                 .sequence = entry.integer("sequence"),
                                 .bytes = entry.integer("bytes"),
                                 .peer = int(entry.integer("peer")),
                                 .thread = entry.integer("thread"),
                                 .under_way = entry.boolean("under_way"),
                                 .reached = entry.boolean("reached"),
                                 .seconds = entry.number("seconds")});
    for (const JsonView& stack : json["stacks"].elements())
        state.stacks.push_back({.thread = stack.integer("thread"),
                                .in_mpi = stack.boolean("in_mpi"),
                                .on_disk = stack.boolean("on_disk"),
                                .calls = stack["calls"].strings()});
    return state;
}

}  // namespace coeus
