// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/loss_head.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/layers/exchanges/loss_exchange.hpp"
#include "coeus/layers/exchanges/sequence_parallel.hpp"

#include <algorithm>
#include <bit>

namespace coeus {

namespace {

// Every step-th row.
struct Chunk {
    int64_t first, rows, step;

    Tensor of(Tensor t) const {
        require(step == 1 || t.groups == ScaleGroups::none || is_of_all_rows(t.groups),
                "rows with gaps between them have no scales of their own");
        t = t.slice_rows(first, (rows - 1) * step + 1);
        t.shape = t.shape.rank < 2 ? Shape{rows} : Shape{rows, t.cols()};
        t.ld *= step;
        return t;
    }
    // Its rows; values are copied to temp if there are gaps between them, which slow a CPU's products down.
    Tensor dense(Ctx& c, Tensor t) const {
        if (step == 1 || is_8_bit_float(t.dtype)) return of(t);
        Tensor copy = c.temp.alloc(t.dtype, {rows, t.cols()});
        c.k.cast(c.exec, copy, of(t));
        copy.groups = t.groups;
        copy.scale = t.scale;
        return copy;
    }
    // True if the rows share scales.
    static bool is_of_all_rows(ScaleGroups groups) {
        return groups == ScaleGroups::one || groups == ScaleGroups::cols;
    }
};

// Chunks of consecutive rows: logits of the preferred size, but enough rows for an efficient GEMM.
// `columns` are those of the widest part of the vocabulary, so that all tensor-parallel ranks use the same
// chunks.
int64_t chunk_rows(const Processor& processor, int64_t tokens, int64_t columns, Dtype dtype) {
    const int64_t fitting =
        processor.chunk_bytes / (std::max<int64_t>(1, columns) * size_of(dtype)) / 64 * 64;
    return std::min(tokens, std::max<int64_t>(256, fitting));
}

// The number of chunks of rows that share scales. It depends only on the tokens of the micro-batch, and a
// chunk has every number-th token: on all meshes and backends the same ones, because a context-parallel rank
// has ranges of the sequences whose lengths are multiples of this number.
int64_t sharing_chunks(int64_t tokens) {
    constexpr uint64_t most = 16, least_tokens = 1024;
    return int64_t(std::bit_floor(std::clamp<uint64_t>(uint64_t(tokens) / least_tokens, 1, most)));
}

// Context-parallel ranks have other rows, and tensor-parallel ranks have the same.
Division rows_of(const Ctx& c) {
    return {.row_ranks = c.cp, .other_row_ranks = alone(), .column_ranks = alone()};
}

// All tokens in a form; if they share scales, these are found once for all chunks.
class Tokens {
public:
    Tokens(Ctx& c, Tensor all, const Form& form)
        : all_(Chunk::is_of_all_rows(form.groups) ? as_operand(c, all, form, rows_of(c)) : all),
          form_(form) {}
    Tensor of(Ctx& c, const Chunk& chunk) const {
        if (Chunk::is_of_all_rows(form_.groups)) return chunk.dense(c, all_);
        return as_operand(c, chunk.of(all_), form_, rows_of(c));
    }

private:
    Tensor all_;
    Form form_;
};

}  // namespace

// Calls each(chunk, x, logits [n, V/P], losses [n]) for chunks of n rows of all tokens [T, D]. x has the rows
// in the form of the forward's product with w.
template <class Each>
void LossHead::for_each_chunk(Ctx& c, Tensor all, Tensor w, const Each& each) const {
    const RecipeForms& forms = projection_.forms();
    const int64_t columns = div_ceil(output_->params().front().shape.rows(), c.tp.size());
    const bool share = Chunk::is_of_all_rows(forms.dy_of_wgrad.groups);
    const int64_t step = share ? sharing_chunks(all.rows() * c.cp.size()) : 1;
    const int64_t most =
        share ? div_ceil(all.rows(), step) : chunk_rows(c.exec, all.rows(), columns, all.dtype);
    const Scope temps(c.temp);
    const Tensor losses = c.temp.alloc(acc_of(all.dtype), {all.rows()});
    const int64_t width = output_->w.rows();
    const Tensor logits =
        c.temp.alloc(all.dtype, {most, round_up(width, c.k.row_multiple)}).slice_cols(0, width);
    const Tokens tokens(c, all, forms.x);
    int64_t done = 0;
    for (int64_t i = 0; done < all.rows(); ++i) {
        const Chunk chunk = share ? Chunk{i, div_ceil(all.rows() - i, step), step}
                                  : Chunk{done, std::min(most, all.rows() - done), 1};
        const Tensor of_chunk = logits.slice_rows(0, chunk.rows);
        const Scope temps_of_chunk(c.temp);
        const Tensor x = tokens.of(c, chunk);
        multiply(c, of_chunk, x, transposed(w), {}, true);
        each(chunk, x, of_chunk, losses.slice_rows(done, chunk.rows));
        done += chunk.rows;
    }
    c.k.sum(c.exec, &c.scalars.loss, losses);
    if (part_) c.k.sum(c.exec, &c.scalars.losses[*part_], losses);
}

// at_label [n] gets the logits of the labels.
void LossHead::losses_of(Ctx& c, Tensor losses, Tensor at_label, Tensor dlogits, Tensor logits, Tensor labels,
                         double z) const {
    const int64_t n = logits.rows();
    const Scope temps(c.temp);
    const Tensor parts = c.temp.alloc(losses.dtype, {c.tp.size(), n}), lse = c.temp.alloc(losses.dtype, {n}),
                 z_losses = z > 0 ? c.temp.alloc(losses.dtype, {n}) : Tensor();
    c.loss.statistics(c, parts, at_label, logits, labels, output_->params().front(), scale_);
    c.k.add_log_sum_exp(c.exec, lse, parts);
    c.k.cross_entropy(c.exec, losses, z_losses, dlogits, logits, labels, lse, at_label,
                      vocabulary_part(*output_, scale_), weight_, z, c.scalars);
    if (z_losses) c.k.sum(c.exec, &c.scalars.losses[z_.part], z_losses);
}

void LossHead::forward(Ctx& c, Tensor x, Tensor labels) const {
    const Tensor dx = c.frame.keep(x.dtype, x.shape);
    {
        const Scope temps(c.temp);
        const RecipeForms& forms = projection_.forms();
        const Tensor all = gather_tokens(c, x), dall = parts_of(c, dx), w = projection_.for_forward(c);
        const bool has_both = forms.w_of_dgrad == forms.w && !projection_.keeps_operands();
        const Operand w_of_dgrad = has_both ? Operand(w) : projection_.for_input_gradient(c);
        const bool trains = projection_.is_trained(), needs_other_x = trains && forms.x_of_wgrad != forms.x;
        const Tokens inputs(c, all, needs_other_x ? forms.x_of_wgrad : Form{});
        const Division by = Division::columns_of_tokens(c);
        for_each_chunk(c, all, w, [&](const Chunk& chunk, Tensor input, Tensor logits, Tensor losses) {
            {
                const Scope temps_of_loss(c.temp);
                const Tensor at_label = c.temp.alloc(losses.dtype, losses.shape);
                losses_of(c, losses, at_label, logits, logits, chunk.of(labels), z_.weight);
            }
            Tensor gradient = as_operand(c, logits, forms.dy, by);
            const Tensor to = chunk.of(dall);
            const bool is_copied = chunk.step > 1 && c.k.takes_values;
            const Tensor rows = is_copied ? c.temp.alloc(dall.dtype, {chunk.rows, dall.cols()}) : to;
            multiply(c, rows, gradient, w_of_dgrad);
            if (is_copied) c.k.cast(c.exec, to, rows);
            if (trains && forms.dy_of_wgrad != forms.dy)
                gradient = as_operand(c, logits, forms.dy_of_wgrad, by);
            c.frame.later(c,
                          {.parts = {output_, gradient}, .x = needs_other_x ? inputs.of(c, chunk) : input});
        });
        scatter_tokens(c, dx, dall);
    }
    c.frame.push(this, dx);
}

Tensor LossHead::backward(Ctx& c) const {
    return c.frame.pop(this);
}

void LossHead::evaluate(Ctx& c, Tensor x, Tensor labels) const {
    const Scope temps(c.temp);
    const Tensor all = gather_tokens(c, x), w = projection_.for_forward(c);
    const ScoredTokens& scored = c.scored;
    for_each_chunk(c, all, w, [&](const Chunk& chunk, Tensor, Tensor logits, Tensor losses) {
        const Tensor at_label = c.temp.alloc(losses.dtype, losses.shape);
        losses_of(c, losses, at_label, {}, logits, chunk.of(labels), 0);
        if (!scored) return;
        c.k.cast(c.exec, chunk.of(scored.losses), losses);
        c.k.cast(c.exec, chunk.of(scored.label_logits), at_label);
        c.k.largest_of_rows(c.exec, chunk.of(scored.largest_logits), logits, scale_);
    });
    if (!scored || c.tp.size() == 1) return;
    const ObservedExchange noted(c.exec, Exchange::largest_logits, scored.largest_logits);
    c.tp.all_reduce(c.exec, scored.largest_logits, Reduce::max);
}

void LossHead::logits(Ctx& c, Tensor logits, Tensor x) const {
    const Scope temps(c.temp);
    multiply(c, logits, as_operand(c, x, projection_.forms().x, rows_of(c)),
             transposed(projection_.for_forward(c)));
    if (scale_ == 1) return;
    for (int64_t i = 0; i < logits.rows(); ++i) {
        Tensor row = logits.slice_rows(i, 1);
        row.ld = row.cols();  // rows may have gaps between them
        c.k.scaled_sum(c.exec, row, scale_, row, 0, row);
    }
}

}  // namespace coeus
