// SPDX-License-Identifier: Apache-2.0
#include "naive.hpp"

#include "coeus/base/random.hpp"
#include "naive_elements.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace coeus::test {

namespace {

std::vector<double> copy(const Tensor& t) {
    std::vector<double> values;
    for (int64_t i = 0; i < t.count(); ++i) values.push_back(element(t, i));
    return values;
}

void gemm(Exec&, Tensor d, Operand a, Operand b, Tensor c) {
    const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    for (int64_t i = 0; i < d.rows(); ++i)
        for (int64_t j = 0; j < d.cols(); ++j) {
            double sum = c ? at(c, i, j) : 0;
            for (int64_t p = 0; p < depth; ++p) sum += at(a, i, p) * at(b, p, j);
            set(d, i, j, sum);
        }
}

bool has_row(const Tensor& table, int64_t row) {
    return row >= 0 && row < table.rows();
}

void embedding(Exec&, Tensor y, Tensor tokens, Tensor table, VocabularyPart part) {
    for (int64_t t = 0; t < y.rows(); ++t)
        for (int64_t j = 0; j < y.cols(); ++j) {
            const int64_t row = index_at(tokens, t) - part.first;
            set(y, t, j, has_row(table, row) ? part.scale * at(table, row, j) : 0);
        }
}

void embedding_backward(Exec&, Tensor dtable, Tensor dy, Tensor tokens, VocabularyPart part) {
    for (int64_t t = 0; t < dy.rows(); ++t)
        for (int64_t j = 0; j < dy.cols(); ++j) {
            const int64_t row = index_at(tokens, t) - part.first;
            if (has_row(dtable, row)) set(dtable, row, j, at(dtable, row, j) + part.scale * at(dy, t, j));
        }
}

void rms_norm(Exec&, Tensor y, Tensor rstd, Tensor plus, Tensor x, Tensor weight, const NormForm& form) {
    for (int64_t t = 0; t < x.rows(); ++t) {
        double squares = 0;
        for (int64_t j = 0; j < x.cols(); ++j) squares += at(x, t, j) * at(x, t, j);
        const double r = 1 / std::sqrt(squares / double(x.cols()) + form.eps);
        set_element(rstd, t, r);
        for (int64_t j = 0; j < x.cols(); ++j)
            set(y, t, j, (plus ? at(plus, t, j) : 0) + at(x, t, j) * r * (form.offset + element(weight, j)));
    }
}

// Both norms: n = (x - mean) r, y = n w. dx_i = sum_j dy_j w_j dn_j/dx_i, with the Jacobian written out:
// dn_j/dx_i = r ((i == j) - centred/D - n_i n_j / D), where `centred` is 1 for LayerNorm and 0 for RMSNorm.
void norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor mean, Tensor rstd,
                   Tensor weight, double offset) {
    const int64_t width = x.cols();
    for (int64_t t = 0; t < x.rows(); ++t) {
        const double r = element(rstd, t), m = mean ? element(mean, t) : 0;
        std::vector<double> n, g, result;
        for (int64_t j = 0; j < width; ++j) {
            n.push_back((at(x, t, j) - m) * r);
            g.push_back(at(dy, t, j) * (weight ? offset + element(weight, j) : 1));
            if (dweight) set_element(dweight, j, element(dweight, j) + at(dy, t, j) * n.back());
        }
        for (int64_t i = 0; i < width; ++i) {
            double sum = plus ? at(plus, t, i) : 0;
            for (int64_t j = 0; j < width; ++j)
                sum += g[size_t(j)] * r *
                       ((i == j) - ((mean ? 1 : 0) + n[size_t(i)] * n[size_t(j)]) / double(width));
            result.push_back(sum);
        }
        for (int64_t i = 0; i < width; ++i) set(dx, t, i, result[size_t(i)]);
    }
}
void rms_norm_backward(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor rstd,
                       Tensor weight, const NormForm& form) {
    norm_backward(dx, dweight, dy, plus, x, {}, rstd, weight, form.offset);
}
void layer_norm_backward(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor mean,
                         Tensor rstd, Tensor weight) {
    norm_backward(dx, dweight, dy, plus, x, mean, rstd, weight, 0);
}

