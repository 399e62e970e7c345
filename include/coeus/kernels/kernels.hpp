// SPDX-License-Identifier: Apache-2.0
// The table of kernels: the only contract between layers and hardware.
//
// Order of arguments: Exec, outputs, inputs, scalars. Every entry is deterministic (no float atomics; sums in
// an order that does not depend on the number of threads), allocates nothing but Exec's workspace, and writes
// all of its output whatever was there before. In place only where it says so. Tensors are matrices of rows
// `ld` apart.
//   T tokens of the micro-batch (batch x sequence, flattened)   D model width    O, I outputs and inputs of a
//   linear layer H query heads   K key/value heads   d, e head widths of keys and of values   F feed-forward
//   width   V vocabulary "type": the compute type, f64, f32 or bf16, the same for all operands; "acc": f64
//   with f64, f32 otherwise.
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/kernels/sequence_part.hpp"
#include "coeus/kernels/step_scalars.hpp"

namespace coeus {

/// A matrix operand of gemm, as it is or transposed.
struct Operand {
    Tensor tensor;
    bool is_transposed = false;
    Operand(Tensor t, bool is = false)
        : tensor(t), is_transposed(is) {}  // NOLINT: implicit, so that calls read well
};
inline Operand transposed(Tensor t) {
    return {t, true};
}

/// Adjacent pairs (2j, 2j+1), as torchtitan stores Llama; or halves (j, j + d/2), as Hugging Face does.
enum class RopeLayout : uint8_t { interleaved, half_split };

/// Tensor-parallel ranks divide the vocabulary: this one's rows of a table, or columns of logits, are the
/// tokens from `first` on, of `total`.
struct VocabularyPart {
    int64_t first = 0, total = 0;
};

struct AttentionShape {
    int64_t batch = 1, sequence = 1;  ///< T = batch * sequence queries; sequences do not see each other
    int64_t heads = 1, kv_heads = 1;  ///< query head h uses key/value head h / (heads / kv_heads)
    int64_t head_dim = 1;             ///< width of a head of q and k
    double scale = 1;                 ///< of the scores, usually head_dim^-1/2
    /// Where the queries and the keys of each sequence are in the whole one; without a count: all of it.
    SequencePart query_part = {}, key_part = {};
    int64_t value_dim = 0;  ///< width of a head of v and out; 0: head_dim

    constexpr int64_t value_width() const { return value_dim ? value_dim : head_dim; }
    constexpr SequencePart queries() const { return query_part.count ? query_part : SequencePart{sequence}; }
    constexpr SequencePart keys() const { return key_part.count ? key_part : SequencePart{sequence}; }
};

/// Index in its sequence of the first key that the query at `index` sees; the last one is its own. All masks
/// but the causal one are read here. It never decreases from one query to the next: kernels skip keys by
/// that. `document_start`: of the whole sequence, or null.
constexpr int64_t first_key(const AttentionShape&, const int32_t* document_start, int64_t index) {
    return document_start ? document_start[index] : 0;
}
/// Whether the first key of some query may be another than 0.
constexpr bool hides_early_keys(const AttentionShape&, const int32_t* document_start) {
    return document_start != nullptr;
}

/// One parameter, or rows of one, as the optimizer sees it. All of equal count.
struct AdamTensors {
    Tensor master;      ///< weights, f64, f32 or bf16 (stochastic rounding)
    Tensor exp_avg;     ///< first moment, type of master; or bf16, rounded to nearest, where that is f32
    Tensor exp_avg_sq;  ///< second moment, of the same type
    Tensor grad;        ///< acc; read only
    Tensor compute;     ///< optional: the weights in the compute type, written in the same pass
};
struct AdamOptions {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    bool decoupled = true;  ///< AdamW; false: Adam, decay added to the gradient
    uint64_t seed = 0;      ///< of stochastic rounding (bf16 master)
    size_t group = 0;       ///< whose scalars of the step are its own
};
/// Where the elements of a call are in their parameter: what is drawn for one depends on that alone.
struct ElementPlace {
    uint64_t stream = 0;       ///< of the parameter's random numbers
    uint64_t first_index = 0;  ///< global index of the first element
    int64_t run = 0;           ///< so many elements have consecutive global indices; 0: all
    uint64_t stride = 0;       ///< from the first index of a run to that of the next
};

struct MomentumOptions {
    double momentum = 0.95;
    bool nesterov = true;
};
/// A step of weights along a direction.
struct DescentOptions {
    double weight_decay = 0.1;
    double factor = 1;  ///< of the learning rate, but not where the decay uses it
    uint64_t seed = 0;  ///< of stochastic rounding (bf16 master)
    size_t group = 0;   ///< whose scalars of the step are its own
};

struct Kernels {
    const char* name;
    /// Output of a product, in bytes, beyond which larger chunks of rows gain nothing: the next calls would
    /// not find more in a cache, or the other operand is read seldom enough. For callers that may cut rows
    /// into chunks as they like.
    int64_t chunk_bytes;
    /// Rows of a product with a transposed weight that pass through memory with one reading of it: the most
    /// tokens to generate side by side. On a CPU no bit of such a row depends on the others.
    int64_t thin_rows;

