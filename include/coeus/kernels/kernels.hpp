// SPDX-License-Identifier: Apache-2.0
// Kernels: the table of kernels, the only contract between layers and hardware.
//
// The arguments are in this order: Exec, outputs, inputs, scalars. Every kernel is deterministic (no float
// atomics; sums in an order that does not depend on the number of threads), allocates only from Exec's
// workspace, and overwrites its whole output. It works in place only if its comment says so. Tensors are
// matrices whose rows are `ld` elements apart. The comments use these letters and words:
//   T      tokens of the micro-batch (batch x sequence, flattened)
//   D      model width
//   O, I   outputs and inputs of a linear layer
//   H, K   query heads, key/value heads
//   d, e   width of a head of keys (and queries), of a head of values
//   F      feed-forward width
//   V      vocabulary
//   type   the compute type: f64, f32 or bf16, the same for all operands
//   acc    the type of sums: f64 if the type is f64, otherwise f32
#pragma once

#include "coeus/device/exec.hpp"
#include "coeus/kernels/attention_shape.hpp"
#include "coeus/kernels/init.hpp"
#include "coeus/kernels/quantization.hpp"
#include "coeus/kernels/routing.hpp"
#include "coeus/kernels/sequence_part.hpp"
#include "coeus/kernels/step_scalars.hpp"

