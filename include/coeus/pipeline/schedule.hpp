// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as data. A Schedule says for any shape whether it supports the shape, which stage is on
// which rank, and what each rank does in which order. A Timetable is this written out for one shape; files
// give one too. simulate.hpp proves timetables, lower.hpp adds their messages, draw.hpp shows them.
#pragma once

#include "coeus/pipeline/action.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// P, M and V in the literature; all at least 1.
struct PipelineShape {
    int ranks = 1;
    int microbatches = 1;
    int virtual_stages = 1;  ///< stages per rank

    int stages() const { return ranks * virtual_stages; }
};

/// Which rank has which stage.
class Placement {
public:
    Placement() = default;
    /// ranks[s] is the rank of stage s. Every rank from 0 to the largest must have a stage.
    explicit Placement(std::vector<int> ranks);
    /// Stage s is on rank s mod P.
    static Placement loop(const PipelineShape& shape);
    /// Rank r has stages r and 2 P - 1 - r: first down the ranks, then back, so the last stage is on rank 0.
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
    std::string name;  ///< name of the schedule, or path of the file; begins the messages about it
    Placement placement;
    int microbatches = 0;
    std::vector<Row> rows;

    int ranks() const { return int(rows.size()); }
    int stages() const { return placement.stages(); }
    /// True if a rank has two actions that may overlap.
    bool has_pairs() const;
    /// True if these are of two halves of a local batch.
    bool has_halves() const;
};

/// Why a schedule does not support a shape.
struct Refusal {
    enum class Field { microbatches, virtual_stages };
    Field field;
    std::string rule;  ///< "1F1B on 4 ranks needs at least 4 micro-batches"
    int nearest = 0;   ///< nearest value of the field that the rule allows; of two the larger
};

/// A pipeline schedule: a name and functions of the shape.
struct Schedule {
    const char* name;            ///< as spelled in parallelism.pipeline_parallel_schedule
    const char* summary;         ///< one line
    int default_virtual_stages;  ///< used if none is given
    Placement (*placement)(const PipelineShape& shape);
    /// The rule that the shape breaks; refusal() sets `nearest`.
    std::optional<Refusal> (*broken_rule)(const PipelineShape& shape);
    Row (*row)(const PipelineShape& shape, int rank);

    bool accepts(const PipelineShape& shape) const { return !broken_rule(shape); }
    /// The rule that the shape breaks, with the nearest allowed value.
    std::optional<Refusal> refusal(const PipelineShape& shape) const;
    /// All rows, for a shape that is supported.
    Timetable timetable(const PipelineShape& shape) const;
};

/// The timetable for one rank with one stage and one micro-batch: F, then B.
Timetable one_stage();
/// The same for two halves of a local batch that take turns: both F, then both B.
Timetable two_halves();

/// All built-in schedules.
const std::vector<Schedule>& schedules();
/// Finds a schedule by name, ignoring case; nullptr if there is none.
const Schedule* find_schedule(std::string_view name);
/// "no such schedule (did you mean 1F1B?); there are GPipe, ...": for messages.
std::string unknown_schedule_text(std::string_view name);

}  // namespace coeus
