// SPDX-License-Identifier: Apache-2.0
// Owned rows as runs, and the ranks that own the same rows.
#include "coeus/state/parameters.hpp"
#include "coeus/state/replica.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <array>
#include <set>
#include <tuple>

using namespace coeus;
using namespace coeus::test;

namespace {

Param grouped(const std::string& name, int64_t rows, int64_t groups, Split tp = Split::none) {
    return {.name = name, .shape = {rows, 2}, .init = Init::normal(1), .shard = {tp}, .groups = groups};
}

// name, first, rows and first_row of each run.
using Lines = std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>>;
Lines lines(const Storage& storage) {
    Lines found;
    for (const OwnedRun& run : storage.runs())
        found.emplace_back(run.param->name, run.first, run.rows, run.first_row);
    return found;
}

Storage of(std::vector<Param> params, const ShardPlace& place) {
    return Storage(std::move(params), {Dtype::f64, Dtype::f64}, place);
}

}  // namespace

TEST_CASE("runs: one for each parameter, with the rows that a rank owns") {
    const auto rows = [&](int rank) {
        const std::vector<Param> params = {grouped("q", 4, 1), grouped("k", 2, 1), grouped("v", 1, 1)};
        return lines(of(params, {.fsdp = 3, .fsdp_rank = rank}));
    };
    CHECK(rows(0) == Lines{{"q", 0, 3, 0}});
    CHECK(rows(1) == Lines{{"q", 0, 1, 3}, {"k", 1, 2, 0}});
    CHECK(rows(2) == Lines{{"v", 0, 1, 0}});
    CHECK(of({grouped("a", 2, 1)}, {.fsdp = 3, .fsdp_rank = 2}).runs().empty());
}

TEST_CASE("runs: groups are stored one after the other, and adjacent runs are joined") {
    const auto rows = [&](int ranks, int rank) {
        return lines(of({grouped("w1", 6, 2), grouped("w3", 4, 2)}, {.fsdp = ranks, .fsdp_rank = rank}));
    };
    CHECK(rows(1, 0) == Lines{{"w1", 0, 3, 0}, {"w3", 3, 2, 0}, {"w1", 5, 3, 3}, {"w3", 8, 2, 2}});
    CHECK(rows(3, 0) == Lines{{"w1", 0, 3, 0}, {"w3", 3, 1, 0}});
    CHECK(rows(3, 1) == Lines{{"w3", 0, 1, 1}, {"w1", 1, 3, 3}});
    CHECK(rows(3, 2) == Lines{{"w3", 0, 2, 2}});
    // one parameter: its groups are adjacent, except for the rows that other tensor-parallel ranks have of
    // each
    CHECK(lines(of({grouped("w2", 12, 4)}, {.fsdp = 2, .fsdp_rank = 1})) == Lines{{"w2", 0, 6, 6}});
    // expert parallelism: the second half of the groups, and of these the second half of the rows
    CHECK(lines(of({grouped("w2", 12, 4)}, {.ep = 2, .ep_rank = 1})) == Lines{{"w2", 0, 6, 6}});
    CHECK(lines(of({grouped("w2", 12, 4)}, {.fsdp = 2, .fsdp_rank = 1, .ep = 2, .ep_rank = 1})) ==
          Lines{{"w2", 0, 3, 9}});
    CHECK_THROWS_AS(of({grouped("w2", 12, 4)}, {.ep = 3}), LogicError);
    const std::vector<Param> divided = {grouped("w2", 12, 4, Split::rows)};
    CHECK(lines(of(divided, {.tp = 2, .tp_rank = 0})) ==
          Lines{{"w2", 0, 2, 0}, {"w2", 2, 2, 3}, {"w2", 4, 2, 6}, {"w2", 6, 2, 9}});
    CHECK(lines(of(divided, {.tp = 2, .tp_rank = 1})) ==
          Lines{{"w2", 0, 1, 2}, {"w2", 1, 1, 5}, {"w2", 2, 1, 8}, {"w2", 3, 1, 11}});
}

