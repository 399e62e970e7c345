// SPDX-License-Identifier: Apache-2.0
// The random bits that CPU kernels take for initial values and stochastic rounding.
#include "../../../src/kernels/cpu/updates/random_bits.hpp"

#include "support/catch.hpp"

#include <vector>

using namespace coeus;

namespace {

// Whether every element of a part is given once, in a part of at most bits_at_a_time if bits are drawn, with
// the bits of its index in the whole parameter.
template <bool draws>
bool gives_every_element(int64_t count, const ElementPlace& place, int threads) {
    const RandomStream random(5, "bits");
    const int64_t run = place.run > 0 ? place.run : count;
    std::vector<int> given(static_cast<size_t>(count), 0), right = given;  // an element belongs to one thread
    Exec exec;
    exec.threads = threads;
    cpu::for_parts_with_bits<draws>(
        exec, count, place, random, [&](int64_t first, int64_t n, const uint64_t* bits) {
            for (int64_t i = first; i < first + n; ++i) {
                ++given[size_t(i)];
                const uint64_t index =
                    place.first_index + uint64_t(i / run) * place.stride + uint64_t(i % run);
                right[size_t(i)] =
                    !draws || (n <= cpu::bits_at_a_time && bits[i - first] == random.u64(index));
            }
        });
    const std::vector<int> once(size_t(count), 1);
    return given == once && right == once;
}

}  // namespace

TEST_CASE("random bits: each element has those of its index, in runs of any length and in parts of threads") {
    struct Place {
        int64_t count, run;
        uint64_t first, stride;
    };
    // runs of one element, of fewer and more than bits_at_a_time, and of more than a thread's part; adjacent
    // runs; a part that begins at odd indices; an index beyond 32 bits; no element
    for (const Place& of :
         {Place{0, 0, 0, 0}, Place{0, 7, 3, 9}, Place{1, 0, 1, 0}, Place{257, 0, 5, 0}, Place{50001, 0, 3, 0},
          Place{40000, 1, 4, 3}, Place{40000, 13, 5, 29}, Place{40000, 255, 0, 256},
          Place{40000, 300, 1, 300}, Place{40000, 300, 1, 301}, Place{70001, 20000, 7, 20003},
          Place{40000, 40000, 2, 50000}, Place{40000, 129, (uint64_t(1) << 40) + 1, uint64_t(1) << 33}})
        for (const int threads : {1, 3}) {
            CAPTURE(of.count, of.run, of.first, of.stride, threads);
            const ElementPlace place = {.first_index = of.first, .run = of.run, .stride = of.stride};
            CHECK(gives_every_element<true>(of.count, place, threads));
            CHECK(gives_every_element<false>(of.count, place, threads));
        }
}
