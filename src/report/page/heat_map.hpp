// SPDX-License-Identifier: Apache-2.0
// Heat maps of the loads of experts: a card for each run that has an expert_loads.jsonl. The card shows one
// layer: the first one, until the script draws another that the reader chooses.
#pragma once

#include "coeus/file/json.hpp"
#include "coeus/report/report.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace coeus::report {

/// The loads of a run's experts, or of the ranks that divide them, as colours of cells. A column has the mean
/// loads of consecutive records, which are one unless there are very many. It is drawn over the steps since
/// the column before.
struct HeatMap {
    std::string run;  ///< its name; "" if the page has no other run
    bool of_ranks = false;
    std::vector<int64_t>
        edges;  ///< [columns + 1]: column i has the records of steps edges[i] < step <= edges[i + 1]
    int64_t records = 0;  ///< of a column; the last one may have fewer
    size_t rows = 0;      ///< experts or ranks
    struct Layer {
        int64_t number = 0;
        std::string cells;  ///< [rows, columns]: a digit each, or a space if nothing was recorded
    };
    std::vector<Layer> layers;
    size_t columns() const { return edges.size() - 1; }
};

/// A map of experts for each run that has loads, and a map of ranks if its deck has expert parallelism.
std::vector<HeatMap> heat_maps_of(const std::vector<RunData>& runs);

/// The digit of a load: "0" for no token, "U" (30) for the mean load of the layer, "y" (60) for four times
/// the mean and more. The scale is linear below the mean, and logarithmic above it.
char heat_digit(double load);

std::string heat_map_card(const HeatMap& map);
/// What the script needs to draw other layers and to show values.
Json heat_map_data(const HeatMap& map);

}  // namespace coeus::report