void layer_norm(Exec&, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double eps) {
    const double width = double(x.cols());
    for (int64_t t = 0; t < x.rows(); ++t) {
        double sum = 0, squares = 0;
        for (int64_t j = 0; j < x.cols(); ++j) sum += at(x, t, j);
        const double m = sum / width;
        for (int64_t j = 0; j < x.cols(); ++j) squares += (at(x, t, j) - m) * (at(x, t, j) - m);
        const double r = 1 / std::sqrt(squares / width + eps);
        set_element(mean, t, m);
        set_element(rstd, t, r);
        for (int64_t j = 0; j < x.cols(); ++j)
            set(y, t, j, (at(x, t, j) - m) * r * (weight ? element(weight, j) : 1));
    }
}

// The heads [d] of x [T, n d] as rows of their own, and back.
OwnedTensor heads_as_rows(const Tensor& x, int64_t head_dim) {
    OwnedTensor rows(Dtype::f64, {x.count() / head_dim, head_dim});
    for (int64_t i = 0; i < x.count(); ++i) set_element(rows, i, element(x, i));
    return rows;
}
void rows_as_heads(const Tensor& x, const Tensor& rows) {
    for (int64_t i = 0; i < x.count(); ++i) set_element(x, i, element(rows, i));
}
OwnedTensor ones(int64_t count) {
    OwnedTensor all(Dtype::f64, {count});
    for (int64_t i = 0; i < count; ++i) set_element(all, i, 1);
    return all;
}

void head_norm(Exec& exec, Tensor y, Tensor x, Tensor weight, int64_t head_dim, const NormForm& form) {
    const OwnedTensor rows = heads_as_rows(x, head_dim), result(Dtype::f64, rows.view.shape),
                      rstd(Dtype::f64, {rows.view.rows()}), one = ones(head_dim);
    rms_norm(exec, result, rstd, {}, rows, weight ? weight : one.view, weight ? form : NormForm(form.eps));
    rows_as_heads(y, result);
}
void head_norm_backward(Exec& exec, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight,
                        int64_t head_dim, const NormForm& form) {
    const OwnedTensor rows = heads_as_rows(x, head_dim), drows = heads_as_rows(dy, head_dim),
                      result(Dtype::f64, rows.view.shape), rstd(Dtype::f64, {rows.view.rows()}),
                      one = ones(head_dim);
    rms_norm(exec, result, rstd, {}, rows, one, form.eps);  // for rstd
    norm_backward(result, dweight, drows, {}, rows, {}, rstd, weight, form.offset);
    rows_as_heads(dx, result);
}

void row_products(Exec&, Tensor sums, Tensor a, Tensor b, Tensor weight, double offset) {
    for (int64_t t = 0; t < a.rows(); ++t) {
        double sum = 0;
        for (int64_t j = 0; j < a.cols(); ++j)
            sum += at(a, t, j) * at(b, t, j) * (weight ? offset + element(weight, j) : 1);
        set_element(sums, t, sum);
    }
}
void divided_norm(Exec&, Tensor y, Tensor x, Tensor squares, Tensor weight, int64_t width,
                  const NormForm& form) {
    for (int64_t t = 0; t < x.rows(); ++t)
        for (int64_t j = 0; j < x.cols(); ++j)
            set(y, t, j,
                at(x, t, j) / std::sqrt(element(squares, t) / double(width) + form.eps) *
                    (form.offset + element(weight, j)));
}
void divided_norm_backward(Exec&, Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor squares,
                           Tensor products, Tensor weight, int64_t width, const NormForm& form) {
    for (int64_t t = 0; t < x.rows(); ++t) {
        const double mean = element(squares, t) / double(width) + form.eps, r = 1 / std::sqrt(mean);
        for (int64_t j = 0; j < x.cols(); ++j) {
            const double d = at(dy, t, j), input = at(x, t, j);
            if (dweight) set_element(dweight, j, element(dweight, j) + d * input * r);
            set(dx, t, j,
                r * d * (form.offset + element(weight, j)) -
                    input * r / mean * element(products, t) / double(width));
        }
    }
}