    /// d = op(a) op(b) + c. a, b: type; d: type or acc; c: absent, d itself (accumulate), or a tensor like d
    /// (residual).
    void (*gemm)(Exec&, Tensor d, Operand a, Operand b, Tensor c);

    /// y[T,D] = table[tokens[T], D]; zero for tokens outside the part
    void (*embedding)(Exec&, Tensor y, Tensor tokens, Tensor table, VocabularyPart part);
    /// dtable[V,D] (acc) += dy[T,D] by token, of those in the part
    void (*embedding_backward)(Exec&, Tensor dtable, Tensor dy, Tensor tokens, VocabularyPart part);

    /// y = x rstd w; rstd[T] (acc) = (mean x^2 + eps)^-1/2 is kept for the backward. Zhang and Sennrich 2019.
    void (*rms_norm)(Exec&, Tensor y, Tensor rstd, Tensor x, Tensor weight, double eps);
    /// dx = plus + J^T dy, dweight[D] (acc) += sum over T; absent for a frozen weight. `plus` is the gradient
    /// that comes by the residual path (optional); dx may be plus or dy.
    void (*rms_norm_backward)(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor rstd,
                              Tensor weight);
    /// y = (x - mean) rstd w; the weight is optional, there is no bias. mean, rstd [T] (acc) are kept.
    void (*layer_norm)(Exec&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps);
    /// As rms_norm_backward; dweight absent also where the weight is.
    void (*layer_norm_backward)(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                                Tensor mean, Tensor rstd, Tensor weight);

    /// Rotates pairs of each head of x[T, n d] in place by the angles of row positions[t] (i32[T]) of
    /// table[S, d] (acc; cos and sin of pair j at 2j and 2j+1). `inverse` rotates back: the backward.
    void (*rope)(Exec&, Tensor x, Tensor table, Tensor positions, int64_t head_dim, RopeLayout layout,
                 bool inverse);

    /// Causal attention: the query at index i of its sequence sees those of the keys that are at first_key to
    /// i. q[T,Hd], k[N,Kd], v[N,Ke] may be columns of one matrix; N = batch * keys().count. out[T,He]: type
    /// or acc. lse[H,T] (acc): log of the sum of exp of the scores; -infinity, and zeros in out, where a
    /// query sees no key. document_start i32[batch, whole sequence], optional. Never holds a sequence x
    /// sequence matrix (Dao et al. 2022).
    void (*attention)(Exec&, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                      const AttentionShape& shape);
    /// out[T,He], lse[H,T] (acc both): attention to more keys, from the results for one part of the keys,
    /// which they hold, and for another part.
    void (*merge_attention)(Exec&, Tensor out, Tensor lse, Tensor other_out, Tensor other_lse);
    /// out and lse are those of all keys that the queries see, wherever the others are. dq, dk, dv: each of
    /// the type or acc; the gradients take the place of what was there, or are added. Those that take its
    /// place may be the memory of q, k, v.
    void (*attention_backward)(Exec&, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                               Tensor q, Tensor k, Tensor v, Tensor document_start,
                               const AttentionShape& shape, bool accumulate);

    /// Attention of one new token for each of B sequences over what a cache holds of them. keys, values
    /// [sequences kept * shape.sequence, K d and K e]: rows of a sequence follow each other. k[B, K d] and
    /// v[B, K e] are written to row positions[b] of sequence slots[b] (i32[B] both, slots all different),
    /// then q[B, H d] sees rows first_key to positions[b]; out[B, H e]. shape.batch = B. The bits of a
    /// sequence do not depend on the others.
    void (*attention_cached)(Exec&, Tensor out, Tensor keys, Tensor values, Tensor q, Tensor k, Tensor v,
                             Tensor slots, Tensor positions, const AttentionShape& shape);

    /// y[T,F] = silu(g) u, gate_up[T,2F] = [g | u]. Shazeer 2020.
    void (*swiglu)(Exec&, Tensor y, Tensor gate_up);
    /// dgate_up may be gate_up.
    void (*swiglu_backward)(Exec&, Tensor dgate_up, Tensor dy, Tensor gate_up);

    /// Of each row of logits[T,V]: lse[T] (acc) = log sum exp, and at_label[T] (acc) = the label's logit, 0
    /// where that is outside the part.
    void (*log_sum_exp)(Exec&, Tensor lse, Tensor at_label, Tensor logits, Tensor labels,
                        VocabularyPart part);
    /// lse[T] = log sum over p of exp parts[p,T] (acc): of the whole vocabulary from those of its parts.
    void (*add_log_sum_exp)(Exec&, Tensor lse, Tensor parts);
    /// losses[T] (acc) = scale * (lse - at_label), 0 where the label is -100. dlogits (optional, may be
    /// logits): its gradient, of the columns of the part. scale: `scalars.loss_scale`.
    void (*cross_entropy)(Exec&, Tensor losses, Tensor dlogits, Tensor logits, Tensor labels, Tensor lse,
                          Tensor at_label, VocabularyPart part, const StepScalars& scalars);

