// SPDX-License-Identifier: Apache-2.0
// RMSNorm, of rows or of heads, and LayerNorm. In the forward a block has a row, or a warp has a head. In the
// backward a block has several rows, and sums their part of the weight's gradient (column_sums.hpp). Rows
// that are whole packs of a block's threads are kept in registers: they are read once, while the block works
// on the rows before them. Others are read again for each sum and for the result. RMSNorm with a residual
// path or an offset has kernels of its own (general), so that others do nothing for them.
#include "../../rows/matrix.hpp"
#include "../../rows/norm.hpp"
#include "../cuda.hpp"
#include "../quantization/rounded.hpp"
#include "column_sums.hpp"
#include "kept_rows.hpp"

#include <optional>

namespace coeus::cuda {

namespace {

/// How many packs of a row a thread keeps, for RMSNorm and for LayerNorm, which needs more registers.
template <bool centred>
constexpr int kept_packs = centred ? 1 : 2;
template <bool centred>
using NormBlock = KeepingBlock<kept_packs<centred>>;
template <class T, bool centred>
using NormRow = KeptRow<T, kept_packs<centred>>;

/// A row, or null if the tensor is absent, whose rows are 0 elements apart.
template <class T>
__device__ T* row_at(const Rows<T>& rows, int64_t i) {
    return rows.data + i * rows.ld;
}

/// Calls f(row, x of it) for the rows that a block takes in turn. The next one is loaded before f.
template <bool centred, class T, class F>
__device__ void each_kept_row(const NormBlock<centred>& team, Rows<const T> x, int64_t rows, F&& f) {
    NormRow<T, centred> next = {};
    team.keep(next, row_at(x, blockIdx.x));
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const NormRow<T, centred> kept = next;
        const int64_t after = row + gridDim.x;
        team.keep(next, row_at(x, after), after < rows);
        f(row, kept);
    }
}

template <bool general, class A>
__device__ auto offset_in(A offset) {
    if constexpr (general)
        return offset;
    else
        return NoOffset();
}
template <bool general, class T>
__device__ const T* residual_in(const Rows<const T>& plus, int64_t row) {
    if constexpr (general)
        return plus[row];
    else
        return nullptr;
}
template <bool general, class T>
__device__ void keep_residual(const NormBlock<false>& team, NormRow<T, false>& kept,
                              const Rows<const T>& plus, int64_t row) {
    if constexpr (general) team.keep(kept, row_at(plus, row), plus.data != nullptr);
}

/// Calls f<general>() for a call with these.
template <class F>
void with_residual_or_offset(const Tensor& plus, double offset, F&& f) {
    if (plus || offset != 0)
        f.template operator()<true>();
    else
        f.template operator()<false>();
}

/// plus: absent, or what is added to the norm. bits: the largest magnitude of y, if with_largest.
template <class T, bool with_largest, bool general>
__global__ void rms_norm_kernel(Rows<T> y, Acc<T>* rstd, int32_t* bits, Rows<const T> plus, Rows<const T> x,
                                const T* weight, int64_t, int64_t width, Acc<T> eps, Acc<T> offset) {
    const MaybeWithLargest<BlockTeam, with_largest> team(shared_memory());
    const int64_t row = blockIdx.x;
    const Acc<T> r = rms_norm_added_row(team, y[row], residual_in<general>(plus, row), x[row], weight,
                                        offset_in<general>(offset), width, eps);
    if (team.first()) rstd[row] = r;
    if constexpr (with_largest) raise(bits, team.largest_written().first);
}

/// The same, by blocks of NormBlock.
template <class T, bool with_largest, bool general>
__global__ void __launch_bounds__(NormBlock<false>::most_threads, general ? 1 : 2)
    kept_rms_norm_kernel(Rows<T> y, Acc<T>* rstd, int32_t* bits, Rows<const T> plus, Rows<const T> x,
                         const T* weight, int64_t rows, int64_t width, Acc<T> eps, Acc<T> offset) {
    const MaybeWithLargest<NormBlock<false>, with_largest> team(shared_memory());
    NormRow<T, false> w = {};
    team.keep(w, weight, weight != nullptr);
    each_kept_row<false>(team, x, rows, [&](int64_t row, const auto& kept) {
        NormRow<T, false> added = {};
        keep_residual<general>(team, added, plus, row);
        const Acc<T> r =
            rms_norm_added_row(team, row_at(y, row), added, kept, w, offset_in<general>(offset), width, eps);
        if (team.first()) rstd[row] = r;
    });
    if constexpr (with_largest) raise(bits, team.largest_written().first);
}

/// y: also rounded.
template <class T, bool general>
__global__ void rounded_rms_norm_kernel(RoundedRows<T> y, Acc<T>* rstd, Rows<const T> plus, Rows<const T> x,
                                        const T* weight, int64_t width, Acc<T> eps, Acc<T> offset) {
    const int64_t row = blockIdx.x;
    y.write(row, width, [=](const auto& team, T* out) {
        const Acc<T> r = rms_norm_added_row(team, out, residual_in<general>(plus, row), x[row], weight,
                                            offset_in<general>(offset), width, eps);
        if (team.first()) rstd[row] = r;
    });
}

/// The same, by blocks of NormBlock: the row has the bits that kept_rms_norm_kernel gives it.
template <class T, bool general>
__global__ void __launch_bounds__(NormBlock<false>::most_threads)
    kept_rounded_rms_norm_kernel(RoundedRows<T> y, Acc<T>* rstd, Rows<const T> plus, Rows<const T> x,
                                 const T* weight, int64_t width, Acc<T> eps, Acc<T> offset) {
    const int64_t row = blockIdx.x;
    y.template write<NormBlock<false>>(row, width, [=](const auto& team, T* out) {
        NormRow<T, false> kept = {}, w = {}, added = {};
        team.keep(kept, row_at(x, row));
        team.keep(w, weight, weight != nullptr);
        keep_residual<general>(team, added, plus, row);
        const Acc<T> r =
            rms_norm_added_row(team, out, added, kept, w, offset_in<general>(offset), width, eps);
        if (team.first()) rstd[row] = r;
    });
}

template <class T, bool with_largest>
__global__ void layer_norm_kernel(Rows<T> y, Acc<T>* mean, Acc<T>* rstd, int32_t* bits, Rows<const T> x,
                                  const T* weight, int64_t, int64_t width, Acc<T> eps) {
    const MaybeWithLargest<BlockTeam, with_largest> team(shared_memory());
    const int64_t row = blockIdx.x;
    const MeanAndRstd<Acc<T>> kept = layer_norm_row(team, y[row], x[row], weight, width, eps);
    if (team.first()) {
        mean[row] = kept.mean;
        rstd[row] = kept.rstd;
    }
    if constexpr (with_largest) raise(bits, team.largest_written().first);
}

/// As kept_rms_norm_kernel.
template <class T, bool with_largest>
__global__ void __launch_bounds__(NormBlock<true>::most_threads, 2)
    kept_layer_norm_kernel(Rows<T> y, Acc<T>* mean, Acc<T>* rstd, int32_t* bits, Rows<const T> x,
                           const T* weight, int64_t rows, int64_t width, Acc<T> eps) {
    const MaybeWithLargest<NormBlock<true>, with_largest> team(shared_memory());
    NormRow<T, true> w = {};
    team.keep(w, weight, weight != nullptr);
    each_kept_row<true>(team, x, rows, [&](int64_t row, const auto& kept) {
        const MeanAndRstd<Acc<T>> of_row = layer_norm_row(team, row_at(y, row), kept, w, width, eps);
        if (team.first()) {
            mean[row] = of_row.mean;
            rstd[row] = of_row.rstd;
        }
    });
    if constexpr (with_largest) raise(bits, team.largest_written().first);
}

/// y: also rounded.
template <class T>
__global__ void rounded_layer_norm_kernel(RoundedRows<T> y, Acc<T>* mean, Acc<T>* rstd, Rows<const T> x,
                                          const T* weight, int64_t width, Acc<T> eps) {
    const int64_t row = blockIdx.x;
    y.write(row, width, [=](const auto& team, T* out) {
        const MeanAndRstd<Acc<T>> kept = layer_norm_row(team, out, x[row], weight, width, eps);
        if (!team.first()) return;
        mean[row] = kept.mean;
        rstd[row] = kept.rstd;
    });
}

/// The same, as kept_rounded_rms_norm_kernel.
template <class T>
__global__ void __launch_bounds__(NormBlock<true>::most_threads)
    kept_rounded_layer_norm_kernel(RoundedRows<T> y, Acc<T>* mean, Acc<T>* rstd, Rows<const T> x,
                                   const T* weight, int64_t width, Acc<T> eps) {
    const int64_t row = blockIdx.x;
    y.template write<NormBlock<true>>(row, width, [=](const auto& team, T* out) {
        NormRow<T, true> kept = {}, w = {};
        team.keep(kept, row_at(x, row));
        team.keep(w, weight, weight != nullptr);
        const MeanAndRstd<Acc<T>> of_row = layer_norm_row(team, out, kept, w, width, eps);
        if (!team.first()) return;
        mean[row] = of_row.mean;
        rstd[row] = of_row.rstd;
    });
}

/// mean: null for RMSNorm. partial[block][width]: sums of the weight's gradient, or null. bits: the largest
/// magnitude of dx, if with_largest; the block reads it in what it has just written, so that dx is computed
/// by the same instructions either way.
template <class T, bool with_largest, bool general>
__global__ void norm_backward_kernel(Rows<T> dx, Acc<T>* partial, int32_t* bits, Rows<const T> dy,
                                     Rows<const T> plus, Rows<const T> x, const Acc<T>* mean,
                                     const Acc<T>* rstd, const T* weight, int64_t rows, int64_t block,
                                     int64_t width, Acc<T> offset) {
    using A = Acc<T>;
    const BlockTeam team(shared_memory());
    const MaybeWithLargest<BlockTeam, with_largest> reader(shared_memory());
    A* sums = reinterpret_cast<A*>(shared_memory() + BlockTeam::shared_bytes);
    const int64_t begin = int64_t(blockIdx.x) * block, end = begin + block < rows ? begin + block : rows;
    if (partial) team.map(width, sums, [] { return A(0); });
    team.barrier();  // unaligned rows divide their columns among the threads differently
    for (int64_t i = begin; i < end; ++i) {
        const A r = rstd[i], m = mean ? mean[i] : A(0);
        if (partial)
            team.map(
                width, sums, [=](A sum, A dyj, A xj) { return sum + dyj * (xj - m) * r; }, sums, dy[i], x[i]);
        if (mean)
            layer_norm_backward_row(team, dx[i], dy[i], plus[i], x[i], m, r, weight, width);
        else
            rms_norm_backward_row(team, dx[i], dy[i], plus[i], x[i], r, weight, offset_in<general>(offset),
                                  width);
        if constexpr (with_largest) {
            team.barrier();
            reader.read(width, dx[i]);
        }
    }
    if constexpr (with_largest) raise(bits, reader.largest_written().first);
    if (partial)
        team.map(
            width, partial + blockIdx.x * width, [](A sum) { return sum; }, sums);
}

/// The same, if blocks of NormBlock keep the weight, the sums and two rows of each operand: the next
/// rows are loaded before the sums over this one. centred: LayerNorm, whose rows have a mean.
template <class T, bool centred, bool with_largest, bool general>
__global__ void __launch_bounds__(NormBlock<centred>::most_threads)
    kept_norm_backward_kernel(Rows<T> dx, Acc<T>* partial, int32_t* bits, Rows<const T> dy,
                              Rows<const T> plus, Rows<const T> x, const Acc<T>* mean, const Acc<T>* rstd,
                              const T* weight, int64_t rows, int64_t block, int64_t width, Acc<T> offset) {
    using A = Acc<T>;
    const NormBlock<centred> team(shared_memory());
    int32_t largest = 0;
    struct {
        NormRow<T, centred> dy, x, plus;
        A mean, rstd;
    } next = {};
    const int64_t begin = int64_t(blockIdx.x) * block, end = begin + block < rows ? begin + block : rows;
    const auto keep = [&](int64_t i) {
        const bool is_there = i < end;
        team.keep(next.dy, row_at(dy, i), is_there);
        team.keep(next.x, row_at(x, i), is_there);
        team.keep(next.plus, row_at(plus, i), is_there && plus.data);
        if (centred && is_there) next.mean = mean[i];
        if (is_there) next.rstd = rstd[i];
    };
    NormRow<T, centred> w = {};
    team.keep(w, weight, weight != nullptr);
    constexpr int size = pack_count<T>();
    alignas(16) A sums[NormBlock<centred>::template width_of<T>(1)] = {};
    keep(begin);
    for (int64_t i = begin; i < end; ++i) {
        const auto row = next;
        keep(i + 1);
        team.each([&](int place, A dyj,
                      A xj) { sums[place] += dyj * (centred ? (xj - row.mean) * row.rstd : xj * row.rstd); },
                  row.dy, row.x);
        if constexpr (centred)
            layer_norm_backward_row(team, row_at(dx, i), row.dy, row.plus, row.x, row.mean, row.rstd, w,
                                    width);
        else
            rms_norm_backward_row(team, row_at(dx, i), row.dy, row.plus, row.x, row.rstd, w,
                                  offset_in<general>(offset), width);
        if constexpr (with_largest)
            team.template each_pack<T>([&](int, unsigned j) {
                const Pack<T, size> written = load_pack<size>(row_at(dx, i) + j);
                COEUS_UNROLL
                for (const T& value : written.values)
                    largest = std::max(largest, magnitude_bits(load(value)));
            });
    }
    if constexpr (with_largest) raise(bits, largest);
    if (!partial) return;
    team.template each_pack<T>([&](int i, unsigned j) {
        COEUS_UNROLL
        for (int e = 0; e < size; e += 4)
            store_pack(partial + blockIdx.x * width + j + e, load_pack<4>(sums + i * size + e));
    });
}

void check(Tensor y, Tensor x, Tensor weight, Tensor statistic) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(!weight || weight.count() == x.cols(), "norm: the weight does not have the width of the input");
    require(statistic.count() == x.rows(), "norm: needs one statistic for each row");
    require(!y.largest || y.has_largest(), "norm: the result has one largest magnitude");
}

