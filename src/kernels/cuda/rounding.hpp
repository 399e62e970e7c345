// SPDX-License-Identifier: Apache-2.0
// Random bits for stochastic rounding, in kernels that update weights.
#pragma once

#include "coeus/base/random.hpp"
#include "cuda.hpp"

namespace coeus::cuda {

/// The random bits of the elements from `first` on. One division finds the place of element `first` in the
/// parameter; elements beyond the end of its run need further divisions.
class BitsFrom {
public:
    __device__ BitsFrom(const RandomStream& random, const ElementPlace& place, int64_t run, int64_t first)
        : random_(random), place_(place), run_(run), first_(first), row_(first / run), col_(first % run) {}

    __device__ uint64_t operator()(int64_t j) const {
        return col_ + j < run_ ? at(row_, col_ + j) : at((first_ + j) / run_, (first_ + j) % run_);
    }

private:
    __device__ uint64_t at(int64_t row, int64_t col) const {
        return random_.u64(place_.first_index + uint64_t(row) * place_.stride + uint64_t(col));
    }

    const RandomStream& random_;
    const ElementPlace& place_;
    int64_t run_, first_, row_, col_;
};

}  // namespace coeus::cuda
