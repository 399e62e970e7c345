// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/launch_order.hpp"

#include "support/catch.hpp"

using namespace coeus;
using Catch::Contains;
using enum LaunchOrder;

TEST_CASE("the order of NCCL's operations follows from versions, graphs, room and the user's variable") {
    struct Case {
        int nccl, driver;
        bool graphs;
        int64_t max_ctas;
        std::optional<bool> asked;
        LaunchOrder order;
        bool implicit;
        bool warns;
    };
    const std::vector<Case> cases = {
        // what NCCL does in graphs
        {22602, 12090, true, 0, {}, serial, true, true},
        {22605, 13000, true, 0, {}, serial, true, true},
        {22703, 12080, true, 0, {}, serial, true, true},
        {22703, 12090, true, 0, {}, overlapped, true, false},
        {22809, 12040, true, 0, {}, serial, true, true},
        {22809, 13000, true, 0, {}, overlapped, true, false},
        {23007, 13020, true, 0, {}, overlapped, true, false},
        // kernel by kernel
        {22602, 12030, false, 0, {}, overlapped, true, false},
        {22602, 12020, false, 0, {}, serial, true, true},
        {22809, 12040, false, 0, {}, overlapped, true, false},
        // without an order
        {22505, 13000, true, 0, {}, unordered, true, true},
        {21304, 13000, false, 0, {}, unordered, true, true},
        // all operations fit: 8 x 16 of 132 multiprocessors
        {22602, 12090, true, 16, {}, unordered, false, false},
        {22505, 12090, true, 16, {}, unordered, false, false},
        {22505, 12090, true, 17, {}, unordered, true, true},
        {22602, 12090, true, 17, {}, serial, true, true},
        {22809, 13000, true, 16, {}, overlapped, true, false},
        // the user decides
        {22809, 13000, true, 0, false, unordered, false, true},
        {22809, 13000, true, 16, false, unordered, false, false},
        {22809, 13000, true, 0, true, overlapped, true, false},
        {22602, 13000, true, 16, true, serial, true, true},
    };
    for (const Case& c : cases) {
        CAPTURE(c.nccl, c.driver, c.graphs, c.max_ctas);
        const LaunchChoice choice = launch_choice({.nccl = c.nccl,
                                                   .driver = c.driver,
                                                   .graphs = c.graphs,
                                                   .communicators = 8,
                                                   .max_ctas = c.max_ctas,
                                                   .multiprocessors = 132,
                                                   .asked_by_user = c.asked});
        CHECK(choice.order == c.order);
        CHECK(choice.implicit == c.implicit);
        CHECK(!choice.warning.empty() == c.warns);
    }
    // one communicator has nothing to wait for
    CHECK(launch_choice({.nccl = 21304, .driver = 11000, .communicators = 1}).warning.empty());
}

TEST_CASE("a warning about the order of NCCL's operations names what helps") {
    const auto warning = [](const LaunchFacts& facts) { return launch_choice(facts).warning; };
    LaunchFacts facts = {
        .nccl = 22602, .driver = 12040, .graphs = true, .communicators = 4, .multiprocessors = 132};
    CHECK(warning(facts) ==
          "NCCL runs the operations of all 4 communicators one after the other in CUDA graphs: this is NCCL "
          "2.26.2, and the driver knows CUDA 12.4. What lets them overlap: NCCL 2.27 or newer and a driver "
          "with "
          "CUDA 12.9 or newer, or comm.max_ctas = 33 or less, or training.disable_cuda_graphs = true");
    facts.driver = 12020;
    CHECK_THAT(warning(facts), Contains("knows CUDA 12.2. What") && !Contains("disable_cuda_graphs"));
    facts.nccl = 22809;
    CHECK_THAT(warning(facts), Contains("overlap: a driver with CUDA 12.9 or newer, or comm.max_ctas"));
    facts.nccl = 22105;
    CHECK(warning(facts) ==
          "NCCL does not order the operations of 4 communicators, and ranks may wait for each other forever: "
          "this is NCCL 2.21.5, and the driver knows CUDA 12.2. What helps: NCCL 2.27 or newer and a driver "
          "with "
          "CUDA 12.9 or newer, or comm.max_ctas = 33 or less");
    facts.asked_by_user = false;
    CHECK(warning(facts) ==
          "NCCL_LAUNCH_ORDER_IMPLICIT = 0 is set, so NCCL does not order the operations of 4 communicators, "
          "and ranks may wait for each other forever. Unset it, or set comm.max_ctas = 33 or less");
}
