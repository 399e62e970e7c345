// SPDX-License-Identifier: Apache-2.0
// Timetables as CSV in PyTorch's format (pipeline_parallel_schedule_csv): a line for each rank, a cell for
// each action, an empty cell for an idle place.
//   0F0,0F1,,0B0,0B1
//   ,1F0,1B0,1F1,1B1
#pragma once

#include "coeus/pipeline/schedule.hpp"

namespace coeus {

/// Messages of a lowered file (1RECV_F0).
enum class Messages {
    drop,  ///< leave them out: lower() places its own
    keep   ///< with their peers
};

/// Reads and checks a file. Stages, ranks, micro-batches and placement are those of its cells. What concerns
/// FSDP (0UNSHARD) is left out. ConfigError naming the file, and rank and cell (both from 0) where a cell is
/// wrong.
Timetable read_timetable(const std::string& path);
/// The same of the file's text.
Timetable checked_timetable(const std::string& text, const std::string& path);

/// The same from text, not checked beyond the form of its cells. `name` begins the messages.
Timetable parse_timetable(const std::string& text, const std::string& name, Messages messages);

/// The reverse.
std::string csv_text(const Timetable& table);

}  // namespace coeus
