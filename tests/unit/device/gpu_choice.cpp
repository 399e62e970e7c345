// SPDX-License-Identifier: Apache-2.0
// GPUs for the ranks of a host, near the cores to which the launcher has bound them.
#include "coeus/device/gpu_choice.hpp"

#include "coeus/device/cpu.hpp"
#include "support/catch.hpp"

using namespace coeus;

namespace {

// A host with two sockets of 32 cores and 8 GPUs, four near each socket.
const std::string first = "0-31", second = "32-63";
const std::vector<std::string> eight = {first, first, first, first, second, second, second, second};

using Gpus = std::vector<int>;

}  // namespace

TEST_CASE("GPUs of ranks: in order if each is near, or if nothing is known") {
    const Gpus in_order = {0, 1, 2, 3, 4, 5, 6, 7};
    CHECK(nearest_gpus({"0-7", "8-15", "16-23", "24-31", "32-39", "40-47", "48-55", "56-63"}, eight) ==
          in_order);
    CHECK(nearest_gpus(std::vector<std::string>(8, "0-63"), eight) == in_order);  // ranks that are not bound
    CHECK(nearest_gpus({"0-7", "32-39"}, {"", ""}) == Gpus{0, 1});
    CHECK(nearest_gpus({"0-7", "32-39"}, {"0-63", "0-63"}) == Gpus{0, 1});
    CHECK(nearest_gpus({"32-39"}, {first}) == Gpus{0});
}

TEST_CASE("GPUs of ranks: srun deals ranks out to sockets in turn") {
    // even ranks are on the first socket, odd ones on the second
    const std::vector<std::string> cyclic = {"0-7",   "32-39", "8-15",  "40-47",
                                             "16-23", "48-55", "24-31", "56-63"};
    const Gpus gpus = nearest_gpus(cyclic, eight);
    CHECK(gpus == Gpus{0, 4, 2, 6, 1, 5, 3, 7});
    for (size_t rank = 0; rank < 8; ++rank) CHECK(share_processors(cyclic[rank], eight[size_t(gpus[rank])]));
}

TEST_CASE("GPUs of ranks: as many as possible are near") {
    // rank 0 is near both, rank 1 only near the first
    CHECK(nearest_gpus({"0-63", "0-7"}, {first, second}) == Gpus{1, 0});
    // three ranks of one socket: one of them stays far
    CHECK(nearest_gpus({"32-39", "40-47", "48-55", "0-7"}, {first, first, second, second}) ==
          Gpus{3, 1, 2, 0});
}

TEST_CASE("GPUs of ranks: several ranks for each GPU, or several GPUs for each rank") {
    const std::vector<std::string> two = {first, second};
    CHECK(nearest_gpus({"0-7", "0-7", "32-39", "32-39"}, two) == Gpus{0, 0, 1, 1});
    CHECK(nearest_gpus({"0-63", "0-63", "0-63"}, two) == Gpus{0, 1, 0});
    // ranks may use only the GPUs that they would use without swaps
    CHECK(nearest_gpus({"32-39", "0-7"}, {first, second, second, second}) == Gpus{1, 0});
}

TEST_CASE("lists of processors overlap, or are not known") {
    CHECK(share_processors("0-31,64-95", "95"));
    CHECK(!share_processors("0-31,64-95", "32-63"));
    for (const char* unknown : {"", "none"}) {
        CHECK(share_processors(unknown, "1"));
        CHECK(share_processors("1", unknown));
    }
}