void scale_rows(Exec&, Tensor x, Tensor factors, Tensor positions) {
    for (int64_t t = 0; t < x.rows(); ++t)
        for (int64_t j = 0; j < x.cols(); ++j)
            set(x, t, j, at(x, t, j) * element(factors, index_at(positions, t)));
}
void add_bias(Exec&, Tensor y, Tensor bias) {
    for (int64_t t = 0; t < y.rows(); ++t)
        for (int64_t j = 0; j < y.cols(); ++j) set(y, t, j, at(y, t, j) + element(bias, j));
}
void add_bias_backward(Exec&, Tensor dbias, Tensor dy) {
    for (int64_t j = 0; j < dy.cols(); ++j)
        for (int64_t t = 0; t < dy.rows(); ++t) set_element(dbias, j, element(dbias, j) + at(dy, t, j));
}

void latent_keys(Exec&, Tensor k, Tensor v, Tensor kv, Tensor pe, const LatentShape& s) {
    for (int64_t t = 0; t < kv.rows(); ++t)
        for (int64_t h = 0; h < s.heads; ++h) {
            const int64_t key = h * (s.nope + s.rope), from = h * (s.nope + s.value);
            for (int64_t j = 0; j < s.nope; ++j) set(k, t, key + j, at(kv, t, from + j));
            for (int64_t j = 0; j < s.rope; ++j) set(k, t, key + s.nope + j, at(pe, t, j));
            for (int64_t j = 0; j < s.value; ++j) set(v, t, h * s.value + j, at(kv, t, from + s.nope + j));
        }
}
void latent_keys_backward(Exec&, Tensor dkv, Tensor dpe, Tensor dk, Tensor dv, const LatentShape& s) {
    for (int64_t t = 0; t < dkv.rows(); ++t) {
        for (int64_t j = 0; j < s.rope; ++j) set(dpe, t, j, 0);
        for (int64_t h = 0; h < s.heads; ++h) {
            const int64_t key = h * (s.nope + s.rope), to = h * (s.nope + s.value);
            for (int64_t j = 0; j < s.nope; ++j) set(dkv, t, to + j, at(dk, t, key + j));
            for (int64_t j = 0; j < s.value; ++j) set(dkv, t, to + s.nope + j, at(dv, t, h * s.value + j));
            for (int64_t j = 0; j < s.rope; ++j) set(dpe, t, j, at(dpe, t, j) + at(dk, t, key + s.nope + j));
        }
    }
}

void rope(Exec&, Tensor x, Tensor table, Tensor positions, const RopeShape& s, bool inverse) {
    for (int64_t t = 0; t < x.rows(); ++t)
        for (int64_t first = s.first; first < x.cols(); first += s.head_dim)
            for (int64_t j = 0; j < s.width / 2; ++j) {
                const bool halves = s.layout == RopeLayout::half_split;
                const int64_t one = first + (halves ? j : 2 * j), two = halves ? one + s.width / 2 : one + 1;
                const double cosine = at(table, index_at(positions, t), 2 * j);
                const double sine = at(table, index_at(positions, t), 2 * j + 1) * (inverse ? -1 : 1);
                const double a = at(x, t, one), b = at(x, t, two);
                set(x, t, one, a * cosine - b * sine);
                set(x, t, two, a * sine + b * cosine);
            }
}

/// Softmax weights of query t of a head: [keys], zero for keys that it may not see; also returns the log of
/// their sum.
std::vector<double> weights(Tensor q, Tensor k, Tensor document_start, const AttentionShape& s,
                            int64_t sequence, int64_t head, int64_t t, double& log_sum) {
    const int64_t kv_head = head / (s.heads / s.kv_heads), keys = s.keys().count;
    const int64_t index = s.queries().index(t);
    const int64_t start =
        document_start ? index_at(document_start, sequence * (document_start.count() / s.batch) + index) : 0;
    const auto is_hidden = [&](int64_t key) {
        return (s.causal && key > index) || key < start || (s.window && index - key >= s.window) ||
               (s.chunk && key / s.chunk != index / s.chunk);
    };
    std::vector<double> p(size_t(keys), 0.0);
    double sum = 0;
    for (int64_t i = 0; i < keys; ++i) {
        if (is_hidden(s.keys().index(i))) continue;
        double score = 0;
        for (int64_t j = 0; j < s.head_dim; ++j)
            score += at(q, sequence * s.sequence + t, head * s.head_dim + j) *
                     at(k, sequence * keys + i, kv_head * s.head_dim + j);
        sum += p[size_t(i)] = std::exp(s.scale * score);
    }
    for (double& value : p)
        if (sum > 0) value /= sum;
    log_sum = std::log(sum);
    return p;
}

