// SPDX-License-Identifier: Apache-2.0
// Options that distribute the model over ranks, and options of activation checkpointing.
#include "option.hpp"

namespace coeus::config {

std::vector<Option> parallel_options() {
    return {
        works(COEUS_FIELD(parallelism.data_parallel_replicate_degree), to_nothing,
              "Number of replicas of the weights. Each replica processes other sequences")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.data_parallel_shard_degree), to_nothing,
              "Number of ranks over which the weights of a replica are sharded (FSDP). -1: all ranks that "
              "the other degrees leave")
            .obeys(degree_or_rest),
        works(COEUS_FIELD(parallelism.fsdp_reshard_after_forward), to_nothing,
              "Free the gathered weights after the forward pass and gather them again for the backward pass. "
              "`default`: only without pipeline parallelism")
            .one_of({"default", "always", "never"}),
        works(COEUS_FIELD(parallelism.fsdp_sum_gradients), to_nothing,
              "Coeus only: when the gradients of sharded weights are summed over the ranks. `local_batch`: "
              "after each local batch, so that two units (blocks) have whole gradients at a time. `step`: "
              "once, "
              "in the last local batch, so that a rank exchanges less and has whole gradients of all units. "
              "`default`: `step` with pipeline parallelism, otherwise `local_batch`")
            .one_of({"default", "local_batch", "step"}),
        works(
            COEUS_FIELD(parallelism.fsdp_prefetch), to_nothing,
            "Coeus only: how many units (embedding, blocks, head) are gathered ahead of the one that is "
            "computed. 2 hides slower gathers, and takes the memory of one more block. No effect if gathered "
            "weights are kept (`parallelism.fsdp_reshard_after_forward`)")
            .obeys(one_or_two),
        works(COEUS_FIELD(parallelism.tensor_parallel_degree), to_nothing,
              "Number of ranks that split each layer")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.disable_loss_parallel), to_nothing,
              "With tensor parallelism: gather all logits of a token on each rank for the loss, instead of "
              "exchanging two numbers per token"),
        works(COEUS_FIELD(parallelism.enable_async_tensor_parallel), to_nothing,
              "With tensor parallelism: exchange tokens in parts, each part while the matrix product of "
              "another is computed"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_degree), to_nothing,
              "Number of ranks of a pipeline. Each has one or more stages, which are consecutive layers of "
              "the model")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.module_fqns_per_model_part), to_nothing,
              "Modules of each stage: `tok_embeddings`, `layers.0`, ..., `norm`, `output`. Empty: the layers "
              "are divided evenly"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_first_stage_less_layers), to_nothing,
              "Cost of the embedding, in layers, when the layers are divided evenly among stages")
            .obeys(at_least_0),
        works(COEUS_FIELD(parallelism.pipeline_parallel_last_stage_less_layers), to_nothing,
              "Cost of the last norm and the head, in layers, when the layers are divided evenly")
            .obeys(at_least_0),
        works(COEUS_FIELD(parallelism.pipeline_parallel_layers_per_stage), to_nothing,
              "Number of layers of a stage. It determines the number of stages")
            .obeys(at_least_1)
            .defaults_to("1 or 2 stages on each rank, as the schedule requires"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_schedule), to_nothing,
              "Order in which a pipeline processes micro-batches (doc/schedules.md)")
            .one_of({"1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
                     "ZBVZeroBubble", "DualPipeV", "PipelineScheduleSingle", "PipelineScheduleMulti",
                     "_PipelineScheduleRuntime"}),
        works(COEUS_FIELD(parallelism.pipeline_parallel_schedule_csv), to_nothing,
              "CSV file with your own schedule, which replaces `parallelism.pipeline_parallel_schedule`"),
        works(COEUS_FIELD(parallelism.pipeline_parallel_microbatch_size), to_nothing,
              "Number of sequences of a micro-batch. A pipeline divides the local batch into micro-batches")
            .obeys(at_least_1),
        works(COEUS_FIELD(parallelism.context_parallel_degree), to_nothing,
              "Number of ranks that split each sequence")
            .obeys(degree),
        works(
            COEUS_FIELD(parallelism.context_parallel_load_balancer), to_nothing,
            "Which tokens of a sequence each context-parallel rank has. `headtail`: the sequence is cut into "
            "2 x degree pieces, and rank r has the r-th piece from the start and the r-th from the end. With "
            "a causal mask, this is equal work for all ranks. `none`: rank r has the r-th of degree pieces. "
            "`ptrr`: as `none`, and only with `parallelism.context_parallel_rotate_method = \"heads\"`, with "
            "which any mask is equal work for all ranks")
            .one_of({"headtail", "ptrr", "none"}),
        works(COEUS_FIELD(parallelism.context_parallel_rotate_method), to_nothing,
              "How these ranks exchange keys and values. `allgather`: all at once. `alltoall` (torchtitan's "
              "name): in a ring, from neighbour to neighbour. `heads` (Coeus only): an all-to-all that "
              "changes from a division by tokens to one by heads")
            .one_of({"allgather", "alltoall", "heads"}),
        works(COEUS_FIELD(parallelism.expert_parallel_degree), to_nothing,
              "Number of ranks that divide the experts. It must divide data_parallel_shard_degree x "
              "context_parallel_degree x tensor_parallel_degree / expert_tensor_parallel_degree, and the "
              "number of experts")
            .obeys(degree),
        works(COEUS_FIELD(parallelism.expert_tensor_parallel_degree), to_nothing,
              "With `parallelism.expert_parallel_degree` above 1: number of ranks that divide each expert, 1 "
              "or `parallelism.tensor_parallel_degree`. Otherwise the tensor-parallel ranks do")
            .obeys(degree),
        works(
            COEUS_FIELD(parallelism.pipeline_parallel_expert_parallel_overlap), to_nothing,
            "If a schedule has pairs (`DualPipeV`) and several ranks divide the experts: the forward and the "
            "backward of a pair take turns, so that one computes while the other exchanges tokens. No effect "
            "with `fsdp_reshard_after_forward = \"always\"` or `training.enable_cpu_offload`"),
        works(
            COEUS_FIELD(parallelism.expert_parallel_overlap), to_nothing,
            "If several ranks divide the experts: the two halves of a local batch take turns, so that one "
            "computes while the rows of the other travel between these ranks. For an even "
            "`training.local_batch_size`, without a pipeline and without `training.enable_cpu_offload`. "
            "Results are those of half of `training.local_batch_size` with twice the number of local batches "
            "in a step"),

        works(COEUS_FIELD(activation_checkpoint.mode), to_nothing,
              "Which activations the backward pass recomputes, instead of keeping them. `none`: none. "
              "`selective`: those that `activation_checkpoint.selective_ac_option` selects. `full`: those of "
              "every block. `memory_budget`: as many as `activation_checkpoint.memory_budget` requires")
            .one_of({"none", "selective", "full", "memory_budget"}),
        works(COEUS_FIELD(activation_checkpoint.selective_ac_option), to_nothing,
              "For mode `selective`. `op`: recompute norms and activation functions. A number N: recompute "
              "every N-th block completely"),
        works(COEUS_FIELD(activation_checkpoint.memory_budget), to_nothing,
              "For mode `memory_budget`: memory for activations, from 0 (as much as mode `full` needs) to 1 "
              "(as much as mode `none` needs)")
            .obeys(fraction),
    };
}

}  // namespace coeus::config
