// SPDX-License-Identifier: Apache-2.0
// Cases for tests/tools/skipping.py, which runs some of them and checks the program's exit code.
#include "coeus/comm/communicator.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cstdlib>
#include <stdexcept>

using namespace coeus::test;

namespace {

// One rank does something that may leave the case. The other one waits for it.
template <class Call>
void only_on_rank(int rank, Call call) {
    const coeus::Communicator world = coeus::Communicator::world("world");
    if (world.rank() == rank) call();
    world.barrier();
}

int thrown() {
    throw std::runtime_error("an error on purpose");
}

}  // namespace

TEST_CASE("skips") {
    skip("the moon is not full");
}

TEST_CASE("skips as well") {
    skip("there is no wind");
}

TEST_CASE("passes") {
    CHECK(skipped_code == 77);
}

TEST_CASE("fails and then skips") {
    CHECK(skipped_code == 0);
    skip("it is late");
}

TEST_CASE("skips and then fails") {
    skip("it is early");
    CHECK(skipped_code == 0);
}

TEST_CASE("skips and then throws") {
    skip("it is early");
    throw std::runtime_error("an error on purpose");
}

TEST_CASE("fails exactly 77 times") {
    for (int i = 0; i < skipped_code; ++i) CHECK(i < 0);
}

TEST_CASE("skips with one of its values") {
    if (GENERATE(1, 2) == 1) return skip("the moon is not full");
    CHECK(skipped_code == 77);
}

TEST_CASE("needs a tool that complete runs require") {
    skip_unless_required("there is no wind");
}

TEST_CASE("needs reference files") {
    CHECK(golden("nothing").empty());
}

TEST_CASE("skips on rank 0 only") {
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank && std::string(rank) == "0") return skip("it is rank 0");
    CHECK(skipped_code == 77);
}

TEST_CASE("throws on rank 0 only") {
    only_on_rank(0, thrown);
}

TEST_CASE("throws on rank 1 only") {
    only_on_rank(1, thrown);
}

TEST_CASE("throws in a check on rank 1 only") {
    only_on_rank(1, [] { CHECK(thrown() == 0); });
}

TEST_CASE("requires in vain on rank 1 only") {
    only_on_rank(1, [] { REQUIRE(skipped_code == 0); });
}

TEST_CASE("throws as expected on rank 1 only") {
    only_on_rank(1, [] {
        CHECK_THROWS_WITH(thrown(), "an error on purpose");
        REQUIRE_THROWS_AS(thrown(), std::runtime_error);
    });
    SUCCEED();
}

TEST_CASE("fails on rank 1 only") {
    only_on_rank(1, [] { CHECK(skipped_code == 0); });
    SUCCEED();
}
