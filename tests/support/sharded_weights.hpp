// SPDX-License-Identifier: Apache-2.0
// Parameters with initial values of every kind, and the places of ranks that divide them.
#pragma once

#include "coeus/base/random.hpp"
#include "coeus/state/parameters.hpp"

#include <string>
#include <vector>

namespace coeus::test {

/// The place of a rank alone, and places of ranks with parts by tensor parallelism, FSDP and expert
/// parallelism. Some do not divide evenly.
inline std::vector<ShardPlace> places_of_shards() {
    return {{},
            {.tp = 2, .tp_rank = 1},
            {.tp = 3, .tp_rank = 2},
            {.fsdp = 2, .fsdp_rank = 1},
            {.fsdp = 5, .fsdp_rank = 3},
            {.tp = 2, .tp_rank = 1, .fsdp = 3, .fsdp_rank = 1},
            {.ep = 2, .ep_rank = 1},
            {.tp = 2, .tp_rank = 0, .fsdp = 2, .fsdp_rank = 1, .ep = 2, .ep_rank = 1}};
}

/// Matrices divided by rows, by columns and not at all, a vector, and stacks of four experts.
inline void declare_every_kind(Parameters& parameters) {
    const std::pair<const char*, Init> kinds[] = {{"ones", Init::ones()},
                                                  {"zeros", Init{}},
                                                  {"normal", Init::normal(0.02)},
                                                  {"truncated", Init::truncated_normal(0.5, 1.5)},
                                                  {"uniform", Init::uniform(0.25)}};
    for (const auto& [kind, init] : kinds)
        for (const Split split : {Split::none, Split::rows, Split::cols}) {
            const std::string name = std::string(kind) + std::to_string(int(split));
            parameters.add({.name = name + ".experts",
                            .shape = {4, 10, 14},
                            .init = init,
                            .shard = {.tp = split},
                            .groups = 4});
            parameters.add({.name = name + ".stack",
                            .shape = {4, 6},
                            .init = init,
                            .shard = {.tp = split},
                            .groups = 4});
        }
}

/// Element i of rows by its definition, rounded to the type of the rows.
inline double whole_value(const OwnedRows& rows, int64_t i, uint64_t seed) {
    const Param& param = rows.param;
    const int64_t row = rows.first_row + i / rows.master.cols(),
                  col = rows.first_col + i % rows.master.cols();
    const ElementPlace place = {.stream = stream_of(param.name),
                                .first_index = uint64_t(row * param.shape.cols() + col)};
    const OwnedTensor one(rows.master.dtype, {1});
    Exec exec;
    cpu_kernels().draw(exec, one, param.init, seed, place);
    return element(one, 0);
}

}  // namespace coeus::test
