// SPDX-License-Identifier: Apache-2.0
// Teams of threads that share a row (rows/team.hpp): a warp, a block, or the whole grid. Elements are moved
// 16 bytes at a time if all operands are aligned to that. Sums are added by each thread in fixed places, then
// over the lanes of a warp, then over the warps in order. So the bits depend only on the sizes and on whether
// the operands are aligned.
#pragma once

#include "../../rows/team.hpp"

#include <algorithm>
#include <bit>
#include <cuda_runtime.h>
#include <limits>
#include <type_traits>

namespace coeus::cuda {

using namespace rows;

#ifdef __CUDACC__
#define COEUS_UNROLL _Pragma("unroll")
#define COEUS_NO_UNROLL _Pragma("unroll 1")
#else
#define COEUS_UNROLL
#define COEUS_NO_UNROLL
#endif

constexpr unsigned whole_warp = 0xffffffffu;
constexpr int warp_size = 32;

/// The block's shared memory.
__device__ inline unsigned char* shared_memory() {
#ifdef __CUDACC__
    extern __shared__ __align__(128) unsigned char memory[];
    return memory;
#else
    return reinterpret_cast<unsigned char*>(emulation::thread().shared);
#endif
}

/// Adjacent elements that are moved together.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
    T values[count];
};

template <class... T>
constexpr int pack_count() {
    size_t largest = 1;
    ((largest = sizeof(T) > largest ? sizeof(T) : largest), ...);
    return int(16 / largest);
}
/// The largest number of elements of which each operand has whole pieces of 16 bytes.
template <class... T>
constexpr int whole_count() {
    size_t smallest = 16;
    ((smallest = sizeof(T) < smallest ? sizeof(T) : smallest), ...);
    return int(16 / smallest);
}
template <int count, class T>
__device__ bool is_aligned(const T* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % (sizeof(T) * count) == 0;
}
template <class... T>
__device__ bool are_in_pieces_of_16(const T*... pointers) {
    return (reinterpret_cast<uintptr_t>(pointers) | ...) % 16 == 0;
}
template <int count, class T>
__device__ Pack<T, count> load_pack(const T* from) {
    return *reinterpret_cast<const Pack<T, count>*>(from);
}
template <int count, class T>
__device__ void store_pack(T* to, const Pack<T, count>& pack) {
    *reinterpret_cast<Pack<T, count>*>(to) = pack;
}

/// Stores a pack of 8 or 16 bytes in global memory by one instruction. nvcc divides some stores of packs into
/// those of their elements, if they are in branches.
template <int count, class T>
__device__ void store_pack_at_once(T* to, const Pack<T, count>& pack) {
    static_assert(sizeof(pack) == 8 || sizeof(pack) == 16);
#ifdef __CUDACC__
    using Word = std::conditional_t<sizeof(pack) == 16, uint4, uint2>;
    __stwb(reinterpret_cast<Word*>(to), std::bit_cast<Word>(pack));
#else
    store_pack<count>(to, pack);
#endif
}

/// Loads and stores of elements that no block uses again, by instructions of 16 bytes each, or one of 8: they
/// do not displace what is in the caches. The address is a multiple of these bytes.
template <int count, class T>
__device__ Pack<T, count> load_once(const T* from) {
    constexpr int width = std::min(count, int(16 / sizeof(T))), pieces = count / width;
    static_assert(count % width == 0 && width * sizeof(T) >= 8);
    struct Pieces {
        Pack<T, width> of[pieces];
    } all;
    COEUS_UNROLL
    for (int i = 0; i < pieces; ++i) {
#ifdef __CUDACC__
        // volatile: in the order in which they are written, before what uses them
        if constexpr (width * sizeof(T) == 16) {
            uint4 words;
            asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                         : "l"(__cvta_generic_to_global(from + i * width)));
            all.of[i] = std::bit_cast<Pack<T, width>>(words);
        } else {
            uint2 words;
            asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                         : "=r"(words.x), "=r"(words.y)
                         : "l"(__cvta_generic_to_global(from + i * width)));
            all.of[i] = std::bit_cast<Pack<T, width>>(words);
        }
