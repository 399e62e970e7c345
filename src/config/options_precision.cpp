// SPDX-License-Identifier: Apache-2.0
// Options of training in 8 bits: one section for each of model.converters.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* one_kernel = "one kernel quantizes along either dimension";
constexpr const char* when_needed = "the backward pass makes its form of a weight when it needs it";
constexpr const char* always_dynamic = "scales always follow from the numbers that they scale";
constexpr const char* no_history =
    "scales that follow from the largest numbers of earlier steps are not supported (torchtitan removed them "
    "in January 2025); set it to \"dynamic\"";

Option scaling_type(const std::string& tensor, const char* meaning) {
    return no_effect("float8.scaling_type_" + tensor, Type::text, always_dynamic, meaning)
        .one_of({"dynamic", "delayed"})
        .idle_at({std::string("dynamic")})
        .refuses({"delayed"}, no_history);
}

}  // namespace

std::vector<Option> precision_options() {
    return {
        works(COEUS_FIELD(quantize.linear.float8.recipe_name), to_run,
              "What has a scale of its own. `tensorwise`: each tensor. `rowwise`: each row, or each column, "
              "and scales are powers of two. `rowwise_with_gw_hp`: the same, but gradients of weights are "
              "computed in the compute type. `none` is the same as `tensorwise`")
            .one_of({"tensorwise", "rowwise", "rowwise_with_gw_hp", "none"}),
        works(
            COEUS_FIELD(quantize.linear.float8.enable_fsdp_float8_all_gather), to_run,
            "Quantize the weights once after each update, from the weights that the optimizer updates. They "
            "are gathered and kept in 8 bits. It needs the recipe `tensorwise`"),
        works(COEUS_FIELD(quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp), to_nothing,
              "Compute the scales of all weights in one exchange. This is always done"),
        works(COEUS_FIELD(quantize.linear.float8.filter_fqns), to_run,
              "Parts of names: linear layers whose names have one of them stay in the compute type "
              "(doc/float8.md). `auto_filter_small_kn`: so do small layers, which 8 bits would not make "
              "faster"),
        works(COEUS_FIELD(quantize.linear.float8.emulate), to_nothing,
              "Compute the products of 8-bit numbers in software. CPUs always do"),
        works(COEUS_FIELD(quantize.grouped_mm.float8.fqns), to_run,
              "Parts of names: the experts of modules whose names have one of them are computed in 8 bits, "
              "with the recipe `rowwise`. `experts`: all experts"),
        works(COEUS_FIELD(quantize.linear.mx.recipe_name), to_run,
              "How the scale of 32 numbers follows from the largest one: by its exponent, or rounded up "
              "(`rceil`). `emulated`: products are computed in software, as CPUs always do. `mxfp8` is the "
              "same as `mxfp8_cublas`")
            .one_of({"mxfp8_cublas", "mxfp8_emulated", "mxfp8_cublas_rceil", "mxfp8_rceil",
                     "mxfp8_emulated_rceil", "mxfp8"}),
        works(COEUS_FIELD(quantize.linear.mx.filter_fqns), to_run,
              "Parts of names: linear layers whose names have one of them stay in the compute type"),
        works(COEUS_FIELD(quantize.linear.mx.fqns), to_run,
              "Parts of names: if the list is not empty, all other linear layers stay in the compute type"),
        no_effect("quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", Type::text, one_kernel,
                  "Kernel that casts along the first dimension")
            .one_of({"triton", "cuda", "torch"}),
        works(COEUS_FIELD(quantize.grouped_mm.mx.recipe_name), to_run,
              "Kind of MXFP8. All are the same: scales are rounded up, and products are computed from the "
              "8-bit "
              "numbers in software on CPUs, and in bfloat16 on GPUs")
            .one_of({"mxfp8", "mxfp8_rceil", "mxfp8_emulated"}),
        works(COEUS_FIELD(quantize.grouped_mm.mx.fqns), to_run,
              "Parts of names: the experts of modules whose names have one of them are computed in 8 bits. "
              "`experts`: all experts"),
        scaling_type("input", "When the scales of inputs are computed"),
        scaling_type("weight", "When the scales of weights are computed"),
        scaling_type("grad_output", "When the scales of gradients are computed"),
        no_effect("float8.force_recompute_fp8_weight_in_bwd", Type::boolean, when_needed,
                  "Quantize weights again in the backward pass"),
        no_effect("mx.use_fp8_dim1_cast_triton_kernel", Type::boolean, one_kernel,
                  "Cast along the first dimension with a kernel in Triton")
            .idle_at({true}),
    };
}

}  // namespace coeus::config