Grid rows_grid(int64_t rows, int64_t width) {
    return {blocks_for(rows), threads_for(width), BlockTeam::shared_bytes};
}

/// Blocks of NormBlock for so many rows or blocks of rows, if they can keep these rows and the weight.
template <bool centred, class T>
std::optional<Grid> grid_of_kept_rows(int64_t blocks, int64_t width, std::initializer_list<Tensor> operands,
                                      const Tensor& weight) {
    const bool aligned = in_pieces(operands) && reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
    const int64_t of_warp = NormBlock<centred>::template width_of<T>(warp_size), warps = width / of_warp;
    if (width % of_warp != 0 || warps > NormBlock<centred>::most_threads / warp_size || !aligned)
        return std::nullopt;
    return Grid{blocks_for(blocks), int(warps) * warp_size, NormBlock<centred>::shared_bytes};
}

/// Launches the kernel of a forward for rows that are kept, or else the other one, which has the same
/// parameters. They are the same if rows are never kept.
template <bool centred, class T, class... Parameters>
void launch_forward(Exec& exec, const char* name, std::initializer_list<Tensor> operands,
                    const Tensor& weight, int64_t rows, int64_t width, void (*for_kept)(Parameters...),
                    void (*for_others)(Parameters...), const std::type_identity_t<Parameters>&... arguments) {
    std::optional<Grid> grid;
    if (for_kept != for_others) grid = grid_of_kept_rows<centred, T>(rows, width, operands, weight);
    if (grid)
        launch(exec, name, resident_rows(exec, for_kept, *grid), for_kept, arguments...);
    else
        launch(exec, name, rows_grid(rows, width), for_others, arguments...);
}

