// SPDX-License-Identifier: Apache-2.0
#include "../../rows/momentum.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../quantization/largest.hpp"
#include "../rows/streams.hpp"
#include "random_bits.hpp"

namespace coeus::cuda {

namespace {

/// For elements of type T and others that are not smaller.
template <class T, class... Parameters>
Grid grid_of_elements(Exec& exec, void (*kernel)(Parameters...), int64_t count, size_t shared_bytes = 0) {
    return resident_grid(exec, kernel, div_ceil(count, whole_count<T>()), shared_bytes);
}

template <class A>
__global__ void momentum_kernel(A* buffer, A* direction, int64_t count, MomentumOptions options,
                                const StepScalars* scalars) {
    if (scalars->refusals != 0) return;
    momentum_row(grid_streams(), buffer, direction, count, options, A(scalars->clip));
}

template <class T>
__global__ void normalize_kernel(T* x, int64_t count, const double* squared_norm, double smallest) {
    normalize_row(grid_streams(), x, count, *squared_norm, smallest);
}

template <class T>
__global__ void scaled_sum_kernel(T* out, Acc<T> alpha, const T* a, Acc<T> beta, const Acc<T>* b,
                                  int64_t count) {
    scaled_sum_row(grid_streams(), out, alpha, a, beta, b, count);
}

/// bits: as in adam_kernel.
template <class T, class C, bool with_largest>
__global__ void descend_kernel(T* master, const Acc<T>* direction, C* compute, int32_t* bits, int64_t count,
                               DescentOptions options, ElementPlace place, const StepScalars* scalars) {
    if (scalars->refusals != 0) {
        if constexpr (with_largest)
            raise_for_weights(whole_grid<with_largest>(), bits, count, master, compute);
        return;
    }
    const DescentFactors<Acc<T>> factors = descent_factors<Acc<T>>(options, *scalars);
    const RandomStream random = rounding_stream(options.seed, place, scalars->step);
    update_whole_grid<T, whole_count<T, Acc<T>, C>(), with_largest>(
        random, place, count, [&](const auto& team, const auto& of) {
            descent_row(team, master, direction, compute, count, factors, of);
            if constexpr (with_largest) raise(bits, team.largest_written().first);
        });
}

}  // namespace

void Cuda::momentum(Exec& exec, Tensor buffer, Tensor direction, const MomentumOptions& options,
                    const StepScalars& scalars) {
    require(buffer.count() == direction.count() && buffer.dense() && direction.dense(),
            "momentum: tensors differ in length, or their rows are not adjacent");
    dispatch(buffer.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        launch(exec, "momentum", grid_of_elements<A>(exec, momentum_kernel<A>, buffer.count()),
               momentum_kernel<A>, buffer.as<A>(), direction.as<A>(), buffer.count(), options, &scalars);
    });
}

void Cuda::normalize(Exec& exec, Tensor x, const double* squared_norm, double smallest) {
    require(x.dense(), "normalize: rows are not adjacent");
    dispatch(x.dtype, [&]<class T>(T) {
        launch(exec, "normalize", grid_of_elements<T>(exec, normalize_kernel<T>, x.count()),
               normalize_kernel<T>, x.as<T>(), x.count(), squared_norm, smallest);
    });
}

void Cuda::scaled_sum(Exec& exec, Tensor out, double alpha, Tensor a, double beta, Tensor b) {
    require(out.count() == a.count() && out.count() == b.count() && out.dense() && a.dense() && b.dense(),
            "scaled_sum: tensors differ in length, or their rows are not adjacent");
    dispatch(out.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        launch(exec, "scaled_sum", grid_of_elements<T>(exec, scaled_sum_kernel<T>, out.count()),
               scaled_sum_kernel<T>, out.as<T>(), A(alpha), a.as<const T>(), A(beta), b.as<const A>(),
               out.count());
    });
}

void Cuda::descend(Exec& exec, Tensor master, Tensor direction, Tensor compute, const DescentOptions& options,
                   const ElementPlace& place, const StepScalars& scalars) {
    const int64_t count = master.count();
    require(direction.count() == count && (!compute || compute.count() == count),
            "descend: tensors differ in length");
    require(master.dense() && direction.dense() && (!compute || compute.dense()),
            "descend: rows are not adjacent");
    const Tensor weights = compute ? compute : master;
    require(!weights.largest || weights.has_largest(), "descend: the weights have one largest magnitude");
    dispatch(master.dtype, [&]<class T>(T) {
        const auto update = [&]<class C>(C* copy) {
            with_largest_of(weights, [&]<bool with_largest>(int32_t* bits) {
                const auto kernel = descend_kernel<T, C, with_largest>;
                launch(exec, "descend",
                       grid_of_elements<std::conditional_t<sizeof(C) < sizeof(T), C, T>>(
                           exec, kernel, count, bytes_for<with_largest>),
                       kernel, master.as<T>(), direction.as<const Acc<T>>(), copy, bits, count, options,
                       place, &scalars);
            });
        };
        if (compute)
            dispatch(compute.dtype, [&]<class C>(C) { update(compute.as<C>()); });
        else
            update(static_cast<T*>(nullptr));
    });
}

}  // namespace coeus::cuda
