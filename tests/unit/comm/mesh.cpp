// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/mesh.hpp"

#include "coeus/comm/mpi.hpp"
#include "support/catch.hpp"

#include <set>

using namespace coeus;

TEST_CASE("mesh: tp varies fastest, then cp, dp_shard, dp_replicate, pp") {
    const MeshShape shape{.pp = 2, .dp_replicate = 1, .dp_shard = 3, .cp = 1, .tp = 2};
    CHECK(shape.ranks() == 12);
    CHECK(shape.coordinate(7, axis::tp) == 1);
    CHECK(shape.coordinate(7, axis::dp_shard) == 0);
    CHECK(shape.coordinate(7, axis::pp) == 1);
    CHECK(shape.rank_in(11, axis::dp_shard | axis::tp) == 5);
    CHECK(shape.text() == "pp 2 x dp_shard 3 x tp 2");
}

TEST_CASE("mesh: groups partition the world, and ranks number each group") {
    const MeshShape shape{.pp = 2, .dp_replicate = 2, .dp_shard = 1, .cp = 3, .tp = 2};
    for (unsigned axes : {unsigned(axis::pp), unsigned(axis::tp), axis::dp, axis::fsdp, loss_axes}) {
        std::set<std::pair<int, int>> seen;
        for (int rank = 0; rank < shape.ranks(); ++rank) {
            CHECK(shape.rank_in(rank, axes) < shape.size(axes));
            CHECK(shape.group_of(rank, axes) < shape.ranks() / shape.size(axes));
            CHECK(seen.insert({shape.group_of(rank, axes), shape.rank_in(rank, axes)}).second);
            CHECK(shape.ranks_of(rank, axes) == shape.groups(axes)[size_t(shape.group_of(rank, axes))]);
        }
    }
}

TEST_CASE("mesh: the remaining ranks go to dp_shard") {
    CHECK(resolve_mesh({.dp_shard = -1}, 1).dp_shard == 1);
    CHECK(resolve_mesh({.dp_shard = -1, .tp = 4}, 24).dp_shard == 6);
    CHECK(resolve_mesh({.dp_replicate = 2, .dp_shard = 3}, 6).ranks() == 6);
}

