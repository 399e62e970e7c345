// SPDX-License-Identifier: Apache-2.0
// Timetables for people: as text, one row a rank, and as a picture.
#pragma once

#include "coeus/pipeline/simulate.hpp"

#include <string>

namespace coeus {

struct TextStyle {
    bool color = false;
    int width = 0;  ///< of the terminal: longer rows are cut into several pieces; 0: never
};

/// A row for each rank under a line of times, each action as wide as it lasts: "F3", with several stages on a
/// rank "2F3", "B1---" for a longer one; "." where the rank is idle; "+" joins a pair.
std::string timetable_text(const Timetable& table, const Simulation& simulation, const TextStyle& style);

/// An SVG picture: a row for each rank, a box with the micro-batch's number for each action, colour by kind,
/// shade by stage, pairs in one frame, with title, bubble, frames alive and legend.
std::string timetable_svg(const Timetable& table, const Simulation& simulation);

/// "4 ranks, 8 micro-batches, 2 stages on each rank"
std::string shape_text(const Timetable& table);

}  // namespace coeus