/// The same for a result that is also rounded, whose rows are in shared memory meanwhile.
template <bool centred, class T, class... Parameters>
void launch_rounded(Exec& exec, const char* name, std::initializer_list<Tensor> operands,
                    const Tensor& weight, int64_t rows, int64_t width, void (*for_kept)(Parameters...),
                    void (*for_others)(Parameters...), const std::type_identity_t<Parameters>&... arguments) {
    std::optional<Grid> grid;
    if (for_kept != for_others) grid = grid_of_kept_rows<centred, T>(rows, width, operands, weight);
    if (!grid) return launch(exec, name, grid_of_rounded_rows<T>(rows, width), for_others, arguments...);
    grid->shared_bytes += size_t(width) * sizeof(T);
    launch(exec, name, *grid, for_kept, arguments...);
}

template <bool centred>
void norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor mean,
                   Tensor rstd, Tensor weight, double offset) {
    check(dx, x, weight, rstd);
    const int64_t rows = x.rows(), width = x.cols();
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const int64_t block = workspace::norm_block(rows, width);
        const auto launch_sums = [&](A* partial, int64_t blocks) {
            const auto kept = grid_of_kept_rows<centred, T>(blocks, width, {dx, dy, plus, x}, weight);
            Grid grid = kept ? *kept : rows_grid(blocks, width);
            if (partial && !kept) grid.shared_bytes += size_t(width) * sizeof(A);
            with_largest_of(dx, [&]<bool with_largest>(int32_t* bits) {
                auto* kernel = kept ? kept_norm_backward_kernel<T, centred, with_largest, false>
                                    : norm_backward_kernel<T, with_largest, false>;
                if constexpr (!centred)
                    if (offset != 0)
                        kernel = kept ? kept_norm_backward_kernel<T, false, with_largest, true>
                                      : norm_backward_kernel<T, with_largest, true>;
                launch(exec, "norm_backward", grid, kernel, rows_of<T>(dx), partial, bits,
                       rows_of<const T>(dy), rows_of<const T>(plus), rows_of<const T>(x),
                       mean ? mean.as<const A>() : nullptr, rstd.as<const A>(),
                       weight ? weight.as<const T>() : nullptr, rows, block, width, A(offset));
            });
        };
        add_column_sums<A>(exec, dweight, rows, width, launch_sums, block);
    });
}

}  // namespace