void attention(Exec&, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
               const AttentionShape& s) {
    const int64_t keys = s.keys().count;
    for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
            for (int64_t t = 0; t < s.sequence; ++t) {
                double log_sum = 0;
                const std::vector<double> p = weights(q, k, document_start, s, b, h, t, log_sum);
                set(lse, h, b * s.sequence + t, log_sum);
                for (int64_t j = 0; j < s.value_width(); ++j) {
                    double sum = 0;
                    for (int64_t i = 0; i < keys; ++i)
                        sum += p[size_t(i)] *
                               at(v, b * keys + i, h / (s.heads / s.kv_heads) * s.value_width() + j);
                    set(out, b * s.sequence + t, h * s.value_width() + j, sum);
                }
            }
}

void merge_attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s) {
    const OwnedTensor other_out(Dtype::f64, out.shape), other_lse(Dtype::f64, lse.shape);
    attention(exec, other_out, other_lse, q, k, v, document_start, s);
    const int64_t head_dim = out.cols() / lse.rows();
    for (int64_t h = 0; h < lse.rows(); ++h)
        for (int64_t t = 0; t < lse.cols(); ++t) {
            const double a = std::exp(at(lse, h, t)), b = std::exp(at(other_lse, h, t));
            set(lse, h, t, std::log(a + b));
            for (int64_t j = h * head_dim; j < (h + 1) * head_dim && a + b > 0; ++j)
                set(out, t, j, (a * at(out, t, j) + b * at(other_out, t, j)) / (a + b));
        }
}

void attention_sink(Exec&, Tensor out, Tensor lse, Tensor sinks) {
    const int64_t width = out.cols() / lse.rows();
    for (int64_t h = 0; h < lse.rows(); ++h)
        for (int64_t t = 0; t < lse.cols(); ++t) {
            const double keys = std::exp(at(lse, h, t)), all = keys + std::exp(element(sinks, h));
            set(lse, h, t, std::log(all));
            for (int64_t j = h * width; j < (h + 1) * width; ++j) set(out, t, j, at(out, t, j) * keys / all);
        }
}
void attention_sink_backward(Exec&, Tensor dsinks, Tensor dout, Tensor out, Tensor lse, Tensor sinks) {
    const int64_t width = out.cols() / lse.rows();
    for (int64_t h = 0; h < lse.rows(); ++h) {
        double sum = element(dsinks, h);
        for (int64_t t = 0; t < lse.cols(); ++t)
            for (int64_t j = h * width; j < (h + 1) * width; ++j)
                sum -= std::exp(element(sinks, h)) / std::exp(at(lse, h, t)) * at(dout, t, j) * at(out, t, j);
        set_element(dsinks, h, sum);
    }
}

// Copies the rows of each slot together and computes attention for its last token.
void attention_cached(Exec& exec, Tensor out, Tensor lse, Tensor keys, Tensor values, Tensor q, Tensor k,
                      Tensor v, Tensor slots, Tensor positions, const AttentionShape& s) {
    for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t first = int64_t(element(slots, b)) * s.sequence, last = int64_t(element(positions, b));
        for (int64_t j = 0; j < k.cols(); ++j) set(keys, first + last, j, at(k, b, j));
        for (int64_t j = 0; j < v.cols(); ++j) set(values, first + last, j, at(v, b, j));
        const int64_t count = last + 1;
        const OwnedTensor queries(Dtype::f64, {count, q.cols()}), result(Dtype::f64, {count, out.cols()}),
            log_sums(Dtype::f64, {s.heads, count});
        for (int64_t j = 0; j < q.cols(); ++j) set(queries, last, j, at(q, b, j));
        AttentionShape one = s;
        one.batch = 1;
        one.sequence = count;
        attention(exec, result, log_sums, queries, keys.slice_rows(first, count),
                  values.slice_rows(first, count), {}, one);
        for (int64_t j = 0; j < out.cols(); ++j) set(out, b, j, at(result, last, j));
        for (int64_t h = 0; h < s.heads; ++h) set(lse, h, b, at(log_sums, h, last));
    }
}

