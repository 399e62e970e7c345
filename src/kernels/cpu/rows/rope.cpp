// SPDX-License-Identifier: Apache-2.0
#include "../../rows/rope.hpp"

#include "../cpu.hpp"

namespace coeus::cpu {

void Cpu::rope(Exec& exec, Tensor x, Tensor table, Tensor positions, const RopeShape& s, bool inverse) {
    require(s.width % 2 == 0 && s.first + s.width <= s.head_dim && x.cols() % s.head_dim == 0,
            "rope: columns are not whole heads of pairs");
    require(table.cols() == s.width && positions.count() == x.rows(),
            "rope: table or positions have the wrong shape");
    const int32_t* position = positions.as<const int32_t>();
    dispatch(x.dtype, [&]<class T>(T) {
        parallel_rows(exec, x.rows(), x.cols(), [&](int64_t t) {
            const auto* angles = table.row<const Acc<T>>(position[t]);
            T* row = x.row<T>(t);
            for (int64_t head = 0; head < x.cols(); head += s.head_dim)
                rope_row(Lane(), row + head + s.first, angles, s.width, s.layout, inverse);
        });
    });
}

}  // namespace coeus::cpu
