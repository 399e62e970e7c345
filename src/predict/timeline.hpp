// SPDX-License-Identifier: Apache-2.0
// The time line of a recording: a queue of the computation, one that gathers weights and one that reduces
// gradients.
#pragma once

#include "coeus/predict/rates.hpp"

#include <set>

namespace coeus {

/// Seconds by class of work, and of all.
struct Played {
    std::map<std::string, double> seconds;
    double total = 0;
    std::set<std::string> at_peak;   ///< classes of kernels with the time of the data sheet's peaks
    std::set<std::string> left_out;  ///< what the machine file says nothing about
};

/// The class of a kernel: "products", "norms".
std::string class_of(const std::string& kernel);
/// The place of a class in a table.
size_t class_order(const std::string& name);

/// `graphs`: the step is given to a GPU as graphs.
Played play(const Recording& recording, const Rates& rates, bool graphs);

}  // namespace coeus
