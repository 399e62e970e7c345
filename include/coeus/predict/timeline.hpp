// SPDX-License-Identifier: Apache-2.0
// The time line of a recording: each queue does its work in the order of submission, and waits for entries of
// other queues where the engine waits.
#pragma once

#include "coeus/comm/launch_order.hpp"
#include "coeus/pipeline/action.hpp"
#include "coeus/predict/rates.hpp"

#include <array>
#include <set>

namespace coeus {

/// Seconds of communication: of all operations, and those for which the computation waits.
struct Communication {
    double total = 0, exposed = 0;
};

/// Seconds by class of work, and of all.
struct Played {
    std::map<std::string, double> seconds;
    std::array<Communication, num_purposes> communication;
    std::map<ActionKind, double> actions;  ///< of the pipeline
    double total = 0;
    std::set<std::string> at_peak;   ///< classes of kernels with the time of the data sheet's peaks
    std::set<std::string> left_out;  ///< what the machine file says nothing about
};

/// The class of a kernel: "products", "norms".
std::string class_of(const std::string& kernel);
/// "gathers of weights"
const char* name_of(Purpose purpose);
/// The class of waits for communication: "waits for gathers of weights".
const char* class_of(Purpose purpose);
/// The class of waits for other stages of a pipeline.
extern const char* const stage_waits;
/// The place of a class in a table.
size_t class_order(const std::string& name);

/// `graphs`: the step is given to a GPU as graphs. `order`: that of operations of several communicators.
/// overlapped: an operation begins when those submitted before have begun; serial: when they have ended.
/// Operations that run at once do not slow each other. Ranks and stages with which this one communicates are
/// always ready.
Played play(const Recording& recording, const Rates& rates, bool graphs, LaunchOrder order);

}  // namespace coeus
