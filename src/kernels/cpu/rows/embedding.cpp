// SPDX-License-Identifier: Apache-2.0
// Embedding: rows of a table by token. In the backward each thread owns columns of the table's gradient and
// adds the tokens in order. So there are no conflicts, the threads have equal shares whatever the tokens are,
// and the bits are the same for any number of threads.
#include "../../rows/team.hpp"
#include "../cpu.hpp"

#include <cstring>

namespace coeus::cpu {

namespace {

const int32_t* checked(const Tensor& tokens, int64_t rows, VocabularyPart part) {
    require(tokens.count() == rows, "embedding: needs one token for each row");
    const int32_t* token = tokens.as<const int32_t>();
    for (int64_t t = 0; t < rows; ++t)
        require(token[t] >= 0 && token[t] < part.total, "embedding: token outside the vocabulary");
    return token;
}

}  // namespace

void Cpu::embedding(Exec& exec, Tensor y, Tensor tokens, Tensor table, VocabularyPart part) {
    require(y.cols() == table.cols() && y.dtype == table.dtype, "embedding: output and table differ");
    const int32_t* token = checked(tokens, y.rows(), part);
    const size_t bytes = size_t(y.cols() * size_of(y.dtype));
    dispatch(y.dtype, [&]<class T>(T) {
        const Acc<T> scale = Acc<T>(part.scale);
        parallel_rows(exec, y.rows(), y.cols(), [&](int64_t t) {
            const int64_t row = token[t] - part.first;
            if (row < 0 || row >= table.rows())
                std::memset(static_cast<void*>(y.row<T>(t)), 0, bytes);
            else if (part.scale == 1)
                std::memcpy(y.row<T>(t), table.row<const T>(row), bytes);
            else
                Lane().map(
                    y.cols(), y.row<T>(t), [=](Acc<T> x) { return scale * x; }, table.row<const T>(row));
        });
    });
}

void Cpu::embedding_backward(Exec& exec, Tensor dtable, Tensor dy, Tensor tokens, VocabularyPart part) {
    require(dtable.cols() == dy.cols(), "embedding: gradients differ in width");
    const int32_t* token = checked(tokens, dy.rows(), part);
    const int64_t width = dy.cols();
    // each thread gets whole cache lines
    const int64_t share = std::max<int64_t>(16, round_up(div_ceil(width, exec.threads), 16));
    dispatch(dy.dtype, [&]<class T>(T) {
        const Acc<T> scale = Acc<T>(part.scale);
        parallel_blocks(exec, width, share, [&](int64_t, int64_t first, int64_t last) {
            for (int64_t t = 0; t < dy.rows(); ++t) {
                const int64_t row = token[t] - part.first;
                if (row < 0 || row >= dtable.rows()) continue;
                Acc<T>* sum = dtable.row<Acc<T>>(row) + first;
                const T* d = dy.row<const T>(t) + first;
                Lane().each(last - first, [=](int64_t j) { sum[j] += scale * load(d[j]); });
            }
        });
    });
}

}  // namespace coeus::cpu
