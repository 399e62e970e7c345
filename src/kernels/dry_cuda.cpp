// SPDX-License-Identifier: Apache-2.0
// The table for planning runs of a GPU; needs no GPU.
#include "coeus/kernels/cudnn.hpp"
#include "cuda/attention/attention_choice.hpp"
#include "cuda/ptx/mma_of_8_bits.hpp"
#include "cuda/workspace.hpp"
#include "observed.hpp"

#include <algorithm>
#include <array>

namespace coeus {

namespace {

/// What a planning run notes besides bytes.
struct Noted : BackendState {
    std::vector<AttentionCall> attention;
};

// Calls in which no query sees a key need no kernel for them.
void note(Exec& exec, AttentionCall call) {
    if (exec.cudnn_bytes == 0) return;
    if (const auto blocks = cuda::score_blocks(call.shape); blocks && blocks->size() == 0) return;
    if (!exec.backend) exec.backend = std::make_unique<Noted>();
    for (Tensor* tensor : {&call.out, &call.q, &call.k, &call.v, &call.document_start, &call.dq, &call.dk,
                           &call.dv, &call.dout})
        tensor->data = nullptr;
    add_if_new(static_cast<Noted&>(*exec.backend).attention, call);
}

// How the operands of a product are stored: "n" as they are multiplied, "t" transposed.
const char* form_of(const Operand& a, const Operand& b) {
    if (a.is_transposed) return b.is_transposed ? "tt" : "tn";
    return b.is_transposed ? "nt" : "nn";
}

void plan_product(Exec& exec, const Tensor& d, const Operand& a, const Operand& b) {
    const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    exec.observers.planned({.variant = form_of(a, b), .size = {d.rows(), d.cols(), depth}});
}

using Sizes = std::array<int64_t, 3>;

// Rows, columns and depth of the products of a group, as if all had as many rows.
Sizes sizes_of_group(const Tensor& d, const Tensor& a, const Groups& groups) {
    return {groups.assignments / groups.number(), d.cols(), a.cols()};
}
Sizes sizes_of_group_weights(const Tensor& a, const Tensor& b, const Groups& groups) {
    return {a.cols(), b.cols(), groups.assignments / groups.number()};
}

// A product of experts' rows in 8-bit floats: of codes, of codes that the GPU converts to half precision, or
// of decoded operands.
void plan_scaled_experts(Exec& exec, const Tensor& d, const Tensor& a, const Tensor& b, const Sizes& size) {
    exec.workspace.touch(cuda::workspace::scaled_grouped_gemm(exec, d, a, b));
    if (!cuda::multiplies_codes(exec, d, {a, b}))
        exec.observers.planned({.variant = "decoded", .size = size, .launches = 3});
    else
        exec.observers.planned(
            {.variant = cuda::has_fast_mma_of_8_bits(exec.architecture) ? "codes" : "converted",
             .size = size});
}

// Further kernels add the sums of blocks (column_sums.hpp), if the gradient is wanted.
void plan_column_sums(Exec& exec, const Tensor& gradient, int64_t rows,
                      int64_t block = cuda::workspace::column_block) {
    exec.workspace.touch(cuda::workspace::column_sums(gradient, rows, block));
    const int launches_of_sums = cuda::workspace::adds_in_two_levels(rows, block) ? 2 : 1;
    exec.observers.planned({.launches = 1 + (gradient ? launches_of_sums : 0)});
}

// A second kernel adds the sums of blocks (reduce.cu).
void plan_sum(Exec& exec, const Tensor& a) {
    exec.workspace.touch(cuda::workspace::sum(a));
    exec.observers.planned({.launches = 2});
}

// cuDNN's kernels for each block of scores in a backward: row sums of dout out, the gradients, and dq as a
// product or from sums. Then each of dq, dk and dv is added up. Our own: row sums, a kernel for queries and
// one for keys.
constexpr int launches_of_cudnn_block = 3, launches_of_sums = 3, launches_of_own_backward = 3;

int parts_of(const cuda::CudnnBackwardPart& part, const AttentionShape& s) {
    return int(div_ceil(s.batch, part.batch) * div_ceil(s.kv_heads, part.kv_heads));
}

using cuda::ScoreBlock;
using cuda::ScoreBlocks;

// Kernels of attention by cuDNN. Its rate is that of squares with as many scores as the blocks have.
PlannedKernel by_cudnn(const char* variant, const ScoreBlocks& blocks, const AttentionShape& s, int launches,
                       double more_bytes) {
    return {.variant = variant,
            .size = {s.batch, cuda::mean_tokens(blocks), s.head_dim},
            .launches = launches,
            .more_bytes = more_bytes};
}
PlannedKernel by_our_own(const AttentionShape& s, int launches, double more_bytes = 0,
                         const char* variant = "own") {
    return {.variant = variant,
            .size = {s.batch, s.sequence, s.head_dim},
            .launches = launches,
            .more_bytes = more_bytes};
}

// Bytes in bfloat16 of rows of all heads: of the queries, or the keys, of all blocks.
double bytes_of_blocks(const ScoreBlocks& blocks, int64_t ScoreBlock::*rows, int64_t width,
                       const AttentionShape& s) {
    double bytes = 0;
    for (const ScoreBlock& block : blocks) bytes += 2 * double(s.batch * block.*rows * width);
    return bytes;
}
// Rows of a sequence's queries that some block has.
int64_t seen_queries(const ScoreBlocks& blocks) {
    int64_t last = 0, seen = 0;  // blocks come in the order of their queries
    for (const ScoreBlock& block : blocks) {
        const int64_t end = block.first_query + block.queries;
        seen += std::max<int64_t>(end - std::max(block.first_query, last), 0);
        last = std::max(last, end);
    }
    return seen;
}

// Attention of queries to keys, of which the result is written, or merged with what is there.
void plan_attention(Exec& exec, const Tensor& out, const Tensor& lse, const Tensor& q,
                    const Tensor& document_start, const AttentionShape& s, bool merge) {
    exec.workspace.touch(cuda::workspace::attention(exec, out, q, document_start, s, merge));
    if (exec.cudnn_bytes == 0 || !cuda::cudnn_fits(q, document_start, s)) {
        const double merged = merge ? 3 * cost::bytes(out, lse) : 0;
        return exec.observers.planned(by_our_own(s, merge ? 2 : 1, merged));
    }
    const ScoreBlocks blocks = cuda::blocks_of(s);
    const int launches = int(blocks.size());
    if (cuda::workspace::is_written_at_once(out, s))
        return exec.observers.planned(by_cudnn("cudnn", blocks, s, launches, 0));
    // the results of blocks are read, and the result is written; what is merged is read too
    const double changed = merge ? 2 * double(seen_queries(blocks)) / double(s.sequence) : 1;
    exec.observers.planned(by_cudnn("cudnn", blocks, s, launches + 1,
                                    bytes_of_blocks(blocks, &ScoreBlock::queries, s.heads * s.head_dim, s) +
                                        changed * cost::bytes(out, lse)));
}

// Bytes that move when gradients of blocks are added up. Whole sequences have one block, and the rates of
// their backward contain this.
double bytes_of_sums(const ScoreBlocks& blocks, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                     const AttentionShape& s, bool add_to_dq) {
    if (cuda::is_whole(blocks, s) && !add_to_dq) return 0;
    const double changed = add_to_dq ? 2 * double(seen_queries(blocks)) / double(s.sequence) : 1;
    return bytes_of_blocks(blocks, &ScoreBlock::queries, s.heads * s.head_dim, s) +
           2 * bytes_of_blocks(blocks, &ScoreBlock::keys, s.kv_heads * s.head_dim, s) +
           changed * cost::bytes(dq) + cost::bytes(dk, dv);
}

struct DryCuda {
    static void gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor) {
        exec.workspace.touch(cuda::workspace::gemm(d, a.tensor));
        plan_product(exec, d, a, b);
    }
    static void scaled_gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c, bool) {
        exec.workspace.touch(cuda::workspace::scaled_gemm(exec, d, a, b, c));
        plan_product(exec, d, a, b);
    }
    static void grouped_gemm(Exec& exec, Tensor d, Tensor a, Operand, const Groups& groups) {
        exec.observers.planned({.variant = "experts", .size = sizes_of_group(d, a, groups)});
    }
    static void grouped_gemm_weights(Exec& exec, Tensor, Tensor a, Tensor b, Tensor, const Groups& groups) {
        exec.observers.planned({.variant = "expert_weights", .size = sizes_of_group_weights(a, b, groups)});
    }
    static void scaled_grouped_gemm(Exec& exec, Tensor d, Tensor a, Operand b, const Groups& groups, bool) {
        plan_scaled_experts(exec, d, a, b.tensor, sizes_of_group(d, a, groups));
    }
    static void scaled_grouped_gemm_weights(Exec& exec, Tensor d, Tensor a, Tensor b, Tensor,
                                            const Groups& groups) {
        plan_scaled_experts(exec, d, a, b, sizes_of_group_weights(a, b, groups));
    }
    static void embedding_backward(Exec& exec, Tensor, Tensor, Tensor tokens, VocabularyPart) {
        exec.workspace.touch(cuda::workspace::sorted_tokens(tokens));
        exec.observers.planned({.launches = 2});  // the sort and the sums
    }
    static void rms_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                  Tensor, const NormForm&) {
        plan_column_sums(exec, dweight, x.rows(), cuda::workspace::norm_block(x.rows(), x.cols()));
    }
    static void head_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor x, Tensor, int64_t,
                                   const NormForm&) {
        plan_column_sums(exec, dweight, x.rows());
    }
    static void divided_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor x, Tensor, Tensor,
                                      Tensor, int64_t, const NormForm&) {
        plan_column_sums(exec, dweight, x.rows(), cuda::workspace::norm_block(x.rows(), x.cols()));
    }
    static void add_bias_backward(Exec& exec, Tensor dbias, Tensor dy) {
        plan_column_sums(exec, dbias, dy.rows());
    }
    static void attention_sink_backward(Exec& exec, Tensor dsinks, Tensor, Tensor out, Tensor, Tensor) {
        plan_column_sums(exec, dsinks, out.rows());
    }
    static void layer_norm_backward(Exec& exec, Tensor, Tensor dweight, Tensor, Tensor, Tensor x, Tensor,
                                    Tensor, Tensor) {
        plan_column_sums(exec, dweight, x.rows(), cuda::workspace::norm_block(x.rows(), x.cols()));
    }
    static void modulate_backward(Exec& exec, Tensor, Tensor dshift, Tensor dscale, Tensor, Tensor x, Tensor,
                                  const SequenceRows& rows, double) {
        exec.workspace.touch(cuda::workspace::modulate_backward(dshift, dscale, rows, x.rows()));
        exec.observers.planned({.launches = 2});  // the rows, and the sums of their blocks
    }
    static void attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                          Tensor document_start, const AttentionShape& shape) {
        plan_attention(exec, out, lse, q, document_start, shape, false);
        note(exec, {shape, out, q, k, v, document_start});
    }
    static void merge_attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                                Tensor document_start, const AttentionShape& shape) {
        plan_attention(exec, out, lse, q, document_start, shape, true);
        note(exec, {shape, out, q, k, v, document_start});
    }
    static void attention_backward(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                                   Tensor, Tensor q, Tensor k, Tensor v, Tensor document_start,
                                   const AttentionShape& shape, bool add_to_dq) {
        exec.workspace.touch(
            cuda::workspace::attention_backward(exec, dq, q, document_start, shape, add_to_dq));
        note(exec, {shape, out, q, k, v, document_start, dq, dk, dv, dout, true});
        if (!cuda::cudnn_backward_fits(exec, q, document_start, shape))
            return exec.observers.planned(
                by_our_own(shape, launches_of_own_backward, 0,
                           cuda::wgmma_fits(exec, q.dtype, shape) ? "own_wgmma" : "own"));
        const ScoreBlocks blocks = cuda::blocks_of(shape);
        exec.observers.planned(by_cudnn(exec.deterministic ? "cudnn" : "cudnn_any_order", blocks, shape,
                                        (launches_of_cudnn_block * int(blocks.size()) + launches_of_sums) *
                                            parts_of(*cuda::backward_part(exec, shape), shape),
                                        bytes_of_sums(blocks, dq, dk, dv, shape, add_to_dq)));
    }
    static void sum(Exec& exec, double*, Tensor a) { plan_sum(exec, a); }
    static void sum_of_squares(Exec& exec, double*, Tensor a) { plan_sum(exec, a); }
};

}  // namespace

