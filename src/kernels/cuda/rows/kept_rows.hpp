// SPDX-License-Identifier: Apache-2.0
// Blocks whose threads keep their parts of rows in registers, so that a row is read once.
#pragma once

#include "team.hpp"

#include <algorithm>
#include <bit>

namespace coeus::cuda {

/// A thread's packs of a row, in words of 32 bits: the compiler would keep elements of bfloat16 apart, and
/// take more instructions for them. An absent row, which is false, is never loaded.
template <class T, int packs>
struct KeptRow {
    uint32_t words[packs * 4];
    bool is_there;

    __device__ explicit operator bool() const { return is_there; }
    /// The thread's element at a place that the compiler knows.
    __device__ float operator[](int place) const {
        static_assert(std::is_same_v<T, float> || std::is_same_v<T, bf16>);
        if constexpr (std::is_same_v<T, float>)
            return std::bit_cast<float>(words[place]);
        else if (place % 2 == 0)
            return std::bit_cast<float>(words[place / 2] << 16);
        else
            return std::bit_cast<float>(words[place / 2] & 0xffff0000U);
    }
};

/// Loads 16 bytes as load_once, if the condition is met, into four words. There is no branch, so that the
/// compiler can order it among other instructions.
template <class T>
__device__ void load_once_if(bool condition, uint32_t* words, const T* from) {
#ifdef __CUDACC__
    asm volatile(
        "{\n"
        ".reg .pred is_met;\n"
        "setp.ne.u32 is_met, %5, 0;\n"
        "@is_met ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
        : "l"(__cvta_generic_to_global(from)), "r"(unsigned(condition)));
#else
    if (!condition) return;
    using Words = Pack<uint32_t, 4>;
    std::copy_n(std::bit_cast<Words>(load_pack<pack_count<T>()>(from)).values, 4, words);
#endif
}

/// A block that shares rows of exactly width_of<T>(blockDim.x) elements. Inputs are kept rows, and all
/// operands have elements of the same type and are aligned to 16 bytes. All threads make the same calls, each
/// of which has one barrier at most: a sum has another place in shared memory than the one before it.
template <int packs>
class KeepingBlock {
public:
    static constexpr int most_threads = 512;
    /// Shared memory in bytes for the sums of the warps, beside that of a BlockTeam.
    static constexpr size_t shared_bytes =
        BlockTeam::shared_bytes + 2 * (most_threads / warp_size) * sizeof(float);

    __device__ explicit KeepingBlock(unsigned char* shared)
        : of_warps_(reinterpret_cast<float*>(shared + BlockTeam::shared_bytes)) {
        // warps that the block lacks add 0
        for (int i = int(threadIdx.x); i < 2 * most_warps; i += int(blockDim.x)) of_warps_[i] = 0;
        __syncthreads();
    }

    template <class T>
    static constexpr int64_t width_of(int64_t threads) {
        return threads * packs * pack_count<T>();
    }
    __device__ bool first() const { return threadIdx.x == 0; }

    /// Begins to load the thread's packs of a row, if it is there; `kept` then has them.
    template <class T>
    __device__ void keep(KeptRow<T, packs>& kept, const T* row, bool is_there = true) const {
        kept.is_there = is_there;
        each_pack<T>([&](int i, unsigned j) { load_once_if(is_there, kept.words + 4 * i, row + j); });
    }
    /// The thread's sum of f(in..), and the block's.
    template <class A, class F, class... T>
    __device__ A sum(int64_t, F&& f, const KeptRow<T, packs>&... in) const {
        A total = 0;
        each([&](int, auto... values) { total += f(values...); }, in...);
        return over_warps(warp_sum(total));
    }
    template <class T, class F, class... In>
    __device__ void map(int64_t, T* out, F&& f, const KeptRow<In, packs>&... in) const {
        each_pack<T>([&](int i, unsigned j) {
            constexpr int size = pack_count<T>();
            Pack<T, size> pack;
            COEUS_UNROLL
            for (int e = 0; e < size; ++e) pack.values[e] = store<T>(f(in[i * size + e]...));
            store_pack(out + j, pack);
        });
    }
    /// Calls f(place, in..): the thread's elements have places from 0 on, which the compiler knows.
    template <class F, class... T>
    __device__ void each(F&& f, const KeptRow<T, packs>&... in) const {
        COEUS_UNROLL
        for (int place = 0; place < packs * pack_count<T...>(); ++place) f(place, in[place]...);
    }
    /// Calls f(i, column) for each of the thread's packs.
    template <class T, class F>
    __device__ void each_pack(F&& f) const {
        COEUS_UNROLL
        for (int i = 0; i < packs; ++i) f(i, (i * blockDim.x + threadIdx.x) * pack_count<T>());
    }

private:
    static constexpr int most_warps = most_threads / warp_size;

    __device__ float over_warps(float of_warp) const {
        float* const places = of_warps_ + (is_odd_ ? most_warps : 0);
        is_odd_ = !is_odd_;
        if (threadIdx.x % warp_size == 0) places[threadIdx.x / warp_size] = of_warp;
        __syncthreads();
        float all = places[threadIdx.x % most_warps];
        COEUS_UNROLL
        for (int distance = most_warps / 2; distance > 0; distance /= 2)
            all += __shfl_xor_sync(whole_warp, all, distance);
        return all;
    }

    float* of_warps_;
    mutable bool is_odd_ = false;
};

}  // namespace coeus::cuda
