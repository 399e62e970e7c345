// SPDX-License-Identifier: Apache-2.0
// map_elements(): computes element-wise functions of a layer for which the table of kernels has no kernel. It
// computes only on CPUs.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/layers/context.hpp"

#include <cstdint>
#include <span>
#include <type_traits>

namespace coeus {

/// Calls work(first, last) for ranges that make up [0, count), on the threads of this rank. Observers see it
/// as one kernel `name`, a literal, over these tensors. A planning run calls nothing. ConfigError on a GPU.
void run_elements(Ctx& c, const char* name, int64_t count, std::span<const Tensor> tensors,
                  FunctionRef<void(int64_t first, int64_t last)> work);

/// out[i] = f(in[i] ...). f gets and returns double if the tensors are float64, else float. The tensors are
/// dense, of one type and one number of elements; `out` may be one of the inputs. `name` is a literal.
template <class F, class... In>
void map_elements(Ctx& c, const char* name, Tensor out, const F& f, In... in) {
    const auto run = [&]<class T>(T) {
        using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
        const Tensor tensors[] = {out, in...};
        const auto map = [&](T* y, auto*... x) {
            run_elements(c, name, out.count(), tensors, [=, &f](int64_t first, int64_t last) {
                for (int64_t i = first; i < last; ++i) y[i] = T(f(Number(x[i])...));
            });
        };
        map(out.as<T>(), in.template as<const T>()...);
    };
    switch (out.dtype) {
        case Dtype::f64: return run(double());
        case Dtype::f32: return run(float());
        case Dtype::bf16: return run(bf16());
        default: throw LogicError("map_elements takes floats");
    }
}

}  // namespace coeus
