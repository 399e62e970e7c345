// SPDX-License-Identifier: Apache-2.0
// Threads for kernels that are bound by memory: they have many loads under way.
#pragma once

#include "team.hpp"

namespace coeus::cuda {

/// Threads that move elements which are not used again soon: each loads at least 64 bytes before it
/// stores the first ones. Packs have 16 bytes of the widest operand, and neighbours take adjacent ones, so
/// that each load or store of a warp moves whole sectors.
class Streams : public Threads {
public:
    using Threads::Threads;

    template <class T, class F, class... In>
    __device__ void map(int64_t n, T* out, F&& f, const In*... in) const {
        constexpr int size = pack_count<T, In...>();
        const int64_t packed = are_in_pieces_of_16(out, in...) ? n / size * size : 0;
        const auto write = [&](int64_t j, const Pack<In, size>&... packs) {
            const auto of_values = [&](int64_t, auto... values) { return f(values...); };
            store_once<size>(out + j, map_pack<T, size>(j, of_values, packs...));
        };
        move(packed, write, Pieces<In, size, depth<size, In...>()>{in}...);
        for (int64_t j = packed + rank_; j < n; j += count_) out[j] = store<T>(f(load(in[j])...));
    }
    template <class T, class F, class... In>
    __device__ void map_two(int64_t n, T* first, T* second, F&& f, const In*... in) const {
        constexpr int size = pack_count<T, In...>();
        const int64_t packed = are_in_pieces_of_16(first, second, in...) ? n / size * size : 0;
        const auto write = [&](int64_t j, const Pack<In, size>&... packs) {
            const Two<Pack<T, size>> both = map_pack_two<T>(f, packs...);
            store_once<size>(first + j, both.first);
            store_once<size>(second + j, both.second);
        };
        move(packed, write, Pieces<In, size, depth<size, In...>()>{in}...);
        for (int64_t j = packed + rank_; j < n; j += count_) {
            const auto values = f(load(in[j])...);
            first[j] = store<T>(values.first);
            second[j] = store<T>(values.second);
        }
    }
    /// Calls g(in[j]) for this thread's elements, in order.
    template <class G, class T>
    __device__ void visit(int64_t n, G&& g, const T* in) const {
        constexpr int size = pack_count<T>();
        const int64_t packed = are_in_pieces_of_16(in) ? n / size * size : 0;
        const auto take = [&](int64_t, const Pack<T, size>& pack) {
            COEUS_UNROLL
            for (int i = 0; i < size; ++i) g(load(pack.values[i]));
        };
        move(packed, take, Pieces<T, size, depth<size, T>()>{in});
        for (int64_t j = packed + rank_; j < n; j += count_) g(load(in[j]));
    }

private:
    /// Packs of an operand that a thread has loaded.
    template <class T, int size, int depth>
    struct Pieces {
        const T* from;
        Pack<T, size> packs[depth];
    };
    /// So many packs of each operand are at least 64 bytes together.
    template <int size, class... In>
    static constexpr int depth() {
        return div_ceil(64, (int(sizeof(In) * size) + ...));
    }
    template <class F, class... In, int size, int depth>
    __device__ void move(int64_t packed, F&& write, Pieces<In, size, depth>... in) const {
        for (int64_t begin = rank_ * size; begin < packed; begin += depth * count_ * size) {
            COEUS_UNROLL
            for (int i = 0; i < depth; ++i)
                if (const int64_t j = begin + i * count_ * size; j < packed)
                    ((in.packs[i] = load_once<size>(in.from + j)), ...);
            COEUS_UNROLL
            for (int i = 0; i < depth; ++i)
                if (const int64_t j = begin + i * count_ * size; j < packed) write(j, in.packs[i]...);
        }
    }
};

/// The threads of the whole grid.
__device__ inline Streams grid_streams() {
    return {int64_t(blockIdx.x) * blockDim.x + threadIdx.x, int64_t(gridDim.x) * blockDim.x};
}

}  // namespace coeus::cuda