#else
        all.of[i] = load_pack<width>(from + i * width);
#endif
    }
    Pack<T, count> pack;
    COEUS_UNROLL
    for (int i = 0; i < count; ++i) pack.values[i] = all.of[i / width].values[i % width];
    return pack;
}
template <int count, class T>
__device__ void store_once(T* to, const Pack<T, count>& pack) {
    constexpr int width = std::min(count, int(16 / sizeof(T)));
    static_assert(count % width == 0 && width * sizeof(T) >= 8);
    COEUS_UNROLL
    for (int i = 0; i < count; i += width) {
        Pack<T, width> piece;
        COEUS_UNROLL
        for (int e = 0; e < width; ++e) piece.values[e] = pack.values[i + e];
#ifdef __CUDACC__
        using Word = std::conditional_t<width * sizeof(T) == 16, uint4, uint2>;
        __stcs(reinterpret_cast<Word*>(to + i), std::bit_cast<Word>(piece));
#else
        store_pack<width>(to + i, piece);
#endif
    }
}

template <class A>
__device__ A warp_sum(A value) {
    COEUS_UNROLL
    for (int distance = warp_size / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(whole_warp, value, distance);
    return value;
}
template <class A>
__device__ A warp_largest(A value) {
    COEUS_UNROLL
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
        const A other = __shfl_xor_sync(whole_warp, value, distance);
        value = other > value ? other : value;
    }
    return value;
}

/// The sum of the values of this lane and those below it.
template <class A>
__device__ A warp_sum_up_to(A value) {
    const int lane = int(threadIdx.x) % warp_size;
    COEUS_UNROLL
    for (int distance = 1; distance < warp_size; distance *= 2) {
        const A below = __shfl_sync(whole_warp, value, (lane - distance) & (warp_size - 1));
        if (lane >= distance) value += below;
    }
    return value;
}

/// Threads that take elements in turn.
class Threads {
public:
    __device__ Threads(int64_t rank, int64_t count) : rank_(rank), count_(count) {}

    __device__ bool first() const { return rank_ == 0; }
    template <class F>
    __device__ void each(int64_t n, F&& f) const {
        for (int64_t j = rank_; j < n; j += count_) f(j);
    }
    template <class T, class F, class... In>
    __device__ void map(int64_t n, T* out, F&& f, const In*... in) const {
        map_at(
            n, out, [&](int64_t, auto... values) { return f(values...); }, in...);
    }
    template <class T, class F, class... In>
    __device__ void map_at(int64_t n, T* out, F&& f, const In*... in) const {
        constexpr int size = pack_count<T, In...>();
        int64_t packed = 0;
        if (is_aligned<size>(out) && (is_aligned<size>(in) && ...)) {
            packed = n / size * size;
            for (int64_t j = rank_ * size; j < packed; j += count_ * size)
                store_pack<size>(out + j, map_pack<T, size>(j, f, load_pack<size>(in + j)...));
        }
        for (int64_t j = packed + rank_; j < n; j += count_) out[j] = store<T>(f(j, load(in[j])...));
    }
    template <class T, class F, class... In>
    __device__ void map_two(int64_t n, T* first, T* second, F&& f, const In*... in) const {
        constexpr int size = pack_count<T, In...>();
        int64_t packed = 0;
        if (is_aligned<size>(first) && is_aligned<size>(second) && (is_aligned<size>(in) && ...)) {
            packed = n / size * size;
            for (int64_t j = rank_ * size; j < packed; j += count_ * size) {
                const Two<Pack<T, size>> both = map_pack_two<T>(f, load_pack<size>(in + j)...);
                store_pack<size>(first + j, both.first);
                store_pack<size>(second + j, both.second);
            }
        }
        for (int64_t j = packed + rank_; j < n; j += count_) {
            const auto values = f(load(in[j])...);
            first[j] = store<T>(values.first);
            second[j] = store<T>(values.second);
        }
    }
    /// In packs of two: f computes much for each element.
    template <class T, class F>
    __device__ void fill(int64_t n, T* out, F&& f) const {
        constexpr int size = 2;
        int64_t packed = 0;
        if (is_aligned<size>(out)) {
            packed = n / size * size;
            for (int64_t j = rank_ * size; j < packed; j += count_ * size) {
                const auto g = f(j);
                Pack<T, size> pack;
                COEUS_UNROLL
                for (int i = 0; i < size; ++i) pack.values[i] = store<T>(g(i));
                store_pack<size>(out + j, pack);
            }
        }
        for (int64_t j = packed + rank_; j < n; j += count_) out[j] = store<T>(f(j)(0));
    }
    /// f also gets the number of elements that are updated together.
    template <class C, class F, class In, class T, class... More>
    __device__ void update(int64_t n, C* copy, F&& f, const In* in, T* value, More*... more) const {
        constexpr int size = whole_count<In, T, More..., C>();
        const int64_t packed = are_in_pieces_of_16(copy, in, value, more...) ? n / size * size : 0;
        for (int64_t j = rank_ * size; j < packed; j += count_ * size)
            update_pack<size>(copy ? copy + j : nullptr, f(j, std::integral_constant<int, size>()), in + j,
                              value + j, (more + j)...);
        update_singly(packed, n, copy, f, in, value, more...);
    }

protected:
    /// Updates the elements [begin, n).
    template <class C, class F, class In, class T, class... More>
    __device__ void update_singly(int64_t begin, int64_t n, C* copy, F&& f, const In* in, T* value,
                                  More*... more) const {
        for (int64_t j = begin + rank_; j < n; j += count_)
            update_pack<1>(copy ? copy + j : nullptr, f(j, std::integral_constant<int, 1>()), in + j,
                           value + j, (more + j)...);
    }

