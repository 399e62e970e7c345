// SPDX-License-Identifier: Apache-2.0
// The ranges that NVIDIA's profilers show.
#include "coeus/device/named_range.hpp"

#include "stand_ins/cuda/nvtx3/nvToolsExt.h"
#include "support/catch.hpp"
#include "support/model.hpp"

using namespace coeus;
using namespace coeus::test;
using Ranges = std::vector<std::string>;

TEST_CASE("named ranges are nested like the calls, with names of bounded length") {
    emulation::take_ranges();
    {
        const NamedRange step("step {}", 7);
        { const NamedRange block("block {} {}", 3, "forward"); }
        const NamedRange other("optimizer");
    }
    const NamedRange after("{}", std::string(100, 'x'));
    CHECK(emulation::take_ranges() ==
          Ranges{"step 7", " block 3 forward", " optimizer", std::string(63, 'x')});
}

TEST_CASE("named ranges: blocks, forward and backward") {
    TestModel model(tiny_config(), {}, {.sequences = 1, .seq_len = 3});
    TestBatch batch(1, 3, tiny_config().vocab);
    emulation::take_ranges();
    model.forward_backward(batch);
    CHECK(emulation::take_ranges() == Ranges{"tok_embeddings forward", "layers.0 forward", "layers.1 forward",
                                             "output forward", "output backward", "layers.1 backward",
                                             "layers.0 backward", "tok_embeddings backward"});
}
