// SPDX-License-Identifier: Apache-2.0
// Blocks whose threads keep their parts of rows in registers, so that a row is read once.
#pragma once

#include "team.hpp"

namespace coeus::cuda {

/// A thread's packs of a row. An absent row, which is false, is never loaded.
template <class T, int packs>
struct KeptRow {
    Pack<T, pack_count<T>()> of[packs];
    bool is_there;

    __device__ explicit operator bool() const { return is_there; }
};

/// A block that shares a row of at most width_of<T>(blockDim.x) elements, whose operands all have elements of
/// the same type and are aligned to 16 bytes. They are pointers or kept rows. All threads make the same
/// calls.
template <int packs>
class KeepingBlock {
public:
    /// Shared memory in bytes for the sums of the warps, beside that of a BlockTeam.
    static constexpr size_t shared_bytes = 3 * BlockTeam::shared_bytes;

    __device__ explicit KeepingBlock(unsigned char* shared) : shared_(shared + BlockTeam::shared_bytes) {}

    template <class T>
    static constexpr int64_t width_of(int64_t threads) {
        return threads * packs * pack_count<T>();
    }
    __device__ bool first() const { return threadIdx.x == 0; }

    /// Loads the thread's packs of a row, or notes that there is none.
    template <class T>
    __device__ KeptRow<T, packs> keep(const T* row, int64_t n) const {
        KeptRow<T, packs> kept;
        kept.is_there = row != nullptr;
        if (row) each_pack<T>(n, [&](int i, int64_t j) { kept.of[i] = load_pack<pack_count<T>()>(row + j); });
        return kept;
    }
    template <class A, class F, class First, class... In>
    __device__ A sum(int64_t n, F&& f, const First& first, const In&... in) const {
        A total = 0;
        each(
            n, [&](int, auto... values) { total += f(values...); }, first, in...);
        return over_warps(warp_sum(total));
    }
    template <class T, class F, class... In>
    __device__ void map(int64_t n, T* out, F&& f, const In&... in) const {
        each_pack<T>(n,
                     [&](int i, int64_t j) { store_pack(out + j, map_pack<T>(f, pack_of<T>(in, i, j)...)); });
    }
    /// Calls f(place, in..): the thread's elements have places from 0 on, which the compiler knows.
    template <class F, class T, class... In>
    __device__ void each(int64_t n, F&& f, const KeptRow<T, packs>& first, const In&... in) const {
        each_pack<T>(n, [&](int i, int64_t j) { visit<T>(i, f, first.of[i], pack_of<T>(in, i, j)...); });
    }
    template <class F, class T, class... In>
    __device__ void each(int64_t n, F&& f, const T* first, const In&... in) const {
        each_pack<T>(
            n, [&](int i, int64_t j) { visit<T>(i, f, pack_of<T>(first, i, j), pack_of<T>(in, i, j)...); });
    }
    /// Calls f(i, column) for each of the thread's packs.
    template <class T, class F>
    __device__ void each_pack(int64_t n, F&& f) const {
        constexpr int size = pack_count<T>();
        COEUS_UNROLL
        for (int i = 0; i < packs; ++i)
            if (const unsigned j = (i * blockDim.x + threadIdx.x) * size; j < unsigned(n)) f(i, j);
    }

private:
    template <class T>
    __device__ static const Pack<T, pack_count<T>()>& pack_of(const KeptRow<T, packs>& row, int i, int64_t) {
        return row.of[i];
    }
    template <class T>
    __device__ static Pack<T, pack_count<T>()> pack_of(const T* row, int, int64_t j) {
        return load_pack<pack_count<T>()>(row + j);
    }
    template <class T, class F, class... Packs>
    __device__ static void visit(int i, F&& f, const Packs&... of) {
        constexpr int size = pack_count<T>();
        COEUS_UNROLL
        for (int e = 0; e < size; ++e) f(i * size + e, load(of.values[e])...);
    }
    template <class T, class F, class... Packs>
    __device__ static Pack<T, pack_count<T>()> map_pack(F&& f, const Packs&... of) {
        Pack<T, pack_count<T>()> out;
        COEUS_UNROLL
        for (int e = 0; e < pack_count<T>(); ++e) out.values[e] = store<T>(f(load(of.values[e])...));
        return out;
    }
    /// One barrier each: the next sum has another place for those of the warps.
    template <class A>
    __device__ A over_warps(A of_warp) const {
        A* const of_warps = reinterpret_cast<A*>(shared_ + (is_odd_ ? BlockTeam::shared_bytes : 0));
        is_odd_ = !is_odd_;
        if (threadIdx.x % warp_size == 0) of_warps[threadIdx.x / warp_size] = of_warp;
        __syncthreads();
        A all = of_warps[0];
        for (unsigned warp = 1; warp < blockDim.x / warp_size; ++warp) all += of_warps[warp];
        return all;
    }

    unsigned char* shared_;
    mutable bool is_odd_ = false;
};

}  // namespace coeus::cuda