TEST_CASE("runs: the ranks together own every element once, however a storage is divided") {
    for (const Split split : {Split::rows, Split::cols, Split::none})
        for (const int64_t groups : {1, 3})
            for (const int tp : {1, 2, 3})
                for (const int fsdp : {1, 2, 4, 7}) {
                    CAPTURE(int(split), groups, tp, fsdp);
                    std::map<std::string, std::vector<int>> owners = {{"a", std::vector<int>(24)},
                                                                      {"b", std::vector<int>(12)}};
                    const int ranks = split == Split::none ? 1 : tp;
                    for (int r = 0; r < ranks * fsdp; ++r) {
                        const Storage storage =
                            of({grouped("a", 12, groups, split), grouped("b", 6, groups, split)},
                               {.tp = tp, .tp_rank = r / fsdp, .fsdp = fsdp, .fsdp_rank = r % fsdp});
                        int64_t next = 0;  // address
                        for (const OwnedRun& run : storage.runs()) {
                            CHECK(run.first == next);
                            CHECK(run.rows > 0);
                            next += run.rows;
                            for (int64_t row = run.first_row; row < run.first_row + run.rows; ++row)
                                for (int64_t col = 0; col < run.param->local.cols; ++col)
                                    ++owners[run.param->name][size_t(row * 2 + run.first_col + col)];
                        }
                        CHECK(next == storage.shard_shape().rows());
                    }
                    CHECK(owners["a"] == std::vector<int>(24, 1));
                    CHECK(owners["b"] == std::vector<int>(12, 1));
                }
}

TEST_CASE("runs: groups change neither initial values nor the index of an element for the optimizer") {
    const auto drawn = [](int64_t groups, int ranks) {
        std::map<std::string, std::vector<double>> values_of = {{"a", std::vector<double>(24)},
                                                                {"b", std::vector<double>(12)}};
        for (int rank = 0; rank < ranks; ++rank) {
            Parameters parameters({Dtype::f64, Dtype::f64}, ShardPlace{.fsdp = ranks, .fsdp_rank = rank});
            parameters.add({grouped("a", 12, groups), grouped("b", 6, groups)});
            parameters.allocate(true);
            parameters.initialise(7, 2);
            parameters.for_each_owned([&](const OwnedRows& rows) {
                CHECK(rows.place().first_index == uint64_t(rows.first_row * 2));
                CHECK(rows.gradient.rows() == rows.master.rows());
                for (int64_t i = 0; i < rows.master.count(); ++i)
                    values_of[rows.param.name][size_t(rows.first_row * 2 + i)] = element(rows.master, i);
            });
        }
        return values_of;
    };
    const auto one = drawn(1, 1);
    CHECK(one.at("a")[0] != one.at("b")[0]);
    for (const int64_t groups : {1, 2, 6})
        for (const int ranks : {1, 2, 5}) CHECK(drawn(groups, ranks) == one);
}

TEST_CASE("replicas: ranks that own the same rows have different numbers, and one of each replica counts") {
    for (const Split split : {Split::none, Split::partial, Split::rows, Split::cols})
        for (const int copies : {1, 2}) {
            CAPTURE(int(split), copies);
            const bool divided = split == Split::rows || split == Split::cols;
            Param param = grouped("a", 6, 1, split);
            param.copies = copies;
            CHECK(is_divided_over_tp(param) == divided);
            // keyed by the part that the ranks own
            std::map<int, std::multiset<int>> numbers;
            std::map<std::array<int, 2>, int> counts;  // replica, part
            for (int replica = 0; replica < 3; ++replica)
                for (param.copy = 0; param.copy < copies; ++param.copy)
                    for (int tp_rank = 0; tp_rank < 4; ++tp_rank) {
                        const ShardPlace place = {
                            .tp = 4, .tp_rank = tp_rank, .replicas = 3, .replica = replica};
                        const Replica found = replica_of(param, place);
                        CHECK(found.count == 3 * copies * (divided ? 1 : 4));
                        const int part = divided ? tp_rank : 0;
                        numbers[part].insert(found.number);
                        counts[{replica, part}] += counts_here(param, place);
                    }
            for (const auto& [part, found] : numbers) {
                std::multiset<int> expected;
                for (int i = 0; i < 3 * copies * (divided ? 1 : 4); ++i) expected.insert(i);
                CHECK(found == expected);
            }
            for (const auto& [of_whom, found] : counts) CHECK(found == 1);
        }
}

TEST_CASE("runs: a rank's columns know their position in the whole parameter") {
    for (const int tp_rank : {0, 1}) {
        ShardPlace place;
        place.tp = 2;
        place.tp_rank = tp_rank;
        Parameters parameters({Dtype::f64, Dtype::f64}, place);
        parameters.add({grouped("a", 6, 1, Split::cols)});
        parameters.allocate(true);
        int found = 0;
        parameters.for_each_owned([&](const OwnedRows& rows) {
            ++found;
            const ElementPlace at = rows.place();
            CHECK(at.first_index == uint64_t(tp_rank));  // each rank has one of 2 columns
            CHECK(at.run == 1);
            CHECK(at.stride == 2);
        });
        CHECK(found == 1);
    }
}