namespace {

// RMSNorm does not keep rows in float32: compilers fuse its sum with a product in one kernel and not in
// another, and a row must have the same bits whether a kernel also rounds it or not.
template <class T, bool with_largest, bool general>
constexpr auto kept_rms_norm() {
    if constexpr (std::is_same_v<T, float>)
        return rms_norm_kernel<T, with_largest, general>;
    else
        return kept_rms_norm_kernel<T, with_largest, general>;
}
template <class T, bool general>
constexpr auto kept_rounded_rms_norm() {
    if constexpr (std::is_same_v<T, float>)
        return rounded_rms_norm_kernel<T, general>;
    else
        return kept_rounded_rms_norm_kernel<T, general>;
}

template <class T, bool general>
void launch_rms_norm(Exec& exec, const Tensor& y, const Tensor& rstd, const Tensor& plus, const Tensor& x,
                     const Tensor& weight, const NormForm& form) {
    using A = Acc<T>;
    if (y.rounded)
        return launch_rounded<false, T>(
            exec, "rms_norm", {y, plus, x}, weight, x.rows(), x.cols(), kept_rounded_rms_norm<T, general>(),
            rounded_rms_norm_kernel<T, general>, RoundedRows<T>(y), rstd.as<A>(), rows_of<const T>(plus),
            rows_of<const T>(x), weight.as<const T>(), x.cols(), A(form.eps), A(form.offset));
    with_largest_of(y, [&]<bool with_largest>(int32_t* bits) {
        launch_forward<false, T>(exec, "rms_norm", {y, plus, x}, weight, x.rows(), x.cols(),
                                 kept_rms_norm<T, with_largest, general>(),
                                 rms_norm_kernel<T, with_largest, general>, rows_of<T>(y), rstd.as<A>(), bits,
                                 rows_of<const T>(plus), rows_of<const T>(x), weight.as<const T>(), x.rows(),
                                 x.cols(), A(form.eps), A(form.offset));
    });
}

}  // namespace