    /// Calls g(f(in[j]..)) for this thread's elements, in order.
    template <class G, class F, class... In>
    __device__ void visit(int64_t n, G&& g, F&& f, const In*... in) const {
        constexpr int size = pack_count<In...>();
        int64_t packed = 0;
        if ((is_aligned<size>(in) && ...)) {
            packed = n / size * size;
            for (int64_t j = rank_ * size; j < packed; j += count_ * size)
                visit_pack<size>(g, f, load_pack<size>(in + j)...);
        }
        for (int64_t j = packed + rank_; j < n; j += count_) g(f(load(in[j])...));
    }

    /// Calls g(pack) for this thread's packs of elements, in order; the last elements are packs of one.
    template <class G, class T>
    __device__ void visit_packs(int64_t n, G&& g, const T* in) const {
        constexpr int size = pack_count<T>();
        int64_t packed = 0;
        if (is_aligned<size>(in)) {
            packed = n / size * size;
            for (int64_t j = rank_ * size; j < packed; j += count_ * size) g(load_pack<size>(in + j));
        }
        for (int64_t j = packed + rank_; j < n; j += count_) g(load_pack<1>(in + j));
    }

    template <class T, int size, class F, class... In>
    __device__ static Pack<T, size> map_pack(int64_t j, F&& f, const Pack<In, size>&... in) {
        Pack<T, size> out;
        COEUS_UNROLL
        for (int i = 0; i < size; ++i) out.values[i] = store<T>(f(j + i, load(in.values[i])...));
        return out;
    }
    template <class T, class F, int size, class... In>
    __device__ static Two<Pack<T, size>> map_pack_two(F&& f, const Pack<In, size>&... in) {
        Two<Pack<T, size>> both;
        COEUS_UNROLL
        for (int i = 0; i < size; ++i) {
            const auto values = f(load(in.values[i])...);
            both.first.values[i] = store<T>(values.first);
            both.second.values[i] = store<T>(values.second);
        }
        return both;
    }
    template <int size, class C, class G, class In, class T, class... More>
    __device__ static void update_pack(C* copy, const G& g, const In* in, T* value, More*... more) {
        const auto change = [&](const Pack<In, size>& inputs, Pack<T, size> first,
                                Pack<More, size>... others) {
            COEUS_UNROLL
            for (int i = 0; i < size; ++i) g(i, load(inputs.values[i]), first.values[i], others.values[i]...);
            put<size>(value, first);
            (put<size>(more, others), ...);
            if (!copy) return;
            if constexpr (std::is_same_v<C, T>) {
                put<size>(copy, first);
            } else {
                Pack<C, size> copies;
                COEUS_UNROLL
                for (int i = 0; i < size; ++i) copies.values[i] = store<C>(load(first.values[i]));
                put<size>(copy, copies);
            }
        };
        // all loads begin before the first one is used
        const Pack<In, size> inputs = taken<size>(in);
        const Pack<T, size> values = taken<size>(value);
        change(inputs, values, taken<size>(more)...);
    }
    template <int size, class T>
    __device__ static Pack<T, size> taken(const T* from) {
        if constexpr (size > 1)
            return load_once<size>(from);
        else
            return load_pack<1>(from);
    }
    template <int size, class T>
    __device__ static void put(T* to, const Pack<T, size>& pack) {
        if constexpr (size > 1)
            store_once<size>(to, pack);
        else
            store_pack<1>(to, pack);
    }
    template <int size, class G, class F, class... In>
    __device__ static void visit_pack(G&& g, F&& f, const Pack<In, size>&... in) {
        COEUS_UNROLL
        for (int i = 0; i < size; ++i) g(f(load(in.values[i])...));
    }