void attention_backward(Exec&, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor, Tensor q,
                        Tensor k, Tensor v, Tensor document_start, const AttentionShape& s, bool add_to_dq) {
    std::vector<double> q_sum(size_t(dq.count()), 0.0), k_sum(size_t(dk.count()), 0.0),
        v_sum(size_t(dv.count()), 0.0);
    if (add_to_dq) q_sum = copy(dq);
    const int64_t keys = s.keys().count;
    for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
            for (int64_t t = 0; t < s.sequence; ++t) {
                double log_sum = 0;
                const std::vector<double> p = weights(q, k, document_start, s, b, h, t, log_sum);
                const int64_t row = b * s.sequence + t, q_first = h * s.head_dim,
                              kv_head = h / (s.heads / s.kv_heads), k_first = kv_head * s.head_dim,
                              v_first = kv_head * s.value_width(), out_first = h * s.value_width();
                double delta = 0;
                for (int64_t j = 0; j < s.value_width(); ++j)
                    delta += at(dout, row, out_first + j) * at(out, row, out_first + j);
                for (int64_t i = 0; i < keys; ++i) {
                    const int64_t other = b * keys + i;
                    double dp = 0;
                    for (int64_t j = 0; j < s.value_width(); ++j) {
                        const double d = at(dout, row, out_first + j);
                        dp += d * at(v, other, v_first + j);
                        v_sum[size_t(other * v.cols() + v_first + j)] += p[size_t(i)] * d;
                    }
                    const double ds = p[size_t(i)] * (dp - delta) * s.scale;
                    for (int64_t j = 0; j < s.head_dim; ++j) {
                        const auto q_at = size_t(row * q.cols() + q_first + j);
                        const auto k_at = size_t(other * k.cols() + k_first + j);
                        q_sum[q_at] += ds * at(k, other, k_first + j);
                        k_sum[k_at] += ds * at(q, row, q_first + j);
                    }
                }
            }
    for (int64_t i = 0; i < dq.count(); ++i) set_element(dq, i, q_sum[size_t(i)]);
    for (int64_t i = 0; i < dk.count(); ++i) set_element(dk, i, k_sum[size_t(i)]);
    for (int64_t i = 0; i < dv.count(); ++i) set_element(dv, i, v_sum[size_t(i)]);
}

void swiglu(Exec&, Tensor y, Tensor gate_up) {
    for (int64_t t = 0; t < y.rows(); ++t)
        for (int64_t j = 0; j < y.cols(); ++j) {
            const double g = at(gate_up, t, j);
            set(y, t, j, g * sigmoid(g) * at(gate_up, t, y.cols() + j));
        }
}

void swiglu_backward(Exec&, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    const int64_t width = dy.cols();
    for (int64_t t = 0; t < dy.rows(); ++t)
        for (int64_t j = 0; j < width; ++j) {
            const double g = at(gate_up, t, j), u = at(gate_up, t, width + j), d = at(dy, t, j);
            set(dgate_up, t, j, d * u * (sigmoid(g) + g * sigmoid(g) * sigmoid(-g)));
            set(dgate_up, t, width + j, d * g * sigmoid(g));
        }
}

void geglu(Exec&, Tensor y, Tensor gate_up) {
    for (int64_t t = 0; t < y.rows(); ++t)
        for (int64_t j = 0; j < y.cols(); ++j)
            set(y, t, j, gelu(at(gate_up, t, j)) * at(gate_up, t, y.cols() + j));
}

void geglu_backward(Exec&, Tensor dgate_up, Tensor dy, Tensor gate_up) {
    const int64_t width = dy.cols();
    for (int64_t t = 0; t < dy.rows(); ++t)
        for (int64_t j = 0; j < width; ++j) {
            const double g = at(gate_up, t, j), u = at(gate_up, t, width + j), d = at(dy, t, j);
            set(dgate_up, t, j, d * u * gelu_slope(g));
            set(dgate_up, t, width + j, d * gelu(g));
        }
}