void Cuda::rms_norm(Exec& exec, Tensor y, Tensor rstd, Tensor plus, Tensor x, Tensor weight,
                    const NormForm& form) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        with_residual_or_offset(plus, form.offset, [&]<bool general>() {
            launch_rms_norm<T, general>(exec, y, rstd, plus, x, weight, form);
        });
    });
}

void Cuda::rms_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                             Tensor rstd, Tensor weight, const NormForm& form) {
    norm_backward<false>(exec, dx, dweight, dy, plus, x, {}, rstd, weight, form.offset);
}

namespace {

constexpr int head_threads = 128, head_warps = head_threads / warp_size;

/// The warps of a block take the heads of a token in turn.
template <class T>
__global__ void head_norm_kernel(Rows<T> y, Rows<const T> x, const T* weight, int64_t heads, int64_t width,
                                 Acc<T> eps, Acc<T> offset) {
    const WarpTeam team;
    const int64_t t = blockIdx.x;
    for (int64_t head = threadIdx.x / warp_size; head < heads; head += head_warps)
        rms_norm_row(team, y[t] + head * width, x[t] + head * width, weight, offset, width, eps);
}

/// The warps of a block take the heads of its tokens in turn. Each sums its part of the weight's gradient in
/// shared memory, [warp][width].
template <class T>
__global__ void head_norm_backward_kernel(Rows<T> dx, Acc<T>* partial, Rows<const T> dy, Rows<const T> x,
                                          const T* weight, int64_t rows, int64_t heads, int64_t width,
                                          Acc<T> eps, Acc<T> offset) {
    using A = Acc<T>;
    const WarpTeam team;
    const int64_t warp = threadIdx.x / warp_size,
                  begin = int64_t(blockIdx.x) * workspace::column_block * heads,
                  end = begin + workspace::column_block * heads < rows * heads
                            ? begin + workspace::column_block * heads
                            : rows * heads;
    A* const of_warps = reinterpret_cast<A*>(shared_memory());
    A* const sums = of_warps + warp * width;
    if (partial) team.each(width, [=](int64_t j) { sums[j] = 0; });
    for (int64_t i = begin + warp; i < end; i += head_warps) {
        const int64_t t = i / heads, column = i % heads * width;
        const T *const d = dy[t] + column, *const in = x[t] + column;
        const A r = rms_norm_rstd<T>(team, in, width, eps);
        if (partial) team.each(width, [=](int64_t j) { sums[j] += load(d[j]) * load(in[j]) * r; });
        __syncwarp();  // dx may be x: all lanes have read it
        if (weight)
            rms_norm_backward_row(team, dx[t] + column, d, static_cast<const T*>(nullptr), in, r, weight,
                                  offset, width);
        else
            rms_norm_backward_row(team, dx[t] + column, d, in, r, width);
    }
    if (!partial) return;
    __syncthreads();
    Threads(threadIdx.x, blockDim.x).each(width, [=](int64_t j) {
        A total = 0;
        for (int w = 0; w < head_warps; ++w) total += of_warps[w * width + j];
        partial[blockIdx.x * width + j] = total;
    });
}

void check_heads(Tensor y, Tensor x, Tensor weight, int64_t head_dim) {
    require(y.rows() == x.rows() && y.cols() == x.cols(), "norm: input and output differ in shape");
    require(x.cols() % head_dim == 0, "head_norm: columns are not whole heads");
    require(!weight || weight.count() == head_dim, "head_norm: the weight does not have the width of a head");
}

}  // namespace

