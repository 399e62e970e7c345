// SPDX-License-Identifier: Apache-2.0
#include "../../rows/draw.hpp"

#include "random_bits.hpp"

namespace coeus::cpu {

void Cpu::draw(Exec& exec, Tensor out, const Init& init, uint64_t seed, const ElementPlace& place) {
    require(out.dense(), "draw: rows are not adjacent");
    const int64_t count = out.count();
    const RandomStream random(seed, place.stream);
    dispatch(out.dtype, [&]<class T>(T) {
        T* const values = out.as<T>();
        if (is_constant(init))
            return for_parts_with_bits<false>(exec, count, place, random,
                                              [&](int64_t first, int64_t n, const uint64_t*) {
                                                  std::fill_n(values + first, n, store<T>(init.constant));
                                              });
        dispatch_drawn(init, [&](auto drawn) {
            for_parts_with_bits<true>(
                exec, count, place, random,
                [&, factors = draw_factors(init)](int64_t first, int64_t n, const uint64_t* bits) {
                    draw_row<drawn()>(Lane(), values + first, n, factors,
                                      [=](int64_t) { return [=](int64_t j) { return bits[j]; }; });
                });
        });
    });
}

}  // namespace coeus::cpu
