// SPDX-License-Identifier: Apache-2.0
// Options of how the model is spread over ranks and what is recomputed.
#include "option.hpp"

namespace coeus::config {

std::vector<Option> parallel_options() {
    return {
        works(COEUS_FIELD(parallelism.data_parallel_replicate_degree), to_nothing,
              "number of copies of the weights, each of which sees its own sequences")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.data_parallel_shard_degree), to_nothing,
              "number of ranks that share one copy of the weights (FSDP); -1: what the other degrees leave")
            .obeys(degree_or_rest),
        works(COEUS_FIELD(parallelism.fsdp_reshard_after_forward), to_nothing,
              "give gathered weights back after the forward pass; default: unless there is a pipeline")
            .one_of({"default", "always", "never"}),
        works(COEUS_FIELD(parallelism.tensor_parallel_degree), to_nothing,
              "number of ranks that split each layer")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.disable_loss_parallel), to_nothing,
              "under tensor parallelism, exchange whole rows of logits instead of two numbers a token"),
        works(COEUS_FIELD(parallelism.enable_async_tensor_parallel), to_nothing,
              "under tensor parallelism, exchange tokens in parts, each while the product of another part is "
              "computed"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_degree), to_nothing,
              "number of ranks that split the model into stages of layers")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.module_fqns_per_model_part), to_nothing,
              "modules of each stage: tok_embeddings, layers.0, ..., norm, output; none: divided evenly"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_first_stage_less_layers), to_nothing,
              "what the embedding costs when layers are divided among stages, in layers")
            .obeys(at_least_0),
        works(COEUS_FIELD(parallelism.pipeline_parallel_last_stage_less_layers), to_nothing,
              "what norm and head cost then, in layers")
            .obeys(at_least_0),
        works(COEUS_FIELD(parallelism.pipeline_parallel_layers_per_stage), to_nothing,
              "number of layers of a stage, from which the number of stages follows")
            .obeys(at_least_1)
            .defaults_to("the schedule says 1 or 2 stages on each rank"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_schedule), to_nothing,
              "order of the micro-batches (doc/schedules.md)")
            .one_of({"1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
                     "ZBVZeroBubble", "DualPipeV", "PipelineScheduleSingle", "PipelineScheduleMulti",
                     "_PipelineScheduleRuntime"}),
        works(COEUS_FIELD(parallelism.pipeline_parallel_schedule_csv), to_nothing,
              "file with an order of one's own, in place of the schedule"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_microbatch_size), to_nothing,
              "number of sequences of a micro-batch: a pipeline cuts the local batch into these")
            .obeys(at_least_1),
        works(COEUS_FIELD(parallelism.context_parallel_degree), to_nothing,
              "number of ranks that split each sequence")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.context_parallel_load_balancer), to_nothing,
              "which tokens of a sequence each rank of context parallelism holds: headtail: of 2 x degree "
              "pieces the r-th from the start and the r-th "
              "from the end, which is equal work under a causal mask; none: the r-th of degree pieces")
            .one_of({"headtail", "ptrr", "none"}, {"headtail", "none"}),
        works(
            COEUS_FIELD(parallelism.context_parallel_rotate_method), to_nothing,
            "how keys and values travel between these ranks: allgather: all at once; alltoall (torchtitan's "
            "name): a ring, from neighbour to neighbour; heads (Coeus only): an all-to-all from tokens to "
            "heads")
            .one_of({"allgather", "alltoall", "heads"}),
        not_built(COEUS_FIELD(parallelism.expert_parallel_degree), to_nothing, "expert parallelism",
                  "number of ranks that split the experts")
            .obeys(degree),
        dormant(COEUS_FIELD(parallelism.expert_tensor_parallel_degree), to_nothing,
                "parallelism.expert_parallel_degree",
                "number of ranks that split each expert: 1, or the tensor_parallel_degree")
            .obeys(degree),

        works(
            COEUS_FIELD(activation_checkpoint.mode), to_nothing,
            "what the backward pass computes again instead of keeping it: nothing, what selective_ac_option "
            "says, every block, or as much as memory_budget asks for")
            .one_of({"none", "selective", "full", "memory_budget"}),
        works(COEUS_FIELD(activation_checkpoint.selective_ac_option), to_nothing,
              "for mode selective: op (norms and activation functions), or N: every N-th block whole"),
        works(
            COEUS_FIELD(activation_checkpoint.memory_budget), to_nothing,
            "for mode memory_budget: memory of the activations between that of full (0) and that of none (1)")
            .obeys(fraction),
    };
}

}  // namespace coeus::config
