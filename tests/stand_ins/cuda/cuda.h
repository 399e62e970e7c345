// SPDX-License-Identifier: Apache-2.0
// Stand-in for the header of CUDA's driver, for tests: descriptions of tensors for TMA, and numbers that
// streams write and wait for, with the names and numbers of the driver API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;

struct coeus_emulated_stream;
using CUstream = coeus_emulated_stream*;
using CUdeviceptr = unsigned long long;

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0, CU_TENSOR_MAP_INTERLEAVE_16B };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_NONE = 0, CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_NONE = 0, CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };
enum CUtensorMapFloatOOBfill {
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
};

struct alignas(64) CUtensorMap {
    cuuint64_t opaque[16];
};

/// Keeps what it is given in the map. Refuses what the driver API's documentation of the function forbids; a
/// map of anything but three dimensions of bfloat16 in the 128-byte swizzle, with zeros outside, is not
/// emulated and refused too.
CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress, const cuuint64_t* globalDim,
                                const cuuint64_t* globalStrides, const cuuint32_t* boxDim,
                                const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill);

constexpr unsigned CU_STREAM_WRITE_VALUE_DEFAULT = 0, CU_STREAM_WAIT_VALUE_EQ = 1;
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags);
/// Knows the wait for an equal number.
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags);

namespace coeus::emulation {

/// Why the last call of cuTensorMapEncodeTiled was refused.
inline std::string refused_map;
/// Whether the driver has cuTensorMapEncodeTiled; it has at first.
inline bool has_tensor_maps = true;

}  // namespace coeus::emulation
