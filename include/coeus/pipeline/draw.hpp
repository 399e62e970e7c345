// SPDX-License-Identifier: Apache-2.0
// Timetables for people: as text with one row per rank, and as a picture.
#pragma once

#include "coeus/pipeline/simulate.hpp"

#include <string>

namespace coeus {

struct TextStyle {
    bool color = false;
    int width = 0;  ///< of the terminal: longer rows are cut into pieces; 0: never
};

/// A row for each rank below a line of times. Each action is as wide as its duration: "F3", or "2F3" if a
/// rank has several stages, and "B1---" for a longer one; "." where the rank is idle; "+" joins a pair.
std::string timetable_text(const Timetable& table, const Simulation& simulation, const TextStyle& style);

/// An SVG picture. Each rank has a row, and each action a box with its micro-batch's number, coloured by kind
/// and shaded by stage; pairs have a common frame. It also has a title, the bubble, the number of frames
/// alive and a legend.
std::string timetable_svg(const Timetable& table, const Simulation& simulation);

/// "4 ranks, 8 micro-batches, 2 stages on each rank"
std::string shape_text(const Timetable& table);

}  // namespace coeus