void log_sum_exp(Exec&, Tensor lse, Tensor at_label, Tensor logits, Tensor labels, VocabularyPart part) {
    for (int64_t t = 0; t < logits.rows(); ++t) {
        double sum = 0, value = 0;
        for (int64_t j = 0; j < logits.cols(); ++j) {
            sum += std::exp(part.scale * at(logits, t, j));
            if (part.first + j == index_at(labels, t)) value = part.scale * at(logits, t, j);
        }
        set_element(lse, t, std::log(sum));
        set_element(at_label, t, value);
    }
}

void add_log_sum_exp(Exec&, Tensor lse, Tensor parts) {
    for (int64_t t = 0; t < lse.count(); ++t) {
        double sum = 0;
        for (int64_t p = 0; p < parts.rows(); ++p) sum += std::exp(at(parts, p, t));
        set_element(lse, t, std::log(sum));
    }
}

void largest_of_rows(Exec&, Tensor largest, Tensor logits, double scale) {
    for (int64_t t = 0; t < logits.rows(); ++t) {
        double most = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < logits.cols(); ++j) most = std::max(most, at(logits, t, j));
        set(largest, t, 0, scale * most);
    }
}

void cross_entropy(Exec&, Tensor losses, Tensor z_losses, Tensor dlogits, Tensor logits, Tensor labels,
                   Tensor lse, Tensor at_label, VocabularyPart part, double weight, double z_weight,
                   const StepScalars& s) {
    const double scale = weight * s.loss_scale, w = z_losses ? z_weight : 0;
    for (int64_t t = 0; t < logits.rows(); ++t) {
        const bool ignored = index_at(labels, t) == -100;
        const double z = ignored ? 0 : scale * w * element(lse, t) * element(lse, t);
        if (z_losses) set_element(z_losses, t, z);
        set_element(losses, t, ignored ? 0 : scale * (element(lse, t) - element(at_label, t)) + z);
        if (!dlogits) continue;
        for (int64_t j = 0; j < logits.cols(); ++j) {
            const double p = std::exp(part.scale * at(logits, t, j) - element(lse, t));
            const bool is_label = part.first + j == index_at(labels, t);
            set(dlogits, t, j,
                ignored ? 0 : part.scale * scale * (p - is_label + 2 * w * element(lse, t) * p));
        }
    }
}

void cast(Exec&, Tensor out, Tensor a) {
    if (size_of(a.dtype) == 1) out.dtype = a.dtype = Dtype::u8;
    for (int64_t i = 0; i < a.count(); ++i) set_element(out, i, element(a, i));
}
void add(Exec&, Tensor out, Tensor a) {
    for (int64_t i = 0; i < a.count(); ++i) set_element(out, i, element(out, i) + element(a, i));
}
void sum_parts(Exec&, Tensor out, Tensor parts) {
    for (int64_t i = 0; i < out.count(); ++i) {
        double sum = 0;
        for (int64_t j = i; j < parts.count(); j += out.count()) sum += element(parts, j);
        set_element(out, i, sum);
    }
}
void zero(Exec&, Tensor out) {
    for (int64_t i = 0; i < out.count(); ++i) set_element(out, i, 0);
}

void draw(Exec&, Tensor out, const Init& init, uint64_t seed, const ElementPlace& place) {
    const RandomStream random(seed, place.stream);
    const double below = init.bound > 0 && init.std > 0 ? normal_cdf(-init.bound / init.std) : 0;
    for (int64_t i = 0; i < out.count(); ++i) {
        const int64_t run = place.run > 0 ? place.run : out.count();
        const double u =
            random.uniform(place.first_index + uint64_t(i / run) * place.stride + uint64_t(i % run));
        set_element(out, i,
                    init.std > 0     ? init.std * normal_quantile(below + u * (1 - 2 * below))
                    : init.bound > 0 ? init.bound * (2 * u - 1)
                                     : init.constant);
    }
}