    int64_t rank_, count_;
};

/// Threads that take elements of an update one by one.
class SingleThreads : public Threads {
public:
    using Threads::Threads;

    template <class C, class F, class In, class T, class... More>
    __device__ void update(int64_t n, C* copy, F&& f, const In* in, T* value, More*... more) const {
        update_singly(0, n, copy, f, in, value, more...);
    }
};

/// A warp that shares a row.
class WarpTeam : public Threads {
public:
    __device__ WarpTeam() : Threads(threadIdx.x % warp_size, warp_size) {}

    template <class A, class F, class... In>
    __device__ A sum(int64_t n, F&& f, const In*... in) const {
        A total = 0;
        visit(
            n, [&](A value) { total += value; }, f, in...);
        return warp_sum(total);
    }
    template <class A, class F>
    __device__ A sum_of(int64_t n, F&& f) const {
        A total = 0;
        each(n, [&](int64_t j) { total += f(j); });
        return warp_sum(total);
    }
    template <class A, class T>
    __device__ A largest(int64_t n, const T* in) const {
        A best = load(in[0]);
        visit(
            n, [&](A value) { best = value > best ? value : best; }, [](A value) { return value; }, in);
        return warp_largest(best);
    }
    template <class T>
    __device__ int64_t best(int64_t n, const T* in) const {
        const int lane = int(threadIdx.x) % warp_size;
        int at = lane < n ? lane : 0;
        auto value = load(in[at]);
        each(n, [&](int64_t j) {
            if (load(in[j]) > value) {
                at = int(j);
                value = load(in[j]);
            }
        });
        COEUS_UNROLL
        for (int distance = warp_size / 2; distance > 0; distance /= 2) {
            const auto other = __shfl_xor_sync(whole_warp, value, distance);
            const int other_at = __shfl_xor_sync(whole_warp, at, distance);
            if (other > value || (other == value && other_at < at)) {
                at = other_at;
                value = other;
            }
        }
        return __shfl_sync(whole_warp, at, 0);  // the lanes may differ if some are NaN
    }
    /// Waits until all lanes are here; each then sees what the others have written.
    __device__ void barrier() const { __syncwarp(); }
};

/// The threads of the whole grid, for work without sums.
__device__ inline Threads grid_team() {
    return {int64_t(blockIdx.x) * blockDim.x + threadIdx.x, int64_t(gridDim.x) * blockDim.x};
}

/// A block that shares a row. All its threads make the same calls. It consists of whole warps.
class BlockTeam : public Threads {
public:
    /// Shared memory in bytes for the sums of the warps.
    static constexpr size_t shared_bytes = warp_size * sizeof(double);

    __device__ explicit BlockTeam(unsigned char* shared)
        : Threads(threadIdx.x, blockDim.x), shared_(shared) {}

