// SPDX-License-Identifier: Apache-2.0
// Conversions, sums and zeros, element by element.
#include "../../rows/team.hpp"
#include "../cpu.hpp"

#include <cstring>

namespace coeus::cpu {

namespace {

constexpr int64_t sum_block = 4096;  // elements that a thread sums in its cache

/// Calls f(first element of out, first element of a, count) for blocks of dense tensors, or for the rows of
/// others.
template <class O, class T, class F>
void for_pairs(Exec& exec, Tensor out, Tensor a, F&& f) {
    require(out.count() == a.count() && out.rows() == a.rows(),
            "tensors of an elementwise kernel differ in shape");
    O* o = out.as<O>();
    const T* x = a.as<const T>();
    if (out.dense() && a.dense())
        parallel_blocks(exec, out.count(), int64_t(1) << 14,
                        [&](int64_t, int64_t first, int64_t last) { f(o + first, x + first, last - first); });
    else
        parallel_rows(exec, out.rows(), out.cols(),
                      [&](int64_t row) { f(o + row * out.ld, x + row * a.ld, out.cols()); });
}

}  // namespace

void Cpu::cast(Exec& exec, Tensor out, Tensor a) {
    if (size_of(a.dtype) == 1) {
        require(out.dtype == a.dtype, "8-bit types are not converted");
        const Tensor to(out.data, Dtype::u8, {out.rows(), out.cols()}),
            from(a.data, Dtype::u8, {a.rows(), a.cols()});
        require(out.dense() && a.dense(), "8-bit tensors are copied with dense rows");
        return for_pairs<uint8_t, uint8_t>(
            exec, to, from, [](uint8_t* o, const uint8_t* x, int64_t n) { std::memcpy(o, x, size_t(n)); });
    }
    dispatch(out.dtype, [&]<class O>(O) {
        dispatch(a.dtype, [&]<class T>(T) {
            for_pairs<O, T>(exec, out, a, [](O* o, const T* x, int64_t n) {
                Lane().each(n, [=](int64_t j) { o[j] = store<O>(load(x[j])); });
            });
        });
    });
}

void Cpu::add(Exec& exec, Tensor out, Tensor a) {
    dispatch(out.dtype, [&]<class O>(O) {
        dispatch(a.dtype, [&]<class T>(T) {
            for_pairs<O, T>(exec, out, a, [](O* o, const T* x, int64_t n) {
                Lane().each(n, [=](int64_t j) { o[j] = store<O>(load(o[j]) + Acc<O>(load(x[j]))); });
            });
        });
    });
}

void Cpu::sum_parts(Exec& exec, Tensor out, Tensor parts) {
    const int64_t count = out.count();
    require(
        out.dense() && parts.dense() && out.dtype == parts.dtype && count > 0 && parts.count() % count == 0,
        "parts to sum must be dense and have the sum's shape and type");
    const int64_t terms = parts.count() / count;
    dispatch(out.dtype, [&]<class T>(T) {
        T* y = out.as<T>();
        const T* x = parts.as<const T>();
        parallel_blocks(exec, count, sum_block, [&](int64_t, int64_t first, int64_t last) {
            Acc<T> sums[sum_block];
            Acc<T>* sum = sums;
            for (int64_t p = 0; p < terms; ++p) {
                const T* part = x + p * count + first;
                if (p == 0)
                    Lane().each(last - first, [=](int64_t j) { sum[j] = load(part[j]); });
                else
                    Lane().each(last - first, [=](int64_t j) { sum[j] += load(part[j]); });
            }
            Lane().each(last - first, [=](int64_t j) { y[first + j] = store<T>(sum[j]); });
        });
    });
}

void Cpu::zero(Exec& exec, Tensor out) {
    const int64_t size = size_of(out.dtype);
    char* data = static_cast<char*>(out.data);
    if (out.dense())
        parallel_blocks(exec, out.bytes(), int64_t(1) << 16, [&](int64_t, int64_t first, int64_t last) {
            std::memset(data + first, 0, size_t(last - first));
        });
    else
        parallel_rows(exec, out.rows(), out.cols(), [&](int64_t row) {
            std::memset(data + row * out.ld * size, 0, size_t(out.cols() * size));
        });
}

}  // namespace coeus::cpu
