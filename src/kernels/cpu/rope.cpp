// SPDX-License-Identifier: Apache-2.0
#include "../rows/rope.hpp"

#include "cpu.hpp"

namespace coeus::cpu {

void Cpu::rope(Exec& exec, Tensor x, Tensor table, Tensor positions, int64_t head_dim, RopeLayout layout,
               bool inverse) {
    require(head_dim % 2 == 0 && x.cols() % head_dim == 0, "rope: columns are not whole heads of pairs");
    require(table.cols() == head_dim && positions.count() == x.rows(),
            "rope: table or positions have the wrong shape");
    const int32_t* position = positions.as<const int32_t>();
    dispatch(x.dtype, [&]<class T>(T) {
        parallel_rows(exec, x.rows(), x.cols(), [&](int64_t t) {
            const auto* angles = table.row<const Acc<T>>(position[t]);
            T* row = x.row<T>(t);
            for (int64_t first = 0; first < x.cols(); first += head_dim)
                rope_row(Lane(), row + first, angles, head_dim, layout, inverse);
        });
    });
}

}  // namespace coeus::cpu