void adam(Exec&, const AdamTensors& t, const AdamOptions& o, const ElementPlace&, const StepScalars& step) {
    const GroupScalars& s = step.groups[o.group];
    const std::vector<double> before = copy(t.master);
    for (int64_t i = 0; i < t.master.count(); ++i) {
        double w = before[size_t(i)], g = element(t.grad, i) * step.clip;
        g += o.decay * w;
        w -= s.learning_rate * s.weight_decay * w;
        const double m = o.beta1 * element(t.exp_avg, i) + (1 - o.beta1) * g;
        const double v = o.beta2 * element(t.exp_avg_sq, i) + (1 - o.beta2) * g * g;
        const double m_hat = m / s.bias_correction1, v_hat = v / s.bias_correction2;
        w -= s.learning_rate * m_hat / (std::sqrt(v_hat) + o.eps);
        set_element(t.exp_avg, i, m);
        set_element(t.exp_avg_sq, i, v);
        set_element(t.master, i, w);
        if (t.compute) set_element(t.compute, i, w);
    }
}

void momentum(Exec&, Tensor buffer, Tensor direction, const MomentumOptions& o, const StepScalars& s) {
    for (int64_t i = 0; i < buffer.count(); ++i) {
        const double g = s.clip * element(direction, i);
        const double next = o.momentum * element(buffer, i) + (1 - o.momentum) * g;
        set_element(buffer, i, next);
        set_element(direction, i, o.nesterov ? (1 - o.momentum) * g + o.momentum * next : next);
    }
}
void normalize(Exec&, Tensor x, const double* squared_norm, double smallest) {
    for (int64_t i = 0; i < x.count(); ++i)
        set_element(x, i, element(x, i) / std::max(std::sqrt(*squared_norm), smallest));
}
void scaled_sum(Exec&, Tensor out, double alpha, Tensor a, double beta, Tensor b) {
    for (int64_t i = 0; i < out.count(); ++i)
        set_element(out, i, alpha * element(a, i) + beta * element(b, i));
}
void descend(Exec&, Tensor master, Tensor direction, Tensor compute, const DescentOptions& o,
             const ElementPlace&, const StepScalars& s) {
    const double rate = s.groups[o.group].learning_rate, decay = s.groups[o.group].weight_decay;
    for (int64_t i = 0; i < master.count(); ++i) {
        double w = element(master, i);
        w = w - rate * decay * w - rate * o.factor * element(direction, i);
        set_element(master, i, w);
        if (compute) set_element(compute, i, w);
    }
}

}  // namespace

const Kernels& naive_kernels() {
    static const Kernels table = with_modulation(with_quantization(with_experts({
        .name = "naive",
        .thin_rows = 16,
        .row_multiple = 1,
        .gemm = gemm,
        .embedding = embedding,
        .embedding_backward = embedding_backward,
        .rms_norm = rms_norm,
        .rms_norm_backward = rms_norm_backward,
        .layer_norm = layer_norm,
        .layer_norm_backward = layer_norm_backward,
        .head_norm = head_norm,
        .head_norm_backward = head_norm_backward,
        .row_products = row_products,
        .divided_norm = divided_norm,
        .divided_norm_backward = divided_norm_backward,
        .rope = rope,
        .scale_rows = scale_rows,
        .add_bias = add_bias,
        .add_bias_backward = add_bias_backward,
        .latent_keys = latent_keys,
        .latent_keys_backward = latent_keys_backward,
        .attention = attention,
        .merge_attention = merge_attention,
        .attention_backward = attention_backward,
        .attention_sink = attention_sink,
        .attention_sink_backward = attention_sink_backward,
        .attention_cached = attention_cached,
        .swiglu = swiglu,
        .swiglu_backward = swiglu_backward,
        .geglu = geglu,
        .geglu_backward = geglu_backward,
        .log_sum_exp = log_sum_exp,
        .add_log_sum_exp = add_log_sum_exp,
        .largest_of_rows = largest_of_rows,
        .cross_entropy = cross_entropy,
        .cast = cast,
        .add = add,
        .sum_parts = sum_parts,
        .zero = zero,
        .draw = draw,
        .sum = nullptr,
        .sum_of_squares = nullptr,
        .finish_norm = nullptr,
        .adam = adam,
        .momentum = momentum,
        .normalize = normalize,
        .scaled_sum = scaled_sum,
        .descend = descend,
    })));
    return table;
}

}  // namespace coeus::test
