// SPDX-License-Identifier: Apache-2.0
// Checks our declarations of cuDNN against the library's own; compiled if there is a cudnn.h.
#include "../../../src/kernels/cuda/libraries/cudnn.hpp"

#include <cudnn.h>

namespace coeus::cuda::cudnn {

#define SAME(ours, theirs) static_assert(int(ours) == int(theirs), #theirs)
SAME(Kind::pointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(Kind::engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(Kind::engine_config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(Kind::heuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(Kind::plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(Kind::operation_pointwise, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(Kind::graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(Kind::variant_pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(Kind::tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(Kind::matmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
SAME(Kind::operation_matmul, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
SAME(Kind::reduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
SAME(Kind::operation_reduction, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
SAME(Kind::operation_reshape, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
SAME(Attribute::pointwise_mode, CUDNN_ATTR_POINTWISE_MODE);
SAME(Attribute::pointwise_precision, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(Attribute::pointwise_axis, CUDNN_ATTR_POINTWISE_AXIS);
SAME(Attribute::heuristics_mode, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(Attribute::heuristics_graph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(Attribute::heuristics_results, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(Attribute::engine_config_engine, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(Attribute::engine_number, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
SAME(Attribute::plan_handle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(Attribute::plan_engine_config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(Attribute::plan_workspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(Attribute::operation_pointwise_descriptor, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(Attribute::operation_pointwise_x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(Attribute::operation_pointwise_b, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(Attribute::operation_pointwise_y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(Attribute::operation_pointwise_t, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
SAME(Attribute::graph_handle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(Attribute::graph_operations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(Attribute::tensor_alignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(Attribute::tensor_type, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(Attribute::tensor_dimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(Attribute::tensor_strides, CUDNN_ATTR_TENSOR_STRIDES);
SAME(Attribute::tensor_id, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(Attribute::tensor_is_virtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(Attribute::tensor_is_by_value, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(Attribute::variant_pack_ids, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(Attribute::variant_pack_pointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(Attribute::variant_pack_workspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(Attribute::engine_notes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(Attribute::matmul_precision, CUDNN_ATTR_MATMUL_COMP_TYPE);
SAME(Attribute::operation_matmul_a, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
SAME(Attribute::operation_matmul_b, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
SAME(Attribute::operation_matmul_c, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
SAME(Attribute::operation_matmul_descriptor, CUDNN_ATTR_OPERATION_MATMUL_DESC);
SAME(Attribute::reduction_operator, CUDNN_ATTR_REDUCTION_OPERATOR);
SAME(Attribute::reduction_precision, CUDNN_ATTR_REDUCTION_COMP_TYPE);
SAME(Attribute::operation_reduction_x, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
SAME(Attribute::operation_reduction_y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
SAME(Attribute::operation_reduction_descriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
SAME(Attribute::operation_reshape_x, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
SAME(Attribute::operation_reshape_y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
SAME(Type::handle, CUDNN_TYPE_HANDLE);
SAME(Type::data_type, CUDNN_TYPE_DATA_TYPE);
SAME(Type::boolean, CUDNN_TYPE_BOOLEAN);
SAME(Type::int64, CUDNN_TYPE_INT64);
SAME(Type::pointer, CUDNN_TYPE_VOID_PTR);
SAME(Type::heuristics_mode, CUDNN_TYPE_HEUR_MODE);
SAME(Type::note, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(Type::pointwise_mode, CUDNN_TYPE_POINTWISE_MODE);
SAME(Type::descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(Type::reduction_operator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(Type::character, CUDNN_TYPE_CHAR);
SAME(DataType::float32, CUDNN_DATA_FLOAT);
SAME(DataType::int32, CUDNN_DATA_INT32);
SAME(DataType::bfloat16, CUDNN_DATA_BFLOAT16);
SAME(DataType::boolean, CUDNN_DATA_BOOLEAN);
SAME(Pointwise::add, CUDNN_POINTWISE_ADD);
SAME(Pointwise::multiply, CUDNN_POINTWISE_MUL);
SAME(Pointwise::divide, CUDNN_POINTWISE_DIV);
SAME(Pointwise::subtract, CUDNN_POINTWISE_SUB);
SAME(Pointwise::exp, CUDNN_POINTWISE_EXP);
SAME(Pointwise::log, CUDNN_POINTWISE_LOG);
SAME(Pointwise::identity, CUDNN_POINTWISE_IDENTITY);
SAME(Pointwise::not_less, CUDNN_POINTWISE_CMP_GE);
SAME(Pointwise::index, CUDNN_POINTWISE_GEN_INDEX);
SAME(Pointwise::select, CUDNN_POINTWISE_BINARY_SELECT);
SAME(Reduction::add, CUDNN_REDUCE_TENSOR_ADD);
SAME(Reduction::max, CUDNN_REDUCE_TENSOR_MAX);
SAME(Heuristics::best, CUDNN_HEUR_MODE_A);
SAME(Note::nondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
#if CUDNN_VERSION >= 90800
SAME(Kind::device_properties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
SAME(Attribute::heuristics_device_properties, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(Attribute::plan_device_properties, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
SAME(Attribute::engine_config_workspace, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
SAME(Attribute::device_properties_json, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
#endif

}  // namespace coeus::cuda::cudnn