void Cuda::head_norm(Exec& exec, Tensor y, Tensor x, Tensor weight, int64_t head_dim, const NormForm& form) {
    check_heads(y, x, weight, head_dim);
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "head_norm", {blocks_for(x.rows()), head_threads}, head_norm_kernel<T>, rows_of<T>(y),
               rows_of<const T>(x), weight ? weight.as<const T>() : nullptr, x.cols() / head_dim, head_dim,
               Acc<T>(form.eps), Acc<T>(form.offset));
    });
}

void Cuda::head_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight,
                              int64_t head_dim, const NormForm& form) {
    check_heads(dx, x, weight, head_dim);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        add_column_sums<A>(exec, dweight, x.rows(), head_dim, [&](A* partial, int64_t blocks) {
            launch(exec, "head_norm_backward",
                   {blocks_for(blocks), head_threads, size_t(head_warps * head_dim) * sizeof(A)},
                   head_norm_backward_kernel<T>, rows_of<T>(dx), partial, rows_of<const T>(dy),
                   rows_of<const T>(x), weight ? weight.as<const T>() : nullptr, x.rows(),
                   x.cols() / head_dim, head_dim, A(form.eps), A(form.offset));
        });
    });
}

void Cuda::layer_norm(Exec& exec, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps) {
    check(y, x, weight, rstd);
    dispatch(x.dtype, [&]<class T>(T) {
        const T* const w = weight ? weight.as<const T>() : nullptr;
        if (y.rounded)
            return launch_rounded<true, T>(exec, "layer_norm", {y, x}, weight, x.rows(), x.cols(),
                                           kept_rounded_layer_norm_kernel<T>, rounded_layer_norm_kernel<T>,
                                           RoundedRows<T>(y), mean.as<Acc<T>>(), rstd.as<Acc<T>>(),
                                           rows_of<const T>(x), w, x.cols(), Acc<T>(eps));
        with_largest_of(y, [&]<bool with_largest>(int32_t* bits) {
            launch_forward<true, T>(exec, "layer_norm", {y, x}, weight, x.rows(), x.cols(),
                                    kept_layer_norm_kernel<T, with_largest>,
                                    layer_norm_kernel<T, with_largest>, rows_of<T>(y), mean.as<Acc<T>>(),
                                    rstd.as<Acc<T>>(), bits, rows_of<const T>(x), w, x.rows(), x.cols(),
                                    Acc<T>(eps));
        });
    });
}

void Cuda::layer_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                               Tensor mean, Tensor rstd, Tensor weight) {
    norm_backward<true>(exec, dx, dweight, dy, plus, x, mean, rstd, weight, 0);
}

}  // namespace coeus::cuda
