// SPDX-License-Identifier: Apache-2.0
#include "../launch.hpp"
#include "tensor_map.hpp"

namespace coeus::cuda {

namespace {

using Encode = decltype(cuTensorMapEncodeTiled)*;

/// The driver's function, asked for at run time: so nothing links the driver's library, which a machine that
/// builds may not have. Null if the driver does not have it.
Encode find_encoder() {
    constexpr const char* name = "cuTensorMapEncodeTiled";
    void* function = nullptr;
    auto result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    constexpr unsigned version = 12000;  // the first one with this function
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &result);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
    if (status != cudaSuccess)
        cudaGetLastError();  // clears the error, which the next call would report again
    const bool is_there = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return is_there ? reinterpret_cast<Encode>(function) : nullptr;
}

}  // namespace

bool has_tensor_maps() {
    return find_encoder() != nullptr;
}

CUtensorMap boxes_of(const Tensor& t, int64_t matrices, int box_rows) {
    static const Encode encode = find_encoder();
    require(encode && t.dtype == Dtype::bf16 && t.rows() % matrices == 0,
            "boxes_of: not a stack of matrices");
    const int64_t rows = t.rows() / matrices, pitch = t.ld * size_of(t.dtype);
    const cuuint64_t sizes[] = {cuuint64_t(t.cols()), cuuint64_t(rows), cuuint64_t(matrices)},
                     strides[] = {cuuint64_t(pitch), cuuint64_t(rows * pitch)};
    const cuuint32_t box[] = {box_columns, cuuint32_t(box_rows), 1}, steps[] = {1, 1, 1};
    CUtensorMap map;
    const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data, sizes, strides, box,
                                   steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS)
        throw SystemError(
            fmt::format("CUDA: cuTensorMapEncodeTiled refuses {} matrices of {}x{} with rows {} bytes apart "
                        "in boxes of {} rows (error {})",
                        matrices, rows, t.cols(), pitch, box_rows, int(status)));
    return map;
}

}  // namespace coeus::cuda
