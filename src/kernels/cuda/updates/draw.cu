// SPDX-License-Identifier: Apache-2.0
#include "../../rows/draw.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../rows/team.hpp"
#include "random_bits.hpp"

namespace coeus::cuda {

namespace {

template <class T>
__global__ void constant_kernel(T* out, int64_t count, T value) {
    grid_team().each(count, [=](int64_t j) { out[j] = value; });
}

template <class T, Drawn drawn>
__global__ void draw_kernel(T* out, int64_t count, DrawFactors factors, RandomStream random,
                            ElementPlace place) {
    const int64_t run = place.run > 0 ? place.run : count;
    draw_row<drawn>(grid_team(), out, count, factors,
                    [&](int64_t first) { return BitsFrom(random, place, run, first); });
}

}  // namespace

void Cuda::draw(Exec& exec, Tensor out, const Init& init, uint64_t seed, const ElementPlace& place) {
    require(out.dense(), "draw: rows are not adjacent");
    const int64_t count = out.count();
    const Grid grid = {.blocks = blocks_for(std::min<int64_t>(div_ceil(count, 256 * 2), 1 << 16))};
    dispatch(out.dtype, [&]<class T>(T) {
        if (is_constant(init))
            return launch(exec, "draw", grid, constant_kernel<T>, out.as<T>(), count,
                          store<T>(init.constant));
        dispatch_drawn(init, [&](auto drawn) {
            launch(exec, "draw", grid, draw_kernel<T, drawn()>, out.as<T>(), count, draw_factors(init),
                   RandomStream(seed, place.stream), place);
        });
    });
}

}  // namespace coeus::cuda