namespace coeus {

/// The type of sums over operands of a type (acc).
constexpr Dtype acc_of(Dtype type) {
    return type == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

/// A matrix operand of gemm, plain or transposed.
struct Operand {
    Tensor tensor;
    bool is_transposed = false;
    Operand(Tensor t = {}, bool is = false)
        : tensor(t), is_transposed(is) {}  // NOLINT: implicit, so that calls read well
    int64_t rows() const { return is_transposed ? tensor.cols() : tensor.rows(); }
    int64_t cols() const { return is_transposed ? tensor.rows() : tensor.cols(); }
    /// Columns [first, first + count).
    Operand slice_cols(int64_t first, int64_t count) const {
        return {is_transposed ? tensor.slice_rows(first, count) : tensor.slice_cols(first, count),
                is_transposed};
    }
};
inline Operand transposed(Tensor t) {
    return {t, true};
}
inline Operand transposed(const Operand& x) {
    return {x.tensor, !x.is_transposed};
}

/// Which elements of a head are rotated together: adjacent pairs (2j, 2j+1), as torchtitan stores Llama, or
/// halves (j, j + d/2), as Hugging Face does.
enum class RopeLayout : uint8_t { interleaved, half_split };

/// The part of each head that RoPE rotates: the columns [first, first + width).
struct RopeShape {
    int64_t head_dim = 2, first = 0, width = 2;
    RopeLayout layout = RopeLayout::interleaved;

    /// All columns of a head.
    static constexpr RopeShape whole(int64_t head_dim, RopeLayout layout) {
        return {head_dim, 0, head_dim, layout};
    }
};

/// The heads of multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1), and the widths of
/// their parts: keys without and with RoPE, and values.
struct LatentShape {
    int64_t heads = 1, nope = 1, rope = 2, value = 1;
};

/// Constants of RMSNorm.
struct NormForm {
    double eps;         ///< added to the mean square
    double offset = 0;  ///< added to the weight: 1 in Gemma
    NormForm(double eps_, double offset_ = 0) : eps(eps_), offset(offset_) {}  // NOLINT: implicit
};

/// The part of a vocabulary that this rank has if tensor-parallel ranks divide it: its rows of a table, or
/// columns of logits, belong to the tokens from `first` on, out of `total` tokens. `scale`, above 0,
/// multiplies the rows that are looked up; or a kernel's logits, so that the true ones are scale times those
/// given.
struct VocabularyPart {
    int64_t first = 0, total = 0;
    double scale = 1;
};

/// One parameter, or rows of one, as the optimizer updates it. All tensors have the same number of elements.
struct AdamTensors {
    Tensor master;   ///< master weights: f64, f32, or bf16 with stochastic rounding
    Tensor exp_avg;  ///< first moment, in the type of master; or bf16, rounded to nearest, if master is f32
    Tensor exp_avg_sq;  ///< second moment, in the same type
    Tensor grad;        ///< gradient: acc, or bf16 if the weights are computed with in bf16; only read
    Tensor compute;     ///< optional: the weights in the compute type, written in the same pass
};
/// Options of Adam and AdamW.
struct AdamOptions {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    double decay =
        0;  ///< decay * weight is added to the gradient (Adam); AdamW has GroupScalars::weight_decay
    uint64_t seed = 0;  ///< seed of stochastic rounding (bf16 master)
    size_t group = 0;   ///< parameter group, whose scalars in StepScalars are used
};
/// Where the elements of a call are in their parameter. The random bits of an element depend only on this.
struct ElementPlace {
    uint64_t stream = 0;       ///< of the parameter's random numbers
    uint64_t first_index = 0;  ///< global index of the first element
    int64_t run = 0;           ///< number of elements with consecutive global indices (a run); 0: all
    uint64_t stride = 0;       ///< distance from the first index of one run to that of the next
};

/// Options of momentum.
struct MomentumOptions {
    double momentum = 0.95;
    bool nesterov = true;
};
/// Options of a step of the weights along a direction.
struct DescentOptions {
    double factor = 1;  ///< multiplies the learning rate in the step, but not in the decay
    uint64_t seed = 0;  ///< seed of stochastic rounding (bf16 master)
    size_t group = 0;   ///< parameter group, whose scalars in StepScalars are used
};

/// The kernels of one backend as function pointers, and sizes that callers adapt to.
struct Kernels {
    const char* name;
    /// Most rows with which a product with a transposed weight reads the weight only once, and so the most
    /// texts that get their next tokens together. On a CPU the bits of such a row do not depend on the other
    /// rows.
    int64_t thin_rows;
    /// A matrix that products read or write should have rows a multiple of so many elements apart. cuBLASLt's
    /// fastest kernels (TMA) take only distances and addresses that are multiples of 16 bytes.
    int64_t row_multiple;
    /// True if products in 8 bits also take operands as their values in bfloat16 (quantize_values). A backend
    /// without such products has to decode operands, and this is done once for all products of an operand.
    bool takes_values;
    /// Most bytes of a row that a kernel can write rounded as well (Tensor::rounded): the whole row must have
    /// been computed before its scale is known.
    int64_t most_row_bytes;
    /// d = op(a) op(b) + c. a, b: type, or both bf16 (values). d: type or acc. c: absent, d itself
    /// (accumulate), or a tensor of d's shape and type (residual).
    void (*gemm)(Exec&, Tensor d, Operand a, Operand b, Tensor c);

    // Matrices in 8 bits (quantization.hpp). A maximum is the bits of a float32 without its sign, i32: they
    // are ordered like the numbers, with NaN above all. So a maximum does not depend on an order.

    /// bits = the larger of bits and the largest |float(x)| of each group (one, rows, cols; shapes as in
    /// ScaleGroups). x: type or acc. `experts` (optional): the groups of rows of x that have columns of their
    /// own. Without them, the matrices of x[G,R,C] have columns of their own. Kernels that find the largest
    /// magnitude of their result y do so with y.largest as `bits` of groups one, if it is given.
    void (*largest_magnitudes)(Exec&, Tensor bits, Tensor x, ScaleGroups groups, const Groups& experts);
    /// q = x / scale, clamped and rounded to nearest even, and its scales by `rule`: s = largest number / the
    /// group's largest magnitude, q = float(x) s, scale = 1 / s. bits: the largest magnitudes; absent for
    /// blocks, and for rows if their largest magnitudes are those of x. x may have no rows: then only the
    /// scales are written. A single scale is not written if q has no room for it. `experts` as before; the
    /// padding of groups is zero in q.
    void (*quantize)(Exec&, Tensor q, Tensor x, Tensor bits, ScaleRule rule, const Groups& experts);
    /// transposed[C,R] = the transpose of the codes that quantize would write with groups one or cols, with
    /// one scale or one for each of its rows. q[R,C] (optional; only with one scale): the codes as they are,
    /// in the same pass; its scale is not written. bits: one, or [C].
    void (*quantize_transposed)(Exec&, Tensor transposed, Tensor q, Tensor x, Tensor bits, ScaleRule rule);
    /// y (bf16) = the values of what quantize would write in `form`. y.groups = groups_of_values(form): if
    /// there is one scale that is not a power of two, y is without it, and it is written to y.scale. Several
    /// such scales: LogicError. bits: as for quantize. Only if takes_values.
    /// Kernels that round their result y also write what these two would make of it in rows_form, if
    /// y.rounded is given.
    void (*quantize_values)(Exec&, Tensor y, Tensor x, Tensor bits, const Form& form);
    /// y = the values of q. y: type or acc.
    void (*dequantize)(Exec&, Tensor y, Tensor q);
    /// Like gemm, for a and b of 8-bit floats, or of values if takes_values. Their groups are one, those
    /// along what is not summed, or blocks along what is summed. All scales are powers of two unless both
    /// operands have one. `fast`: the sums may be as short as a GPU's fast accumulation makes them.
    void (*scaled_gemm)(Exec&, Tensor d, Operand a, Operand b, Tensor c, bool fast);

    /// y[T,D] = part.scale table[tokens[T], D]; zero for tokens outside the part.
    void (*embedding)(Exec&, Tensor y, Tensor tokens, Tensor table, VocabularyPart part);
    /// dtable[V,D] (acc) += part.scale dy[T,D], added by token; tokens outside the part are skipped.
    void (*embedding_backward)(Exec&, Tensor dtable, Tensor dy, Tensor tokens, VocabularyPart part);

    /// y = plus + x rstd (offset + w). rstd[T] (acc) = (mean x^2 + eps)^-1/2 is kept for the backward. `plus`
    /// is the residual path (optional), and y may be plus. Finds the largest magnitude of y, and rounds it.
    /// Zhang and Sennrich 2019.
    void (*rms_norm)(Exec&, Tensor y, Tensor rstd, Tensor plus, Tensor x, Tensor weight,
                     const NormForm& form);
    /// dx = plus + J^T dy. dweight[D] (acc) += sum over T; absent if the weight is frozen. `plus` is the
    /// gradient from the residual path (optional). dx may be plus, dy or x. Finds the largest magnitude of
    /// dx.
    void (*rms_norm_backward)(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor rstd,
                              Tensor weight, const NormForm& form);
    /// y = (x - mean) rstd w. The weight is optional; there is no bias. mean and rstd [T] (acc) are kept for
    /// the backward. Finds the largest magnitude of y, and rounds it. Ba et al. 2016.
    void (*layer_norm)(Exec&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps);
    /// Like rms_norm_backward. dweight is also absent if there is no weight.
    void (*layer_norm_backward)(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x,
                                Tensor mean, Tensor rstd, Tensor weight);

    /// y = plus + (base + scale[s]) x + shift[s], where s is the sequence of the row: shifts, scales and
    /// gates that each sequence has of its own. plus[n,D] and shift[S,D] are optional; shift and scale[S,D]
    /// may be columns of one matrix. y may be x or plus. All have the type of x[n,D]. Perez et al. 2018,
    /// FiLM; Peebles and Xie 2023.
    void (*modulate)(Exec&, Tensor y, Tensor plus, Tensor x, Tensor shift, Tensor scale,
                     const SequenceRows& rows, double base);
    /// dx = (base + scale[s]) dy. dscale[S,D] (acc) = the sum of dy x over the rows of each sequence, and
    /// dshift[S,D] (acc, optional) that of dy; zero for a sequence without rows. dx may be dy.
    void (*modulate_backward)(Exec&, Tensor dx, Tensor dshift, Tensor dscale, Tensor dy, Tensor x,
                              Tensor scale, const SequenceRows& rows, double base);

    /// RMSNorm of each head of x[T, n d]. weight[d] (optional) is the same for all heads. y may be x. The
    /// statistics are not kept: the backward computes them from x.
    void (*head_norm)(Exec&, Tensor y, Tensor x, Tensor weight, int64_t head_dim, const NormForm& form);
    /// dx = J^T dy. dweight[d] (acc) += sum over T and heads; absent if the weight is frozen or absent. dx
    /// may be dy or x.
    void (*head_norm_backward)(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight,
                               int64_t head_dim, const NormForm& form);

    /// sums[T] (acc) = sum over the columns of a b (offset + w), or of a b if the weight is absent.
    void (*row_products)(Exec&, Tensor sums, Tensor a, Tensor b, Tensor weight, double offset);
    /// RMSNorm of rows of `width` columns, of which x has some and other ranks have the others:
    /// y = x rstd (offset + w), rstd = (squares / width + eps)^-1/2. squares[T] (acc) = sum x^2 over all
    /// ranks. y may be x.
    void (*divided_norm)(Exec&, Tensor y, Tensor x, Tensor squares, Tensor weight, int64_t width,
                         const NormForm& form);
    /// dx = J^T dy. products[T] (acc) = sum dy x (offset + w) over all ranks. dweight (acc) += sum over T;
    /// absent if the weight is frozen. dx may be dy or x.
    void (*divided_norm_backward)(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor squares,
                                  Tensor products, Tensor weight, int64_t width, const NormForm& form);

    /// Rotates the pairs of each head of x[T, n d] in place, by the angles in row positions[t] (i32[T]) of
    /// table[S, shape.width] (acc; cos and sin of pair j at 2j and 2j+1). `inverse` rotates back: the
    /// backward. Su et al. 2021.
    void (*rope)(Exec&, Tensor x, Tensor table, Tensor positions, const RopeShape& shape, bool inverse);
    /// x[t] *= factors[positions[t]], for factors[S] (acc) and positions i32[T].
    void (*scale_rows)(Exec&, Tensor x, Tensor factors, Tensor positions);

    /// y[t] += bias, for each row of y[T,O], type or acc; bias[O]: type.
    void (*add_bias)(Exec&, Tensor y, Tensor bias);
    /// dbias[O] (acc) += sum over T of dy[T,O].
    void (*add_bias_backward)(Exec&, Tensor dbias, Tensor dy);

    /// Keys and values of latent attention: k[T, H (nope + rope)] has for each head [its part of kv | pe],
    /// and v[T, H value] the rest of kv[T, H (nope + value)]. All heads share pe[T, rope].
    void (*latent_keys)(Exec&, Tensor k, Tensor v, Tensor kv, Tensor pe, const LatentShape& shape);
    /// Its gradients. dpe[T, rope] is the sum over the heads in their order, rounded to type at the end.
    void (*latent_keys_backward)(Exec&, Tensor dkv, Tensor dpe, Tensor dk, Tensor dv,
                                 const LatentShape& shape);

    /// Causal attention: the query at index i of its sequence attends to the given keys with indices
    /// first_key to i; without the causal mask, to all keys given. q[T,Hd], k[N,Kd] and v[N,Ke] may be
    /// columns of one matrix; N = batch * keys().count. out[T,He]: type or acc. lse[H,T] (acc): log of the
    /// sum of exp of the scores. If a query attends to no key, its lse is -infinity and its row of out is
    /// zero. document_start: i32[batch, whole sequence], optional. Never holds a sequence x sequence matrix
    /// (Dao et al. 2022).
    void (*attention)(Exec&, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                      const AttentionShape& shape);
    /// The same over further keys: out[T,He] and lse[H,T] (both acc, and out's rows follow each other) hold
    /// the result over other keys, and get that over both.
    void (*merge_attention)(Exec&, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                            Tensor document_start, const AttentionShape& shape);
    /// out and lse must be the results over all keys that the queries attend to, not only the keys given. dq,
    /// dk and dv each have the type or acc. They are overwritten; dq is added to if `add_to_dq` is set. What
    /// is overwritten may share memory with q, k and v, each element with its own gradient.
    void (*attention_backward)(Exec&, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                               Tensor q, Tensor k, Tensor v, Tensor document_start,
                               const AttentionShape& shape, bool add_to_dq);

    /// Adds one more key to the softmax of each head after attention, with the score sinks[h] (type) and a
    /// value of zeros, so that a query may attend to nothing: out *= e^(lse - l), lse = l, where l =
    /// log(e^lse
    /// + e^sink). out[T,He]: type or acc; lse[H,T] (acc). gpt-oss (OpenAI 2025), section 2; Xiao et al. 2023.
    /// The backward of attention takes the results of this kernel as out and lse.
    void (*attention_sink)(Exec&, Tensor out, Tensor lse, Tensor sinks);
    /// dsinks[H] (acc) -= sum over t of e^(sink - lse) (dout . out), for out and lse with the sink.
    void (*attention_sink_backward)(Exec&, Tensor dsinks, Tensor dout, Tensor out, Tensor lse, Tensor sinks);

    /// Attention of one new token for each of B sequences over cached keys and values. keys, values [number
    /// of slots * shape.sequence, K d and K e]: the rows of a slot are adjacent. Writes k[B, K d] and v[B, K
    /// e] to row positions[b] of slot slots[b] (both i32[B]; all slots different). Then q[B, H d] attends to
    /// rows first_key to positions[b] of its slot; out[B, H e]; lse[H, B] (acc), as for attention.
    /// shape.batch = B. The bits of a sequence do not depend on the others.
    void (*attention_cached)(Exec&, Tensor out, Tensor lse, Tensor keys, Tensor values, Tensor q, Tensor k,
                             Tensor v, Tensor slots, Tensor positions, const AttentionShape& shape);

    /// y[T,F] = silu(g) u, where gate_up[T,2F] = [g | u]. Finds the largest magnitude of y, and rounds it.
    /// Shazeer 2020.
    void (*swiglu)(Exec&, Tensor y, Tensor gate_up);
    /// Its gradient. dgate_up may be gate_up. Finds the largest magnitudes of both halves of dgate_up.
    void (*swiglu_backward)(Exec&, Tensor dgate_up, Tensor dy, Tensor gate_up);
    /// The two with GELU in the place of SiLU (Activation::gelu_tanh): y = gelu(g) u. Shazeer 2020.
    void (*geglu)(Exec&, Tensor y, Tensor gate_up);
    void (*geglu_backward)(Exec&, Tensor dgate_up, Tensor dy, Tensor gate_up);
    /// y = a(x), without a second factor. y may be x.
    void (*activation)(Exec&, Tensor y, Tensor x, Activation kind);
    /// dx = dy a'(x). dx may be dy or x.
    void (*activation_backward)(Exec&, Tensor dx, Tensor dy, Tensor x, Activation kind);

    /// The experts of each token and their weights: experts i32[n,k], in ascending order; weights[n,k] (acc).
    /// loads i64[E] (optional) += how often each is chosen. logits[n,E] and bias[E] (optional): acc.
    void (*route)(Exec&, Tensor experts, Tensor weights, Tensor loads, Tensor logits, Tensor bias,
                  const RouteOptions& options);
    /// dlogits[n,E] (acc) from dweights[n,k] (acc), for the experts chosen.
    void (*route_backward)(Exec&, Tensor dlogits, Tensor dweights, Tensor logits, Tensor experts,
                           const RouteOptions& options);
    /// Groups the assignments by expert, those of an expert in ascending order: slots i32[n,k] is the row of
    /// each assignment, sources i32[rows] the assignment of each row, -1 if it has none. Writes `groups`. An
    /// assignment to expert -1 has no row; its slot is -1. If there is no room for all rows, no assignment
    /// has a row, and *overflow becomes 1. `overflow` may be null if there is room whatever the experts are.
    void (*group_by_expert)(Exec&, Tensor slots, Tensor sources, const Groups& groups, Tensor experts,
                            int64_t* overflow);
    /// Where the rows of tokens go. units i32[n,k] = the unit of a token's first expert on each rank, and -1
    /// for its other experts there. assignments i32[units] (optional): those of each unit. experts i32[n,k],
    /// in ascending order.
    void (*units_of_rows)(Exec&, Tensor units, Tensor assignments, Tensor experts, const RankRows& ranks);
    /// What goes with each row that is sent to a rank: choices i32[rows,m] = the token's experts there,
    /// counted from the rank's first one, and numbers[rows,m] (acc) = their weights. Unused ones are -1 and
    /// 0. places i32[n,k]: where each assignment is in choices, as a list. slots and sources are those of the
    /// units' rows, experts i32[n,k] and weights[n,k] (acc) those of the tokens.
    void (*choices_of_rows)(Exec&, Tensor choices, Tensor numbers, Tensor places, Tensor slots,
                            Tensor sources, Tensor experts, Tensor weights, const RankRows& ranks);
    /// Divides rows that are sorted by rank into R blocks of equal size: block r has the first rows of rank
    /// r. sorted i32[n,k]: the place of each row among the sorted ones, counted without padding; -1 if there
    /// is none. slots i32[n,k]: its place in the blocks, or -1. sources i32[rows], rows a multiple of R: the
    /// assignment of each row of the blocks, -1 if there is none. counts i32[R]: rows of each rank. If a
    /// block has no room for all of its rows, *overflow becomes 1, and the slots of the others are that of
    /// its last row.
    void (*rows_in_blocks)(Exec&, Tensor slots, Tensor sources, Tensor sorted, Tensor counts,
                           int64_t* overflow);
    /// out[i] = in[sources[i] / per]; zero where sources[i] is -1. sources i32[rows of out].
    void (*gather_rows)(Exec&, Tensor out, Tensor in, Tensor sources, int64_t per);
    /// y[t] = plus[t] + sum over j of rows[slots[t,j]], added in acc and in order of j; a slot of -1 adds
    /// nothing. plus is optional and may be y.
    void (*sum_rows)(Exec&, Tensor y, Tensor plus, Tensor rows, Tensor slots);
    /// For each group g of rows: d = a op(b[g]). a[rows, K], d[rows, N] (type or acc); b: G matrices, one
    /// after the other.
    /// Padding is set to zero; rows after the last group are not touched.
    void (*grouped_gemm)(Exec&, Tensor d, Tensor a, Operand b, const Groups& groups);
    /// For each group g of rows: d[g] = c[g] + a^T b. a[rows, O], b[rows, I], d: G matrices [O, I] (type or
    /// acc), rounded once. c is d or absent. Without c, the matrices of groups without rows become zero.
    void (*grouped_gemm_weights)(Exec&, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups);
    /// The two products for 8-bit floats, with groups of scales as in scaled_gemm. Columns of rows in groups,
    /// and of matrices, have scales [G,C].
    void (*scaled_grouped_gemm)(Exec&, Tensor d, Tensor a, Operand b, const Groups& groups, bool fast);
    void (*scaled_grouped_gemm_weights)(Exec&, Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups);
    /// y[i] += scale[i] bias[g] for each row i of group g; bias[G,N]: type, scale[rows] (acc): optional.
    void (*add_group_bias)(Exec&, Tensor y, Tensor bias, Tensor scale, const Groups& groups);
    /// dbias[G,N] (acc) += the sum over each group of scale[i] dy[i]. dscale[rows] (acc, optional) = dy[i] .
    /// bias[g], in rows of groups.
    void (*add_group_bias_backward)(Exec&, Tensor dbias, Tensor dscale, Tensor dy, Tensor bias, Tensor scale,
                                    const Groups& groups);
    /// y = scale gate(gate_up) for the rows of groups and their padding, where scale[rows] (acc) is optional;
    /// y = gate(scale gate_up) if gate.scales_input. Without groups, here and in gate_backward: for all rows.
    void (*gate)(Exec&, Tensor y, Tensor gate_up, Tensor scale, const Groups& groups, const Gate& gate);
    /// dgate_up from dy, and dscale[rows] (acc) = dy . (the result's derivative by the scale), if there is a
    /// scale. y (optional) gets the result of the forward again. It is written before dy is read, so y must
    /// not be the memory of dy. dgate_up may be gate_up.
    void (*gate_backward)(Exec&, Tensor dgate_up, Tensor dscale, Tensor y, Tensor dy, Tensor gate_up,
                          Tensor scale, const Groups& groups, const Gate& gate);
    /// counts i64[B,E] = how often the tokens of each sequence chose each expert; experts i32[n,k].
    void (*count_by_sequence)(Exec&, Tensor counts, Tensor experts, const SequenceRows& rows);
    /// The loss that balances the experts within each sequence (DeepSeek-AI 2024, DeepSeek-V3, eq. 17-20), of
    /// each token: losses[n] (acc) = c sum over e of f_e p_e, and dlogits[n,E] (acc) += its gradient. p are
    /// the token's scores divided by their sum. f_e = counts[b,e] / mean of counts[b], for the token's
    /// sequence b; it is a constant to the gradient. c = coefficient * scalars.loss_scale. logits[n,E]: acc.
    void (*balance_sequences)(Exec&, Tensor dlogits, Tensor losses, Tensor logits, Tensor counts,
                              const SequenceRows& rows, double coefficient, const RouteOptions& options,
                              const StepScalars& scalars);
    /// Balances loads without a loss (Wang et al. 2024): bias[E] (acc) += u - mean u, where u[e] = rate
    /// sign(mean load - loads[e]). Writes nothing if scalars.refusals is not 0.
    void (*balance_experts)(Exec&, Tensor bias, Tensor loads, double rate, const StepScalars& scalars);

    /// For each row of logits[T,V]: lse[T] (acc) = log sum exp, and at_label[T] (acc) = the label's logit, or
    /// 0 if the label is outside the part. Both are those of the true logits (VocabularyPart::scale).
    void (*log_sum_exp)(Exec&, Tensor lse, Tensor at_label, Tensor logits, Tensor labels,
                        VocabularyPart part);
    /// lse[T] = log sum over p of exp parts[p,T] (acc): combines the results of the vocabulary's parts.
    void (*add_log_sum_exp)(Exec&, Tensor lse, Tensor parts);
    /// For each row of logits[T,V]: largest[T] (acc, any distance between elements) = scale times its largest
    /// element, for a scale above 0; -infinity for an empty row.
    void (*largest_of_rows)(Exec&, Tensor largest, Tensor logits, double scale);
    /// losses[T] (acc) = scale * (lse - at_label), or 0 if the label is -100. dlogits (optional, may be
    /// logits) gets the gradient of the logits as given, for the columns of the part. scale is weight *
    /// scalars.loss_scale.
    /// z_losses[T] (acc, optional) = scale * z_weight * lse^2, or 0 if the label is -100, is part of losses
    /// and of the gradient. Without it z_weight is not read.
    void (*cross_entropy)(Exec&, Tensor losses, Tensor z_losses, Tensor dlogits, Tensor logits, Tensor labels,
                          Tensor lse, Tensor at_label, VocabularyPart part, double weight, double z_weight,
                          const StepScalars& scalars);
    /// For each row of prediction[n,D], which is one of sequence s: losses[n] (acc) = weights[s]
    /// scalars.loss_scale sum (prediction - target)^2. dprediction (optional, may be prediction) = its
    /// gradient. target[n,D] and weights[S]: acc. With weight 0 both are 0, whatever the prediction is.
    void (*squared_error)(Exec&, Tensor losses, Tensor dprediction, Tensor prediction, Tensor target,
                          Tensor weights, const SequenceRows& rows, const StepScalars& scalars);

    /// out = a, converted to the type of out. Types of 8 bits are not converted, only copied.
    void (*cast)(Exec&, Tensor out, Tensor a);
    /// out += a, in the type of out (acc), for sums of gradients.
    void (*add)(Exec&, Tensor out, Tensor a);
    /// out = sum over p of the parts. parts is [P * rows of out, columns of out]: the parts one after the
    /// other. They are added in this order, in acc.
    void (*sum_parts)(Exec&, Tensor out, Tensor parts);
    void (*zero)(Exec&, Tensor out);
    /// The initial values of the elements at `place`, in the type of out, whose rows are adjacent. They are
    /// computed in double and rounded once (to bf16 by way of float32), with the same bits in every table.
    /// Element i of a parameter has the random bits i of RandomStream(seed, place.stream). Normal values: std
    /// * the quantile of u, where u is uniform over the probability mass between the bounds.
    void (*draw)(Exec&, Tensor out, const Init& init, uint64_t seed, const ElementPlace& place);
    /// *out += sum of the elements, in double. a: type, acc or f64.
    void (*sum)(Exec&, double* out, Tensor a);
    /// *out += sum of the squares of the elements, in double. a: as for sum.
    void (*sum_of_squares)(Exec&, double* out, Tensor a);

    /// Computes grad_norm, clip and refusals of the scalars from squared_norm and loss. max_norm <= 0: no
    /// clipping.
    void (*finish_norm)(Exec&, StepScalars& scalars, double max_norm);
    /// Adam or AdamW in one pass: clips the gradient, updates moments and weights, and writes the compute
    /// copy. Writes nothing if scalars.refusals is not 0. Finds the largest magnitude of `compute`, or of
    /// `master` without it, in any case. Kingma and Ba 2015; Loshchilov and Hutter 2019.
    void (*adam)(Exec&, const AdamTensors& tensors, const AdamOptions& options, const ElementPlace& place,
                 const StepScalars& scalars);

    /// buffer = mu buffer + (1 - mu) g, where g = clip * direction. Then direction = buffer, or with Nesterov
    /// momentum direction = (1 - mu) g + mu buffer. Both are acc. Writes nothing if scalars.refusals is not
    /// 0. Sutskever et al. 2013.
    void (*momentum)(Exec&, Tensor buffer, Tensor direction, const MomentumOptions& options,
                     const StepScalars& scalars);
    /// x = x / max(norm, smallest), in place, where norm = sqrt(*squared_norm), rounded to the type of x.
    void (*normalize)(Exec&, Tensor x, const double* squared_norm, double smallest);
    /// out = alpha a + beta b. out, a: type; b: acc. out may be a.
    void (*scaled_sum)(Exec&, Tensor out, double alpha, Tensor a, double beta, Tensor b);
    /// master = (1 - rate decay) master - rate factor direction. direction is acc. `compute` (optional) is
    /// written in the same pass. Writes nothing if scalars.refusals is not 0. Finds the largest magnitude as
    /// adam does.
    void (*descend)(Exec&, Tensor master, Tensor direction, Tensor compute, const DescentOptions& options,
                    const ElementPlace& place, const StepScalars& scalars);
};

/// The names of all entries, once: DO(name) is expanded for each. Everything that every entry needs in the
/// same form is generated from this list: the declarations of a backend's functions, the tables, and the
/// no-op functions of planning runs.
// clang-format off
#define COEUS_EACH_KERNEL(DO) \
    DO(gemm) DO(largest_magnitudes) DO(quantize) DO(quantize_transposed) DO(quantize_values) DO(dequantize) DO(scaled_gemm) DO(embedding) DO(embedding_backward) \
    DO(rms_norm) DO(rms_norm_backward) DO(layer_norm) DO(layer_norm_backward) DO(modulate) DO(modulate_backward) \
    DO(head_norm) DO(head_norm_backward) DO(row_products) DO(divided_norm) DO(divided_norm_backward) DO(rope) DO(scale_rows) DO(add_bias) DO(add_bias_backward) \
    DO(latent_keys) DO(latent_keys_backward) DO(attention) DO(merge_attention) DO(attention_backward) DO(attention_sink) DO(attention_sink_backward) \
    DO(attention_cached) DO(swiglu) DO(swiglu_backward) DO(geglu) DO(geglu_backward) DO(activation) DO(activation_backward) \
    DO(route) DO(route_backward) DO(group_by_expert) DO(units_of_rows) DO(choices_of_rows) DO(rows_in_blocks) DO(gather_rows) DO(sum_rows) DO(grouped_gemm) \
    DO(grouped_gemm_weights) DO(scaled_grouped_gemm) DO(scaled_grouped_gemm_weights) DO(add_group_bias) DO(add_group_bias_backward) DO(gate) DO(gate_backward) \
    DO(count_by_sequence) DO(balance_sequences) DO(balance_experts) \
    DO(log_sum_exp) DO(add_log_sum_exp) DO(largest_of_rows) DO(cross_entropy) DO(squared_error) \
    DO(cast) DO(add) DO(sum_parts) DO(zero) DO(draw) DO(sum) DO(sum_of_squares) DO(finish_norm) DO(adam) \
    DO(momentum) DO(normalize) DO(scaled_sum) DO(descend)
// clang-format on
#define COEUS_COUNT_KERNEL(name) +1
static_assert(sizeof(Kernels) == sizeof(const char*) + 4 * sizeof(int64_t) +
                                     (0 COEUS_EACH_KERNEL(COEUS_COUNT_KERNEL)) * sizeof(void*),
              "COEUS_EACH_KERNEL names every entry of Kernels");
#undef COEUS_COUNT_KERNEL

/// The CPU's kernels, in f64, f32 and bf16. In f64 they are the reference for all others.
const Kernels& cpu_kernels();
/// The kernels of a GPU, in f32 and bf16. The tensors and Exec's workspace are in its memory. SystemError if
/// the program was built without CUDA.
const Kernels& cuda_kernels();
/// Kernels for planning runs. They only note the workspace that the CPU's kernels would need.
const Kernels& dry_kernels();
/// The same for the kernels of a GPU.
const Kernels& dry_cuda_kernels();

/// The kernels of a backend, and those for its planning runs.
const Kernels& kernels_of(Backend backend);
const Kernels& dry_kernels_of(Backend backend);

/// Bytes that the libraries of matrix products allocate themselves while a model trains in this type on a
/// CPU, as measured: kernels that oneDNN compiles and pages of its code, or buffers of OpenBLAS.
int64_t gemm_library_bytes(Dtype compute);

}  // namespace coeus
