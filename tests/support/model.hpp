// SPDX-License-Identifier: Apache-2.0
// Micro-batches and decoders with everything they need to run, for tests of layers, stages and golden values.
#pragma once

#include "coeus/models/decoder.hpp"
#include "coeus/optim/param_groups.hpp"
#include "coeus/pipeline/stage.hpp"
#include "coeus/plan/layer_memory.hpp"
#include "coeus/state/held_block.hpp"
#include "coeus/state/one_scale_weights.hpp"
#include "support/moments.hpp"

#include <string>
#include <vector>

namespace coeus::test {

/// A micro-batch that owns its memory.
struct TestBatch {
    int64_t sequences = 0, seq_len = 0;
    std::vector<int32_t> tokens, labels, positions;
    std::vector<int32_t> document_start;                  ///< if empty, there is no document mask
    std::vector<int32_t> further_tokens, further_labels;  ///< set by look_ahead()
    ImageRows images;                                     ///< of the owner's memory (support/test_images.hpp)

    /// Random tokens and labels below `vocab`, positions 0, 1, ... in each sequence, no documents.
    TestBatch(int64_t sequences, int64_t seq_len, int64_t vocab, uint64_t seed = 1);
    /// Cuts every sequence into documents of `length` tokens (the last may be shorter). Attention is masked,
    /// and positions restart if requested.
    TestBatch& split_documents(int64_t length, bool restart_positions);
    /// Sets every `n`th label to -100, beginning with the first.
    TestBatch& ignore_every(int64_t n);

    /// Sets the tokens and labels of `depths` further places ahead, from those that are set now.
    TestBatch& look_ahead(int64_t depths);

    int64_t valid_labels() const;
    /// Points into this object.
    Batch view();
    /// Sequences [first, first + count), without positions; points into this object.
    SampleRows local_batch(int64_t first, int64_t count) const;
};

/// Fills the unused rest of an arena or frame with NaN (bytes 0xff).
void poison(Arena& arena, int64_t bytes);
void poison(Frame& frame, int64_t bytes);

/// Forward and backward of a stage that is the whole decoder.
void forward_backward(const Stage& stage, Ctx& c);

/// The elements of a tensor as doubles.
std::vector<double> values(const Tensor& tensor);
bool same_bits(const Tensor& a, const Tensor& b);

/// A decoder with the moments of AdamW, initial weights, and arenas of exactly the planned sizes, filled with
/// NaN before each use.
class TestModel {
public:
    TestModel(const DecoderConfig& config, const StateTypes& types, const BatchShape& shape, int threads = 1,
              uint64_t seed = 1, const std::vector<Recompute>& recompute = {});

    Decoder decoder;
    OneScaleWeights one_scale_weights;
    Stage stage;
    LayerMemory layers;
    Exec exec;
    Frame frame;
    Arena temp;
    StepScalars scalars;
    Kernels kernels = cpu_kernels();  ///< of forward and backward; a test may replace some

    Parameters& parameters() { return decoder.parameters(); }
    const Storage& storage_of(const std::string& parameter) const;
    /// The rows of one parameter in its storage's `kind`, in the shape of the parameter.
    Tensor tensor(const std::string& parameter, const StorageTensor& kind) const;

    /// The blocks of a parameter in its storage's `kind`, which may be several if it is stacked by groups.
    std::vector<HeldBlock> blocks(const std::string& parameter, const StorageTensor& kind) const;
    /// A copy of a parameter, whole and dense.
    OwnedTensor copy(const std::string& parameter, const StorageTensor& kind) const;

    /// Must be called after the master weights were changed.
    void renew_weights();
    void zero_gradients();
    /// Adds loss and gradients of a micro-batch; scalars.loss_scale is not changed.
    void forward_backward(TestBatch& batch);
    void evaluate(TestBatch& batch);
    OwnedTensor logits(TestBatch& batch);
    OwnedTensor last_logits(TestBatch& batch);

private:
    template <class Pass>
    void run(TestBatch& batch, const Pass& pass);
};

/// Small, odd sizes: dim 24, 2 layers, 4 heads of 6 with 2 key/value heads, ffn 20, vocabulary 37.
DecoderConfig tiny_config(int64_t layers = 2, bool tied = false);
/// Kinds of attention, a choice of tests that combine a model with other features: Llama's; norms of heads
/// and biases of queries, keys and values (Qwen 3, Qwen 2); all biases, sinks, and a window in every other
/// layer (gpt-oss); latent attention, with and without latents of queries (DeepSeek V3); chunks, norms after
/// RoPE, and a temperature in every other layer, which has no RoPE (Llama 4); norms of all heads together and
/// after the sublayers (OLMo 2); norms of heads and around the sublayers that add 1 to their weights (Gemma
/// 3).
inline constexpr int attention_kinds = 8;
void set_attention(DecoderConfig& model, int kind);
/// Widths of which products in 8 bits take all, for a kind of attention and of experts.
DecoderConfig config_of_16s(int attention = 0, int experts = 0);
/// True if a norm or an activation of the model also writes its result rounded, for the linear layer after
/// it. None does if the residual path enters attention, or it shares a norm with the feed-forward layer, and
/// experts, whose inputs have kernels of their own, are in all layers without others beside them that have no
/// gate.
bool has_rounded_inputs(const DecoderConfig& config);
/// Windows, layers without RoPE and experts in irregular choices of layers: "110" of each three, or a list.
void set_layer_choices(DecoderConfig& model, const std::string& word = "110");
/// Norms: those of the kind of attention; after the sublayers; around them, with 1 added to their weights;
/// LayerNorm.
inline constexpr int norm_kinds = 4;
void set_norms(DecoderConfig& model, int kind);
/// RoPE of half of the columns of each head (GLM, Phi), unless attention is latent.
void set_rope_part(DecoderConfig& model);
/// Another RoPE in layers with a window, which every other layer gets if there is none, and a temperature in
/// all layers (Gemma 3, Ministral 3), unless attention is latent.
void set_two_ropes(DecoderConfig& model);
/// Kinds of experts: none; in all layers, with a normalised softmax (Qwen 3); after a dense layer, with
/// shared experts, a sigmoid that keeps 2 of 3 groups, and a loss that balances sequences (DeepSeek V3); in
/// all layers, with biases, also of the router, and a clamped activation function (gpt-oss); in every other
/// layer, one of 5 by a sigmoid that multiplies its input, with a shared one (Llama 4); in all layers, with
/// GELU and a shared one that has a gate (Qwen 2 MoE).
inline constexpr int expert_kinds = 6;
void set_experts(DecoderConfig& model, int kind);
/// Factors of the embedding, of sublayers, of attention's scores (not of latent attention) and of logits
/// (Granite, Cohere). Not of sublayers that have norms only after them.
void set_scales(DecoderConfig& model);
/// Attention and feed-forward layer side by side (Cohere), unless there are norms after them.
void set_parallel(DecoderConfig& model);

}  // namespace coeus::test
