// SPDX-License-Identifier: Apache-2.0
// Options of how the model is spread over ranks and what is recomputed or computed in few bits.
#include "option.hpp"

namespace coeus::config {

namespace {

constexpr const char* compiled_ahead = "kernels are compiled when Coeus is built";
constexpr const char* no_nvlink = "ranks of Coeus exchange weights through MPI";
constexpr const char* pytorch_recompute = "it concerns PyTorch's recomputation";
constexpr const char* no_mx = "MXFP8 is not a format of Coeus";

}  // namespace

std::vector<Option> parallel_options() {
    const auto float8 = [](Field field, const char* meaning) {
        return dormant(field, "model.converters", meaning);
    };
    return {
        works(COEUS_FIELD(parallelism.data_parallel_replicate_degree),
              "number of copies of the weights, each of which sees its own sequences")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.data_parallel_shard_degree),
              "number of ranks that share one copy of the weights (FSDP); -1: what the other degrees leave")
            .obeys(degree_or_rest),
        works(COEUS_FIELD(parallelism.fsdp_reshard_after_forward),
              "give gathered weights back after the forward pass; default: unless there is a pipeline")
            .one_of({"default", "always", "never"}),
        no_effect("parallelism.enable_fsdp_symm_mem", Type::boolean, no_nvlink,
                  "gather weights through NVLink"),
        no_effect("parallelism.spmd_backend", Type::text, "Coeus has no distributed tensors",
                  "kind of PyTorch's distributed tensors")
            .one_of({"spmd_types", "partial_dtensor"}),
        works(COEUS_FIELD(parallelism.tensor_parallel_degree), "number of ranks that split each layer")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.disable_loss_parallel),
              "under tensor parallelism, exchange whole rows of logits instead of two numbers a token"),
        no_effect("parallelism.enable_sequence_parallel", Type::boolean,
                  "tensor parallelism always splits norms and residuals along the sequence",
                  "split norms and residuals too under tensor parallelism")
            .idle_at({true}),
        works(COEUS_FIELD(parallelism.enable_async_tensor_parallel),
              "under tensor parallelism, exchange tokens in parts, each while the product of another part is "
              "computed"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_degree),
              "number of ranks that split the model into stages of layers")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.module_fqns_per_model_part),
              "modules of each stage: tok_embeddings, layers.0, ..., norm, output; none: divided evenly"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_first_stage_less_layers),
              "what the embedding costs when layers are divided among stages, in layers")
            .obeys(at_least_0),
        works(COEUS_FIELD(parallelism.pipeline_parallel_last_stage_less_layers),
              "what norm and head cost then, in layers")
            .obeys(at_least_0),
        works(COEUS_FIELD(parallelism.pipeline_parallel_layers_per_stage),
              "number of layers of a stage, from which the number of stages follows")
            .obeys(at_least_1)
            .defaults_to("the schedule says 1 or 2 stages on each rank"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_schedule),
              "order of the micro-batches (doc/schedules.md)")
            .one_of({"1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
                     "ZBVZeroBubble", "DualPipeV", "PipelineScheduleSingle", "PipelineScheduleMulti",
                     "_PipelineScheduleRuntime"}),
        works(COEUS_FIELD(parallelism.pipeline_parallel_schedule_csv),
              "file with an order of one's own, in place of the schedule"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_microbatch_size),
              "number of sequences of a micro-batch: a pipeline cuts the local batch into these")
            .obeys(at_least_1),
        dormant(COEUS_FIELD(parallelism.pipeline_parallel_expert_parallel_overlap),
                "parallelism.expert_parallel_degree",
                "under DualPipeV, overlap the exchange of tokens between experts"),
        works(COEUS_FIELD(parallelism.context_parallel_degree), "number of ranks that split each sequence")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.context_parallel_load_balancer),
              "which tokens of a sequence each rank of context parallelism holds: headtail: of 2 x degree "
              "pieces the r-th from the start and the r-th "
              "from the end, which is equal work under a causal mask; none: the r-th of degree pieces")
            .one_of({"headtail", "ptrr", "none"}, {"headtail", "none"}),
        no_effect("parallelism.context_parallel_ptrr_mask_key", Type::text,
                  "ptrr balances by the document mask, which has no name here", "mask that ptrr balances by"),
        works(
            COEUS_FIELD(parallelism.context_parallel_rotate_method),
            "how keys and values travel between these ranks: allgather: all at once; alltoall (torchtitan's "
            "name): a ring, from neighbour to neighbour; heads (Coeus only): an all-to-all from tokens to "
            "heads")
            .one_of({"allgather", "alltoall", "heads"}),
        not_built(COEUS_FIELD(parallelism.expert_parallel_degree), "expert parallelism",
                  "number of ranks that split the experts")
            .obeys(degree),
        dormant(COEUS_FIELD(parallelism.expert_tensor_parallel_degree), "parallelism.expert_parallel_degree",
                "number of ranks that split each expert: 1, or the tensor_parallel_degree")
            .obeys(degree),
        dormant(COEUS_FIELD(parallelism.expert_parallel_comm_backend), "parallelism.expert_parallel_degree",
                "how tokens travel to experts")
            .one_of({"standard", "deepep", "hybridep"}),

        works(
            COEUS_FIELD(activation_checkpoint.mode),
            "what the backward pass computes again instead of keeping it: nothing, what selective_ac_option "
            "says, every block, or as much as memory_budget asks for")
            .one_of({"none", "selective", "full", "memory_budget"}),
        works(COEUS_FIELD(activation_checkpoint.selective_ac_option),
              "for mode selective: op (norms and activation functions), or N: every N-th block whole"),
        no_effect("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", Type::words,
                  pytorch_recompute, "GEMMs that are always computed again"),
        no_effect("activation_checkpoint.early_stop", Type::boolean,
                  "a block's last matrix product is never computed again",
                  "stop once all that is needed is recomputed"),
        works(
            COEUS_FIELD(activation_checkpoint.memory_budget),
            "for mode memory_budget: memory of the activations between that of full (0) and that of none (1)")
            .obeys(fraction),
        no_effect("activation_checkpoint.visualize_memory_budget_pareto", Type::boolean, pytorch_recompute,
                  "draw the trade-off of memory_budget"),
        no_effect("activation_checkpoint.preserve_rng_state", Type::boolean, pytorch_recompute,
                  "use the same random numbers again"),
        no_effect("activation_checkpoint.determinism_check", Type::text, pytorch_recompute,
                  "compare recomputed tensors")
            .one_of({"default", "none"}),
        no_effect("activation_checkpoint.debug", Type::boolean, pytorch_recompute,
                  "record what is recomputed"),

        no_effect("compile.enable", Type::boolean, compiled_ahead, "use torch.compile"),
        no_effect("compile.components", Type::words, compiled_ahead, "parts to compile")
            .one_of({"model", "loss"}),
        no_effect("compile.backend", Type::text, compiled_ahead, "which compiler to use"),

        float8(COEUS_FIELD(quantize.linear.float8.enable_fsdp_float8_all_gather), "gather weights in 8 bits"),
        float8(COEUS_FIELD(quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp),
               "compute the scales of all weights in one exchange"),
        float8(COEUS_FIELD(quantize.linear.float8.recipe_name),
               "granularity of the scales; none is tensorwise")
            .one_of({"tensorwise", "rowwise", "rowwise_with_gw_hp", "none"}),
        float8(COEUS_FIELD(quantize.linear.float8.filter_fqns), "names of layers that stay in 16 bits"),
        float8(COEUS_FIELD(quantize.linear.float8.emulate), "compute 8-bit products in software"),
        float8(COEUS_FIELD(quantize.grouped_mm.float8.fqns), "names of expert layers to compute in 8 bits"),
        no_effect("quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", Type::text, no_mx,
                  "kernel that casts along the first dimension")
            .one_of({"triton", "cuda", "torch"}),
        no_effect("quantize.linear.mx.recipe_name", Type::text, no_mx, "kind of MXFP8"),
        no_effect("quantize.linear.mx.filter_fqns", Type::words, no_mx,
                  "names of layers that stay in 16 bits"),
        no_effect("quantize.grouped_mm.mx.recipe_name", Type::text, no_mx, "kind of MXFP8").one_of({"mxfp8"}),
        no_effect("quantize.grouped_mm.mx.fqns", Type::words, no_mx,
                  "names of expert layers to compute in 8 bits"),
    };
}

}  // namespace coeus::config