    /// out = a, converted.
    void (*cast)(Exec&, Tensor out, Tensor a);
    /// out += a, in the type of out (acc), for gradient sums.
    void (*add)(Exec&, Tensor out, Tensor a);
    /// out = sum over p of the parts [P rows of out, ..], one after the other, in their order, in acc.
    void (*sum_parts)(Exec&, Tensor out, Tensor parts);
    void (*zero)(Exec&, Tensor out);
    /// *out += sum of the elements, in double.
    void (*sum)(Exec&, double* out, Tensor a);
    /// *out += sum of the squares, in double.
    void (*sum_of_squares)(Exec&, double* out, Tensor a);

    /// grad_norm, clip and refusals of the scalars from squared_norm and loss. max_norm <= 0: no clipping.
    void (*finish_norm)(Exec&, StepScalars& scalars, double max_norm);
    /// One pass: clips, updates moments and weights, writes the compute copy. Nothing is written where
    /// scalars.refusals is not 0. Kingma and Ba 2015; Loshchilov and Hutter 2019.
    void (*adam)(Exec&, const AdamTensors& tensors, const AdamOptions& options, const ElementPlace& place,
                 const StepScalars& scalars);

    /// buffer = mu buffer + (1 - mu) g, where g = clip * direction; then direction = buffer, or with
    /// Nesterov's look ahead (1 - mu) g + mu buffer. Both acc. Nothing is written where scalars.refusals is
    /// not 0. Sutskever et al. 2013.
    void (*momentum)(Exec&, Tensor buffer, Tensor direction, const MomentumOptions& options,
                     const StepScalars& scalars);
    /// x = x / max(norm, smallest), in place, where norm = sqrt(*squared_norm) in the type of x.
    void (*normalize)(Exec&, Tensor x, const double* squared_norm, double smallest);
    /// out = alpha a + beta b. out, a: type; b: acc. out may be a.
    void (*scaled_sum)(Exec&, Tensor out, double alpha, Tensor a, double beta, Tensor b);
    /// master = (1 - rate decay) master - rate factor direction (acc); `compute` (optional) is written in the
    /// same pass. Nothing is written where scalars.refusals is not 0.
    void (*descend)(Exec&, Tensor master, Tensor direction, Tensor compute, const DescentOptions& options,
                    const ElementPlace& place, const StepScalars& scalars);
};

/// The names of all entries, once: DO(name) for each. What every entry needs in the same form (the
/// declarations of a backend's functions, the tables, the functions of a planning run that do nothing) is
/// made of this list.
// clang-format off
#define COEUS_EACH_KERNEL(DO) \
    DO(gemm) DO(embedding) DO(embedding_backward) \
    DO(rms_norm) DO(rms_norm_backward) DO(layer_norm) DO(layer_norm_backward) DO(rope) \
    DO(attention) DO(merge_attention) DO(attention_backward) DO(attention_cached) DO(swiglu) DO(swiglu_backward) \
    DO(log_sum_exp) DO(add_log_sum_exp) DO(cross_entropy) \
    DO(cast) DO(add) DO(sum_parts) DO(zero) DO(sum) DO(sum_of_squares) DO(finish_norm) DO(adam) \
    DO(momentum) DO(normalize) DO(scaled_sum) DO(descend)
// clang-format on
#define COEUS_COUNT_KERNEL(name) +1
static_assert(sizeof(Kernels) == sizeof(const char*) + 2 * sizeof(int64_t) +
                                     (0 COEUS_EACH_KERNEL(COEUS_COUNT_KERNEL)) * sizeof(void*),
              "COEUS_EACH_KERNEL names every entry of Kernels");
#undef COEUS_COUNT_KERNEL

/// f64, f32 and bf16 on the CPU; in f64 the oracle of all others.
const Kernels& cpu_kernels();
/// f32 and bf16 on a GPU, whose memory the tensors and Exec's workspace are in. SystemError where the program
/// was built without CUDA.
const Kernels& cuda_kernels();
/// No-ops that note the workspace the CPU's kernels would need: for planning.
const Kernels& dry_kernels();
/// The same for those of a GPU.
const Kernels& dry_cuda_kernels();

/// Those of a backend, and their planning ones.
const Kernels& kernels_of(Backend backend);
const Kernels& dry_kernels_of(Backend backend);

/// What the libraries of matrix products take for themselves while a model trains in this type on a CPU,
/// measured: kernels that oneDNN compiles and pages of its code, or buffers of OpenBLAS.
int64_t gemm_library_bytes(Dtype compute);

}  // namespace coeus
