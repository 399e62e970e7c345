// SPDX-License-Identifier: Apache-2.0
// Timetables as CSV in PyTorch's format (pipeline_parallel_schedule_csv): one line per rank and one cell per
// action; an empty cell is an idle entry.
//   0F0,0F1,,0B0,0B1
//   ,1F0,1B0,1F1,1B1
#pragma once

#include "coeus/pipeline/schedule.hpp"

namespace coeus {

/// What to do with the messages of a lowered file (1RECV_F0).
enum class Messages {
    drop,  ///< leave them out: lower() adds its own
    keep   ///< keep them, and set their peers
};

/// Reads and checks a file. The numbers of stages, ranks and micro-batches and the placement of stages follow
/// from its cells. Entries of FSDP (0UNSHARD) are left out. ConfigError with the file, and with rank and cell
/// (both counted from 0) if a cell is wrong.
Timetable read_timetable(const std::string& path);
/// The same for the file's text.
Timetable checked_timetable(const std::string& text, const std::string& path);

/// Parses a text, and checks only the form of its cells. `name` begins the messages.
Timetable parse_timetable(const std::string& text, const std::string& name, Messages messages);

/// The inverse of parse_timetable, for computations.
std::string csv_text(const Timetable& table);

}  // namespace coeus