    template <class A, class F, class... In>
    __device__ A sum(int64_t n, F&& f, const In*... in) const {
        A total = 0;
        visit(
            n, [&](A value) { total += value; }, f, in...);
        return sum_of_threads(total);
    }
    template <class A, class F>
    __device__ A sum_of(int64_t n, F&& f) const {
        A total = 0;
        each(n, [&](int64_t j) { total += f(j); });
        return sum_of_threads(total);
    }
    /// The largest f(in[j]), or `least` if all are smaller.
    template <class A, class F, class T>
    __device__ A largest_of(int64_t n, A least, F&& f, const T* in) const {
        A best = least;
        visit(
            n, [&](A value) { best = value > best ? value : best; }, f, in);
        return largest_of_threads(best);
    }
    template <class A, class T>
    __device__ A largest(int64_t n, const T* in) const {
        A best = load(in[0]);
        visit(
            n, [&](A value) { best = value > best ? value : best; }, [](A value) { return value; }, in);
        return largest_of_threads(best);
    }
    /// Each thread reads its elements once: its sum is multiplied when a larger one comes.
    template <class A, class T>
    __device__ Two<A> sum_of_exp(int64_t n, const T* in, A f) const {
        Two<A> sums = {std::numeric_limits<A>::lowest(), 0};
        visit_packs(
            n, [&](const auto& pack) { sums = joined<T>(sums, sum_of_pack<A>(pack, f), f); }, in);
        COEUS_UNROLL
        for (int distance = warp_size / 2; distance > 0; distance /= 2)
            sums = joined<T>(sums,
                             {__shfl_xor_sync(whole_warp, sums.first, distance),
                              __shfl_xor_sync(whole_warp, sums.second, distance)},
                             f);
        return over_warps(sums, [=](const Two<A>& a, const Two<A>& b) { return joined<T>(a, b, f); });
    }
    /// The sum of the values of all threads.
    template <class A>
    __device__ A sum_of_threads(A value) const {
        return over_warps(warp_sum(value), [](A a, A b) { return a + b; });
    }
    /// The largest value of all threads.
    template <class A>
    __device__ A largest_of_threads(A value) const {
        return over_warps(warp_largest(value), [](A a, A b) { return b > a ? b : a; });
    }
    /// Waits until all threads are here; each then sees what the others have written.
    __device__ void barrier() const { __syncthreads(); }

private:
    /// Largest elements and sums of exp(f ...) of two parts as those of the whole.
    template <class T, class A>
    __device__ static Two<A> joined(const Two<A>& a, const Two<A>& b, A f) {
        const A largest = b.first > a.first ? b.first : a.first;
        const A of_a = exp_for<T>(f * (a.first - largest)), of_b = exp_for<T>(f * (b.first - largest));
        return {largest, a.second * of_a + b.second * of_b};
    }
    template <class A, class T, int size>
    __device__ static Two<A> sum_of_pack(const Pack<T, size>& pack, A f) {
        Two<A> sums = {std::numeric_limits<A>::lowest(), 0};
        COEUS_UNROLL
        for (int i = 0; i < size; ++i) {
            const A value = load(pack.values[i]);
            sums.first = value > sums.first ? value : sums.first;
        }
        COEUS_UNROLL
        for (int i = 0; i < size; ++i) sums.second += exp_for<T>(f * (A(load(pack.values[i])) - sums.first));
        return sums;
    }
    template <class A, class Join>
    __device__ A over_warps(A of_warp, Join&& join) const {
        static_assert(sizeof(A) * warp_size <= shared_bytes);
        A* of_warps = reinterpret_cast<A*>(shared_);
        if (threadIdx.x % warp_size == 0) of_warps[threadIdx.x / warp_size] = of_warp;
        __syncthreads();
        A all = of_warps[0];
        for (unsigned warp = 1; warp < blockDim.x / warp_size; ++warp) all = join(all, of_warps[warp]);
        __syncthreads();  // before the next call writes there
        return all;
    }

    unsigned char* shared_;
};

}  // namespace coeus::cuda