std::string AttentionCall::text() const {
    const std::optional<ScoreBlocks> blocks = cuda::score_blocks(shape);
    std::string tokens;
    if (!blocks || cuda::is_whole(*blocks, shape))
        tokens = fmt::format("{} x {} tokens", shape.batch, shape.sequence);
    else
        for (const ScoreBlock& block : *blocks)
            tokens += fmt::format("{}{} x {} queries and {} keys{}", tokens.empty() ? "" : " + ", shape.batch,
                                  block.queries, block.keys, block.causal ? " (causal)" : "");
    return fmt::format("{}, {} heads of width {}, {}", tokens, shape.heads, shape.head_dim,
                       is_backward ? "backward" : "forward");
}

namespace {

// Equal but for the places of queries and keys in the sequence, if the blocks of scores are the same.
bool same_scores(const AttentionShape& a, const AttentionShape& b) {
    const std::optional<ScoreBlocks> blocks = cuda::score_blocks(a);
    if (!blocks || blocks != cuda::score_blocks(b) || a.keys().count != b.keys().count) return a == b;
    AttentionShape moved = b;
    moved.query_part = a.query_part;
    moved.key_part = a.key_part;
    return a == moved;
}

}  // namespace

bool same(const AttentionCall& a, const AttentionCall& b) {
    const auto alike = [](const Tensor& x, const Tensor& y) {
        return x.dtype == y.dtype && x.shape == y.shape && x.ld == y.ld;
    };
    return same_scores(a.shape, b.shape) && a.is_backward == b.is_backward && alike(a.out, b.out) &&
           alike(a.q, b.q) && alike(a.k, b.k) && alike(a.v, b.v) &&
           alike(a.document_start, b.document_start) && alike(a.dq, b.dq) && alike(a.dk, b.dk) &&
           alike(a.dv, b.dv) && alike(a.dout, b.dout);
}

void add_if_new(std::vector<AttentionCall>& calls, const AttentionCall& call) {
    if (std::none_of(calls.begin(), calls.end(),
                     [&](const AttentionCall& known) { return same(known, call); }))
        calls.push_back(call);
}

std::vector<AttentionCall> planned_attention(const Exec& planning) {
    const auto* const noted = dynamic_cast<const Noted*>(planning.backend.get());
    return noted ? noted->attention : std::vector<AttentionCall>();
}

const Kernels& dry_cuda_kernels() {
    static constexpr Kernels table =
        observed_table<DryCuda>("dry cuda", cuda::workspace::thin_rows, cuda::workspace::row_multiple, false,
                                cuda::workspace::most_row_bytes);
    return table;
}

}  // namespace coeus
