// SPDX-License-Identifier: Apache-2.0
// The parts of a parameter that ranks draw are those of the whole: rows and columns of tensor parallelism,
// rows of FSDP, experts of expert parallelism, and both copies of a tied table.
#include "coeus/base/random.hpp"
#include "coeus/state/parameters.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/sharded_weights.hpp"
#include "support/support.hpp"

#include <vector>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("initial values: every shard has the values of the whole, of every kind and in every type") {
    for (const Dtype master : {Dtype::f64, Dtype::f32, Dtype::bf16})
        for (const ShardPlace& place : places_of_shards()) {
            CAPTURE(name_of(master), place.tp_rank, place.fsdp_rank, place.ep_rank);
            Parameters parameters({master, master}, place);
            declare_every_kind(parameters);
            parameters.allocate(false);
            parameters.initialise(11, 2);
            int64_t compared = 0, wrong = 0;
            for (const Storage& storage : parameters.storages())
                for (const OwnedRun& run : storage.runs()) {
                    const OwnedRows rows = Parameters::rows_of(storage, run);
                    for (int64_t i = 0; i < rows.master.count(); ++i, ++compared)
                        wrong += !(element(rows.master, i) == whole_value(rows, i, 11));
                }
            CHECK(wrong == 0);
            CHECK(compared > 0);
        }
}

TEST_CASE("initial values: the optimizer's place of a rank's elements is that of the whole parameter") {
    int whole = 0, divided = 0;
    for (const ShardPlace& place : places_of_shards()) {
        CAPTURE(place.tp_rank, place.fsdp_rank, place.ep_rank);
        Parameters parameters({Dtype::f32, Dtype::f32}, place);
        declare_every_kind(parameters);
        if (place.ep == 1) parameters.add({.name = "vector", .shape = {30}});
        parameters.allocate(false);
        parameters.for_each_owned([&](const OwnedRows& rows) {
            const ElementPlace at = rows.place();
            CHECK(at.stream == stream_of(rows.param.name));
            const int64_t cols = rows.master.cols(), all = rows.param.shape.cols();
            CHECK(at.run == (cols == all ? 0 : cols));  // whole rows are one run
            (at.run == 0 ? whole : divided) += 1;
            const int64_t run = at.run > 0 ? at.run : rows.master.count();
            int wrong = 0;
            for (int64_t i = 0; i < rows.master.count(); ++i) {
                const uint64_t index = at.first_index + uint64_t(i / run) * at.stride + uint64_t(i % run);
                wrong += index != uint64_t((rows.first_row + i / cols) * all + rows.first_col + i % cols);
            }
            CHECK(wrong == 0);
        });
    }
    CHECK(whole > 0);
    CHECK(divided > 0);
}

TEST_CASE("initial values: both copies of a parameter, and its parts in other storages, are drawn alike") {
    const auto drawn = [](int copy) {
        Parameters parameters({Dtype::f32, Dtype::f32});
        if (copy == 1) parameters.add({.name = "before", .shape = {5, 3}, .init = Init::normal(1)});
        const Storage& table = parameters.add(
            {.name = "table", .shape = {40, 6}, .init = Init::normal(1), .copies = 2, .copy = copy});
        parameters.allocate(false);
        parameters.initialise(3, 1);
        return values_of(table.master);
    };
    CHECK(drawn(0) == drawn(1));
}
