// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as data. A Schedule is a value: for any shape it says whether it fits, which stage is on
// which rank, and what each rank does in which order. A Timetable is that, written out for one shape; files
// give one too. simulate.hpp proves timetables, lower.hpp adds their messages, draw.hpp shows them.
#pragma once

#include "coeus/pipeline/action.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// P, M and V of the literature; all at least 1.
struct PipelineShape {
    int ranks = 1;
    int microbatches = 1;
    int virtual_stages = 1;  ///< stages of a rank

    int stages() const { return ranks * virtual_stages; }
};

/// Which rank has which stage.
class Placement {
public:
    Placement() = default;
    /// ranks[s] is the rank of stage s; every rank from 0 to the largest has a stage.
    explicit Placement(std::vector<int> ranks);
    /// Stage s is on rank s mod P.
    static Placement loop(const PipelineShape& shape);
    /// Rank r has stages r and 2 P - 1 - r: down the ranks and back, so the last stage is on rank 0.
    static Placement v_shaped(const PipelineShape& shape);

    int ranks() const { return int(stages_of_.size()); }
    int stages() const { return int(rank_of_.size()); }
    int rank_of(int stage) const { return rank_of_[size_t(stage)]; }
    const std::vector<int>& stages_of(int rank) const { return stages_of_[size_t(rank)]; }

private:
    std::vector<int> rank_of_;
    std::vector<std::vector<int>> stages_of_;
};

/// A schedule for one shape: rows[rank] is what that rank does.
struct Timetable {
    std::string name;  ///< of the schedule, or the file's path; begins the messages about it
    Placement placement;
    int microbatches = 0;
    std::vector<Row> rows;

    int ranks() const { return int(rows.size()); }
    int stages() const { return placement.stages(); }
};

/// Why a shape does not fit.
struct Refusal {
    enum class Field { microbatches, virtual_stages };
    Field field;
    std::string rule;  ///< "1F1B on 4 ranks needs at least 4 micro-batches"
    int nearest = 0;   ///< value of the field that the rule allows; the larger of two as near
};

struct Schedule {
    const char* name;            ///< as parallelism.pipeline_parallel_schedule spells it
    const char* summary;         ///< one line
    int default_virtual_stages;  ///< for who does not say
    Placement (*placement)(const PipelineShape& shape);
    /// The rule that the shape breaks; `nearest` is left to refusal().
    std::optional<Refusal> (*broken_rule)(const PipelineShape& shape);
    Row (*row)(const PipelineShape& shape, int rank);

    bool accepts(const PipelineShape& shape) const { return !broken_rule(shape); }
    /// With the nearest value that would do.
    std::optional<Refusal> refusal(const PipelineShape& shape) const;
    /// All rows, for a shape that is accepted.
    Timetable timetable(const PipelineShape& shape) const;
};

/// One rank with one stage and one micro-batch: F, then B.
Timetable one_stage();

/// All built-in schedules.
const std::vector<Schedule>& schedules();
/// By name; case does not matter. nullptr where there is none.
const Schedule* find_schedule(std::string_view name);
/// "no such schedule, did you mean 1F1B?; there are GPipe, ...": for messages.
std::string unknown_schedule_text(std::string_view name);

}  // namespace coeus
