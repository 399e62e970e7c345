// SPDX-License-Identifier: Apache-2.0
// cuDNN, loaded at run time: declares the part of its graph API that Coeus uses, so that neither its header
// nor the library is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace coeus::cuda {

/// Values as in cudnn_graph.h.
namespace cudnn {

enum class Kind : int {
    pointwise = 0,
    engine = 2,
    engine_config = 3,
    heuristics = 4,
    plan = 5,
    operation_pointwise = 13,
    graph = 15,
    variant_pack = 16,
    tensor = 17,
    matmul = 18,
    operation_matmul = 19,
    reduction = 21,
    operation_reduction = 22,
    operation_reshape = 31,
    device_properties = 38,
};
enum class Attribute : int {
    pointwise_mode = 0,
    pointwise_precision = 1,
    pointwise_axis = 9,
    heuristics_mode = 200,
    heuristics_graph = 201,
    heuristics_results = 202,
    heuristics_device_properties = 204,
    engine_config_engine = 300,
    engine_config_workspace = 303,
    plan_handle = 400,
    plan_engine_config = 401,
    plan_workspace = 402,
    plan_device_properties = 407,
    operation_pointwise_descriptor = 750,
    operation_pointwise_x = 751,
    operation_pointwise_b = 752,
    operation_pointwise_y = 753,
    operation_pointwise_t = 758,
    graph_handle = 800,
    graph_operations = 801,
    tensor_alignment = 900,
    tensor_type = 901,
    tensor_dimensions = 902,
    tensor_strides = 903,
    tensor_id = 906,
    tensor_is_virtual = 907,
    tensor_is_by_value = 908,
    variant_pack_ids = 1000,
    variant_pack_pointers = 1001,
    variant_pack_workspace = 1003,
    engine_number = 1301,
    engine_notes = 1303,
    matmul_precision = 1500,
    operation_matmul_a = 1520,
    operation_matmul_b = 1521,
    operation_matmul_c = 1522,
    operation_matmul_descriptor = 1523,
    reduction_operator = 1600,
    reduction_precision = 1601,
    operation_reduction_x = 1610,
    operation_reduction_y = 1611,
    operation_reduction_descriptor = 1612,
    operation_reshape_x = 2200,
    operation_reshape_y = 2201,
    device_properties_json = 2702,
};
/// The type of an attribute's values.
enum class Type : int {
    handle = 0,
    data_type = 1,
    boolean = 2,
    int64 = 3,
    pointer = 6,
    heuristics_mode = 8,
    note = 11,
    pointwise_mode = 14,
    descriptor = 15,
    reduction_operator = 18,
    character = 24,
};
enum class DataType : int { float32 = 0, int32 = 4, bfloat16 = 9, boolean = 11 };
enum class Pointwise : int {
    add = 0,
    multiply = 1,
    divide = 6,
    subtract = 9,
    exp = 13,
    log = 15,
    identity = 21,
    not_less = 303,
    index = 501,
    select = 601,
};
enum class Reduction : int { add = 0, max = 3 };
enum class Heuristics : int { best = 3 };
enum class Note : int { nondeterministic = 4 };

}  // namespace cudnn

/// The functions return 0 if they succeed.
struct CudnnLibrary {
    size_t (*get_version)() = nullptr;
    const char* (*get_error_string)(int status) = nullptr;
    void (*get_last_error_string)(char* text, size_t size) = nullptr;
    int (*create)(void** handle) = nullptr;
    int (*destroy)(void* handle) = nullptr;
    int (*set_stream)(void* handle, void* stream) = nullptr;
    int (*create_descriptor)(cudnn::Kind kind, void** descriptor) = nullptr;
    int (*destroy_descriptor)(void* descriptor) = nullptr;
    int (*finalize)(void* descriptor) = nullptr;
    int (*set_attribute)(void* descriptor, cudnn::Attribute name, cudnn::Type type, int64_t count,
                         const void* values) = nullptr;
    int (*get_attribute)(void* descriptor, cudnn::Attribute name, cudnn::Type type, int64_t wanted,
                         int64_t* count, void* values) = nullptr;
    int (*execute)(void* handle, void* plan, void* variant_pack) = nullptr;

    /// "cuDNN 9.19.0"
    std::string text() const;
    /// Throws SystemError with cuDNN's message if a call failed.
    void check(int status, const char* call) const;
};

/// The paths at which to look for cuDNN 9: only the value of the environment variable COEUS_CUDNN, or else
/// libcudnn.so.9 in the system and in the active Python environment (VIRTUAL_ENV).
std::vector<std::string> cudnn_paths();
/// ConfigError if the library cannot be loaded, or is older than 9.0.
CudnnLibrary load_cudnn(const std::string& path);

}  // namespace coeus::cuda
