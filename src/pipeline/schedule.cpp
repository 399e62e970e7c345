// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/schedule.hpp"

#include "built_in.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <cctype>

namespace coeus {

Placement::Placement(std::vector<int> ranks) : rank_of_(std::move(ranks)) {
    require(!rank_of_.empty() && std::ranges::min(rank_of_) >= 0, "a pipeline needs stages, on ranks from 0");
    stages_of_.resize(size_t(std::ranges::max(rank_of_)) + 1);
    for (int stage = 0; stage < stages(); ++stage) stages_of_[size_t(rank_of(stage))].push_back(stage);
    for (const auto& stages : stages_of_) require(!stages.empty(), "every rank must have a stage");
}

bool Timetable::has_pairs() const {
    return std::ranges::any_of(rows, [](const Row& row) { return std::ranges::any_of(row, &Cell::is_pair); });
}

bool Timetable::has_halves() const {
    return std::ranges::any_of(rows,
                               [](const Row& row) { return std::ranges::any_of(row, &Cell::is_halves); });
}

Placement Placement::loop(const PipelineShape& shape) {
    std::vector<int> ranks(size_t(shape.stages()));
    for (int s = 0; s < shape.stages(); ++s) ranks[size_t(s)] = s % shape.ranks;
    return Placement(std::move(ranks));
}

Placement Placement::v_shaped(const PipelineShape& shape) {
    std::vector<int> ranks(size_t(shape.stages()));
    for (int s = 0; s < shape.stages(); ++s) ranks[size_t(s)] = s < shape.ranks ? s : 2 * shape.ranks - 1 - s;
    return Placement(std::move(ranks));
}

std::optional<Refusal> Schedule::refusal(const PipelineShape& shape) const {
    std::optional<Refusal> refusal = broken_rule(shape);
    if (!refusal) return refusal;
    using Field = Refusal::Field;
    const auto allows = [&](int value) {
        if (value < 1) return false;
        PipelineShape other = shape;
        (refusal->field == Field::microbatches ? other.microbatches : other.virtual_stages) = value;
        const auto rule = broken_rule(other);
        return !rule || rule->field != refusal->field;
    };
    const int given = refusal->field == Field::microbatches ? shape.microbatches : shape.virtual_stages;
    for (int distance = 1; refusal->nearest == 0; ++distance) {
        if (allows(given + distance))
            refusal->nearest = given + distance;
        else if (allows(given - distance))
            refusal->nearest = given - distance;
    }
    return refusal;
}

Timetable Schedule::timetable(const PipelineShape& shape) const {
    require(shape.ranks >= 1 && shape.microbatches >= 1 && shape.virtual_stages >= 1 && accepts(shape),
            "the schedule does not accept the shape");
    Timetable table = {name, placement(shape), shape.microbatches, {}};
    for (int rank = 0; rank < shape.ranks; ++rank) table.rows.push_back(row(shape, rank));
    return table;
}

Timetable one_stage() {
    return pipeline::one_f_one_b.timetable({});
}

Timetable two_halves() {
    const auto both = [](ActionKind kind) { return Cell(Action{kind, 0, 0}, Action{kind, 0, 1}); };
    return {"two halves", Placement({0}), 2, {{both(ActionKind::forward), both(ActionKind::backward)}}};
}

const std::vector<Schedule>& schedules() {
    using namespace pipeline;
    static const std::vector<Schedule> all = {
        gpipe, one_f_one_b, interleaved, looped_bfs, interleaved_zero_bubble, zb_v, dualpipe_v};
    return all;
}

const Schedule* find_schedule(std::string_view name) {
    const auto same = [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
    };
    for (const Schedule& schedule : schedules())
        if (std::ranges::equal(std::string_view(schedule.name), name, same)) return &schedule;
    return nullptr;
}

std::string unknown_schedule_text(std::string_view name) {
    std::vector<std::string> names;
    for (const Schedule& schedule : schedules()) names.emplace_back(schedule.name);
    const std::string near = nearest_name(name, names);
    return fmt::format("no such schedule{}; there are {}",
                       near.empty() ? "" : " (did you mean " + near + "?)", join(names, ", "));
}

namespace pipeline {

std::optional<Refusal> needs_virtual_stages(const char* name, const PipelineShape& shape, int stages) {
    if (shape.virtual_stages == stages) return std::nullopt;
    return Refusal{Refusal::Field::virtual_stages,
                   fmt::format("{} has {} on each rank", name, stages == 1 ? "one stage" : "two stages")};
}

}  // namespace pipeline

}  // namespace coeus
