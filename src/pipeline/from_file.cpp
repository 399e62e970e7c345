// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/from_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/pipeline/simulate.hpp"

#include <algorithm>
#include <map>

namespace coeus {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + 1))
        parts.push_back(text.substr(0, end));
    parts.push_back(text);
    return parts;
}

// True for entries other than messages that PyTorch's lowering adds: 0UNSHARD, 1WAIT_SEND_F0.
bool is_of_fsdp_or_a_wait(std::string_view cell) {
    const size_t kind = cell.find_first_not_of(" \t0123456789");
    if (kind == 0 || kind == std::string_view::npos) return false;
    cell.remove_prefix(kind);
    const std::string_view name = cell.substr(0, cell.find_first_of(" \t\r0123456789"));
    return name == "UNSHARD" || name == "RESHARD" || name == "REDUCE_GRAD" || name == "WAIT_REDUCE_GRAD" ||
           name == "WAIT_SEND_F" || name == "WAIT_SEND_B";
}

Row parse_row(std::string_view line, const std::string& name, int rank, Messages messages) {
    Row row;
    int column = -1;
    for (const std::string_view text : split(line, ',')) {
        ++column;
        if (is_of_fsdp_or_a_wait(text)) continue;
        const std::optional<Cell> cell = parse_cell(text);
        if (!cell)
            throw ConfigError(
                "{}: rank {}, cell {}: \"{}\" is not an action; an action is a stage, F, B, I or W, and a "
                "micro-batch, such as 2F0, or a pair (0F3;3B1)OVERLAP_F_B",
                name, rank, column, text);
        const bool message = !cell->empty() && !(*cell)[0].computes();
        if (!message || messages == Messages::keep) row.push_back(*cell);
    }
    return row;
}

// The numbers of stages and micro-batches follow from the largest ones.
void find_shape(Timetable& table) {
    int64_t actions = 0, stages = 0, microbatches = 0;
    for (const Row& row : table.rows) {
        for (const Cell& cell : row) {
            for (const Action& action : cell) {
                ++actions;
                stages = std::max(stages, int64_t(action.stage) + 1);
                microbatches = std::max(microbatches, int64_t(action.microbatch) + 1);
            }
        }
    }
    if (actions == 0) throw ConfigError("{}: is empty; it contains no actions", table.name);
    // a typing error in a number must not allocate all memory
    if (actions < stages * microbatches)
        throw ConfigError(
            "{}: {} actions are too few for {} stages and {} micro-batches, the largest numbers in the file",
            table.name, actions, stages, microbatches);
    table.microbatches = int(microbatches);

    // a stage is on the rank that has most of its actions, so that check() finds a misplaced one
    std::map<std::pair<int, int>, int> count;  // by (stage, rank)
    for (int rank = 0; rank < table.ranks(); ++rank)
        for (const Cell& cell : table.rows[size_t(rank)])
            for (const Action& action : cell) ++count[{action.stage, rank}];
    const auto n = size_t(stages);
    std::vector<int> rank_of(n, -1), most(n), stages_of(table.rows.size());
    for (const auto& [place, actions_there] : count) {
        const auto [stage, rank] = place;
        if (actions_there <= most[size_t(stage)]) continue;
        most[size_t(stage)] = actions_there;
        rank_of[size_t(stage)] = rank;
    }
    for (int stage = 0; stage < int(stages); ++stage) {
        if (rank_of[size_t(stage)] < 0)
            throw ConfigError("{}: stage {} is on no rank, though there is a stage {}", table.name, stage,
                              stages - 1);
        ++stages_of[size_t(rank_of[size_t(stage)])];
    }
    for (int rank = 0; rank < table.ranks(); ++rank)
        if (stages_of[size_t(rank)] == 0)
            throw ConfigError("{}: rank {} has no stage of its own; each line is a rank", table.name, rank);
    table.placement = Placement(std::move(rank_of));
}

void set_peers(Timetable& table) {
    for (Row& row : table.rows) {
        for (Cell& cell : row) {
            if (cell.empty() || cell[0].computes()) continue;
            Action action = cell[0];
            const bool next =
                action.kind == ActionKind::send_forward || action.kind == ActionKind::receive_backward;
            const int peer = next ? action.stage + 1 : action.stage - 1;
            if (peer < 0 || peer >= table.stages())
                throw ConfigError("{}: {} has no stage at its other end", table.name, text_of(action));
            action.peer = table.placement.rank_of(peer);
            cell = action;
        }
    }
}

}  // namespace

Timetable parse_timetable(const std::string& text, const std::string& name, Messages messages) {
    Timetable table = {name, {}, 0, {}};
    std::string_view lines = text;
    while (!lines.empty() && (lines.back() == '\n' || lines.back() == '\r')) lines.remove_suffix(1);
    int rank = 0;
    for (const std::string_view line : split(lines, '\n'))
        table.rows.push_back(parse_row(line, name, rank++, messages));
    find_shape(table);
    if (messages == Messages::keep) set_peers(table);
    return table;
}

Timetable read_timetable(const std::string& path) {
    constexpr int64_t most_bytes = 128 << 20;
    return checked_timetable(read_text_file(path, most_bytes), path);
}

Timetable checked_timetable(const std::string& text, const std::string& path) {
    Timetable table = parse_timetable(text, path, Messages::drop);
    check(table);
    return table;
}

std::string csv_text(const Timetable& table) {
    std::string text;
    for (const Row& row : table.rows) {
        for (size_t i = 0; i < row.size(); ++i) {
            if (i) text += ',';
            text += text_of(row[i]);
        }
        text += '\n';
    }
    return text;
}

}  // namespace coeus