TEST_CASE("mesh: wrong degrees are refused with a valid choice") {
    const auto message = [](const MeshShape& degrees, int ranks) -> std::string {
        try {
            resolve_mesh(degrees, ranks);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "no error";
    };
    CHECK(message({.dp_replicate = 4}, 2) ==
          "the degrees of [parallelism] (dp_replicate 4) need 4 ranks, but 2 were started: start 4");
    CHECK_THAT(message({.dp_shard = 1}, 2), Contains("(one rank) need 1 rank, but 2 were started"));
    CHECK(message({.dp_shard = 4}, 6) ==
          "the degrees of [parallelism] (dp_shard 4) need 4 ranks, but 6 were started: start 4; with 6 ranks "
          "set parallelism.data_parallel_shard_degree = 6 (or -1: all that are left over)");
    CHECK(message({.dp_shard = -1, .tp = 4}, 6) ==
          "parallelism.tensor_parallel_degree = 4: 6 ranks are not a multiple of 4; start 4 or 8 ranks");
    CHECK(message({.dp_shard = -1, .cp = 2, .tp = 4}, 1) ==
          "parallelism.context_parallel_degree = 2, parallelism.tensor_parallel_degree = 4 (product 8): 1 "
          "rank is "
          "not a multiple of 8; start 8 ranks");
    CHECK(message({.dp_shard = -1, .tp = 4}, 3) ==
          "parallelism.tensor_parallel_degree = 4: 3 ranks are not a multiple of 4; start 4 ranks");
    CHECK(message({.tp = 0}, 2) == "parallelism.tensor_parallel_degree = 0: a degree is at least 1");
    CHECK(message({.dp_shard = -2}, 2) ==
          "parallelism.data_parallel_shard_degree = -2: a degree is at least 1, or -1 for all ranks that are "
          "left over");
}

TEST_CASE("mesh: the ranks of each group") {
    const MeshShape shape = {.pp = 2, .dp_shard = 8, .tp = 4};
    CHECK(shape.groups(axis::tp).size() == 16);
    CHECK(shape.groups(axis::tp)[1] == std::vector<int>{4, 5, 6, 7});
    CHECK(shape.groups(axis::pp)[3] == std::vector<int>{3, 35});
    CHECK(shape.groups(axis::dp_shard | axis::tp)[1].front() == 32);
    CHECK(shape.groups_text() ==
          "pp               2 ranks,    32 groups: 0 32 | 1 33 | 2 34 | ... | 31 63\n"
          "dp_shard         8 ranks,     8 groups: 0 4 8 ... 28 | 1 5 9 ... 29 | 2 6 10 ... 30 | ... | 35 39 "
          "43 ... 63\n"
          "tp               4 ranks,    16 groups: 0 - 3 | 4 - 7 | 8 - 11 | ... | 60 - 63");
    CHECK(MeshShape{.dp_replicate = 3}.groups_text() == "dp_replicate     3 ranks,     1 group : 0 - 2");
    CHECK(MeshShape{}.groups_text() == "");
}

TEST_CASE("mpi: several Slurm tasks with a world of one each mean that PMIx or PMI2 is missing") {
    CHECK(launcher_problem({}, 1).empty());
    CHECK_THAT(launcher_problem({.num_tasks = "4294967297"}, 1), Catch::Contains("4294967297 tasks"));
    CHECK(launcher_problem({.step_num_tasks = "1", .num_tasks = "4"}, 1).empty());  // srun -n 1
    CHECK(launcher_problem({.step_num_tasks = "4"}, 4).empty());
    CHECK(launcher_problem({.num_tasks = "4"}, 4).empty());  // mpirun in a batch shell
    CHECK(launcher_problem({.num_tasks = "4", .launcher_size = "1"}, 1).empty());
    CHECK_THAT(launcher_problem({.step_num_tasks = "4", .num_tasks = "4"}, 1),
               Catch::StartsWith("Slurm started 4 tasks") && Catch::Contains("srun --mpi=pmix"));
    CHECK_THAT(launcher_problem({.num_tasks = "4"}, 1), Catch::StartsWith("Slurm gives this job 4 tasks") &&
                                                            Catch::Contains("PMIx is missing") &&
                                                            Catch::Contains("srun --mpi=pmix"));
    CHECK_THAT(launcher_problem({.num_tasks = "4", .plugin = "pmi2"}, 1),
               Catch::Contains("PMI2 is missing") && Catch::Contains("srun --mpi=pmi2"));
}

TEST_CASE("mpi: ranks started by the mpirun of another MPI do not see each other") {
    CHECK(launcher_problem({.launcher_size = "2"}, 2).empty());
    for (const char* tasks : {"", "4"})
        CHECK(launcher_problem({.num_tasks = tasks, .launcher_size = "2", .library = "MPICH 4.0.2"}, 1) ==
              "mpirun started 2 ranks, but each sees an MPI world of one rank: this mpirun belongs to "
              "another MPI than the program, which was built with MPICH 4.0.2. Start it with the mpirun of "
              "that MPI");
}

TEST_CASE("experts see the ranks of a block as efsdp x ep x etp, with etp varying fastest") {
    // the coordinates by definition: b = (efsdp, ep, etp) for the rank b within dp_shard x cp x tp
    for (const MeshShape& shape :
         {MeshShape{.pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = 3, .tp = 2, .ep = 4, .etp = 1},
          MeshShape{.pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = 3, .tp = 2, .ep = 3, .etp = 2},
          MeshShape{.dp_shard = 4, .cp = 2, .tp = 2, .ep = 16}, MeshShape{.dp_shard = 2, .cp = 3, .tp = 2}}) {
        CAPTURE(shape.text());
        const int etp = shape.ep > 1 ? shape.etp : shape.tp, block = shape.dp_shard * shape.cp * shape.tp;
        CHECK(shape.size(axis::etp) == etp);
        CHECK(shape.size(axis::experts) == block);
        for (int rank = 0; rank < shape.ranks(); ++rank) {
            const int b = rank % block;
            CHECK(shape.coordinate(rank, axis::etp) == b % etp);
            CHECK(shape.rank_in(rank, axis::ep) == b / etp % shape.ep);
            CHECK(shape.rank_in(rank, axis::efsdp) == b / (etp * shape.ep));
            CHECK(shape.rank_in(rank, axis::experts) == b);
            CHECK(shape.group_of(rank, axis::experts) == rank / block);
        }
        for (const unsigned axes : {unsigned(axis::ep), unsigned(axis::efsdp), unsigned(axis::etp)}) {
            std::set<int> seen;
            for (const std::vector<int>& group : shape.groups(axes)) {
                CHECK(int(group.size()) == shape.size(axes));
                for (size_t i = 0; i < group.size(); ++i) CHECK(shape.rank_in(group[i], axes) == int(i));
                for (const int rank : group) CHECK(shape.ranks_of(rank, axes) == group);
                seen.insert(group.begin(), group.end());
            }
            CHECK(int(seen.size()) == shape.ranks());
        }
    }
    CHECK(MeshShape{.dp_shard = 4, .tp = 2, .ep = 2, .etp = 2}.text() ==
          "dp_shard 4 x tp 2 (experts: efsdp 2 x ep 2 x etp 2)");
    CHECK(MeshShape{.dp_shard = 4, .ep = 4}.groups_text() ==
          "dp_shard         4 ranks,     1 group : 0 - 3\n"
          "ep               4 ranks,     1 group : 0 - 3");
    CHECK(carrying_communicators({.dp_shard = 8}) + 3 == carrying_communicators({.dp_shard = 8, .ep = 2}));
    CHECK(carrying_communicators({.dp_shard = 8}) + 1 == carrying_communicators({.dp_shard = 8, .ep = 8}));
    CHECK_THROWS_AS((MeshShape{.dp_shard = 4, .ep = 2}.size(axis::ep | axis::cp)), LogicError);
}
