// SPDX-License-Identifier: Apache-2.0
// SavedMatrix: a copy of a result, while a search overwrites it.
#pragma once

#include "../launch.hpp"
#include "coeus/device/tensor.hpp"

#include <vector>

namespace coeus::cuda {

/// Memory for `bytes` bytes on the device, if as much again and 1 GiB stay free; otherwise null.
inline std::byte* memory_with_room(size_t bytes) {
    constexpr size_t spare = size_t(1) << 30;
    size_t free = 0, total = 0;
    COEUS_CHECK_CUDA(cudaMemGetInfo(&free, &total));
    if (free < 2 * bytes + spare) return nullptr;
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) == cudaSuccess) return static_cast<std::byte*>(memory);
    cudaGetLastError();  // clears the error, which the next call would report again
    return nullptr;
}

/// A copy of a matrix, while a search overwrites the matrix: on the device if it has room, else on the host.
class SavedMatrix {
public:
    SavedMatrix(const Tensor& t, cudaStream_t stream)
        : matrix_(t),
          stream_(stream),
          row_bytes_(size_t(t.cols() * size_of(t.dtype))),
          pitch_(size_t(t.ld * size_of(t.dtype))),
          on_device_(memory_with_room(size_t(t.rows()) * row_bytes_)) {
        if (!on_device_) on_host_.resize(size_t(t.rows()) * row_bytes_);
        copy(rows(), row_bytes_, matrix_.data, pitch_);
    }
    ~SavedMatrix() {
        if (on_device_) cudaFree(on_device_);
    }
    SavedMatrix(const SavedMatrix&) = delete;
    SavedMatrix& operator=(const SavedMatrix&) = delete;

    void restore() { copy(matrix_.data, pitch_, rows(), row_bytes_); }

private:
    std::byte* rows() { return on_device_ ? on_device_ : on_host_.data(); }
    void copy(void* to, size_t to_pitch, const void* from, size_t from_pitch) const {
        COEUS_CHECK_CUDA(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes_, size_t(matrix_.rows()),
                                           cudaMemcpyDefault, stream_));
        COEUS_CHECK_CUDA(cudaStreamSynchronize(stream_));
    }

    Tensor matrix_;
    cudaStream_t stream_;
    size_t row_bytes_, pitch_;
    std::byte* on_device_;
    std::vector<std::byte> on_host_;
};

}  // namespace coeus::cuda
