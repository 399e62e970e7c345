// SPDX-License-Identifier: Apache-2.0
// Rows that ranks exchange through pinned host memory.
#include "support/row_exchange.hpp"

#include "gpu/gpu.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;

TEST_CASE("GPU: rows of any counts arrive, in one piece or in several") {
    const Communicator world = Communicator::world("world");
    set_order(1);
    Exec exec(the_gpu());
    for (const Dtype dtype : exchanged_types) CHECK(wrong_row_exchanges(world, exec, dtype, 5) == "");
    // up to 6.7 MB to a rank, which is more than one piece, and from some ranks less
    CHECK(wrong_row_exchanges(world, exec, Dtype::f64, 40009) == "");
    CHECK(wrong_row_exchanges(alone(), exec, Dtype::bf16) == "");
}

TEST_CASE("GPU: rows are exchanged as work of a stream") {
    const Communicator world = Communicator::world("world");
    Exec exec(the_gpu());
    for (const uint64_t seed : {1, 2, 3})
        for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
            set_order(seed);
            Stream beside(mode, exec);
            CHECK(wrong_row_exchanges(world, exec, Dtype::f32, 3, &beside) == "");
        }
}
