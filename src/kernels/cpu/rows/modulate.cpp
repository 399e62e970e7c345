// SPDX-License-Identifier: Apache-2.0
// Modulation of rows by what belongs to their sequences, and the squared error of rows. Sums over the rows of
// a sequence are taken over fixed blocks of them, and then over the blocks in order, so that they have the
// same bits for any number of threads.
#include "../../rows/modulate.hpp"

#include "../cpu.hpp"
#include "../workspace.hpp"

namespace coeus::cpu {

void Cpu::modulate(Exec& exec, Tensor y, Tensor plus, Tensor x, Tensor shift, Tensor scale,
                   const SequenceRows& rows, double base) {
    coeus::rows::check_modulate(y, plus, x, shift, scale, rows);
    dispatch(x.dtype, [&]<class T>(T) {
        parallel_rows(exec, x.rows(), x.cols(), [&](int64_t i) {
            const int64_t s = rows.sequence_of(i);
            modulate_row(Lane(), y.row<T>(i), plus ? plus.row<const T>(i) : nullptr, x.row<const T>(i),
                         shift ? shift.row<const T>(s) : nullptr, scale.row<const T>(s), x.cols(),
                         Acc<T>(base));
        });
    });
}

void Cpu::modulate_backward(Exec& exec, Tensor dx, Tensor dshift, Tensor dscale, Tensor dy, Tensor x,
                            Tensor scale, const SequenceRows& rows, double base) {
    coeus::rows::check_modulate(dx, dy, x, dshift, scale, rows);
    require(dscale.shape == scale.shape, "modulate: operands differ in shape");
    const int64_t n = x.rows(), width = x.cols(), sums = dshift ? 2 : 1,
                  blocks = workspace::blocks_of_sequence(rows, n);
    dispatch(x.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const Scope scope(exec.workspace);
        A* const partial =
            exec.workspace.alloc(dscale.dtype, {scale.rows() * blocks * sums, width}).template as<A>();
        parallel_blocks(exec, scale.rows() * blocks, 1, [&](int64_t block, int64_t, int64_t) {
            const int64_t s = block / blocks,
                          begin = rows.begin_of(s, n) + block % blocks * workspace::column_block,
                          end = std::min(begin + workspace::column_block, rows.begin_of(s + 1, n));
            A *const of_scale = partial + block * sums * width, *const of_shift = of_scale + width;
            std::fill(of_scale, of_scale + sums * width, A(0));
            const T* const factor = scale.row<const T>(s);
            for (int64_t i = begin; i < end; ++i) {
                T* const to = dx.row<T>(i);
                const T *const d = dy.row<const T>(i), *const in = x.row<const T>(i);
                const auto add = [=](int64_t j, A& more_scale, A& more_shift) {
                    to[j] = store<T>(modulated_gradient(load(d[j]), load(in[j]), A(base) + load(factor[j]),
                                                        more_scale, more_shift));
                };
                if (sums == 2)
                    Lane().each(width, [=](int64_t j) { add(j, of_scale[j], of_shift[j]); });
                else
                    Lane().each(width, [=](int64_t j) {
                        A unused = 0;
                        add(j, of_scale[j], unused);
                    });
            }
        });
        const auto add_blocks = [&](const Tensor& to, int64_t number) {
            parallel_rows(exec, to.rows(), blocks * width, [&](int64_t s) {
                A* const sum = to.row<A>(s);
                std::fill(sum, sum + width, A(0));
                for (int64_t block = s * blocks; block < (s + 1) * blocks; ++block) {
                    const A* const more = partial + (block * sums + number) * width;
                    Lane().each(width, [=](int64_t j) { sum[j] += more[j]; });
                }
            });
        };
        add_blocks(dscale, 0);
        if (dshift) add_blocks(dshift, 1);
    });
}

void Cpu::squared_error(Exec& exec, Tensor losses, Tensor dprediction, Tensor prediction, Tensor target,
                        Tensor weights, const SequenceRows& rows, const StepScalars& scalars) {
    const int64_t n = prediction.rows();
    coeus::rows::check_squared_error(losses, dprediction, prediction, target, weights, rows);
    dispatch(prediction.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        A* const loss = losses.as<A>();
        const A* const weight = weights.as<const A>();
        parallel_rows(exec, n, prediction.cols(), [&](int64_t i) {
            const A w = A(double(weight[rows.sequence_of(i)]) * scalars.loss_scale);
            loss[i] =
                squared_error_row(Lane(), dprediction ? dprediction.row<T>(i) : nullptr,
                                  prediction.row<const T>(i), target.row<const A>(i), prediction.cols(), w);
        });
    });
}

}  // namespace coeus::cpu
