// SPDX-License-Identifier: Apache-2.0
// Makes the table of a backend from its functions, so that Exec's observers, if there are any, are notified
// of every call, with the floating-point operations and bytes computed from its operands. Only this file
// knows about observers. A backend is a type whose static members are its functions; an entry without a
// function computes nothing.
#pragma once

#include "coeus/kernels/kernels.hpp"

#include <array>
#include <span>
#include <type_traits>

namespace coeus {

/// The type of an entry's function.
template <class Entry>
using Function = std::remove_pointer_t<Entry>;

/// The cost of a call: its arithmetic (for other kernels than matrix products an estimate of a few operations
/// per element), and the bytes of its operands, each read or written once.
struct Cost {
    double flops, bytes;
};

namespace cost {

template <class... Tensors>
double bytes(const Tensors&... t) {
    return (double(t.bytes()) + ... + 0.0);
}
/// Those of the rounded rows that a kernel writes beside y.
inline double rounded_bytes(const Tensor& y) {
    return y.rounded ? double(y.count()) * double(y.rounded_scale ? 1 : 2) : 0;
}
/// Number of pairs of a query and a key that it sees, over all heads; document masks are ignored.
inline double seen_pairs(const AttentionShape& shape) {
    const AttentionShape s = causal_form(shape);
    const SequencePart queries = s.queries(), keys = s.keys();
    double pairs = 0;
    for (int64_t i = 0; i < queries.count; ++i) {
        const int64_t index = queries.index(i);
        pairs += double(keys.below(index + 1) - keys.below(first_key(s, nullptr, index)));
    }
    return double(s.batch) * double(s.heads) * pairs;
}

inline Cost gemm(Tensor d, Operand a, Operand b, Tensor c) {
    const double depth = double(a.is_transposed ? a.tensor.rows() : a.tensor.cols());
    return {2 * double(d.count()) * depth, bytes(d, a.tensor, b.tensor) + (c ? bytes(c) : 0)};
}
inline Cost largest_magnitudes(Tensor bits, Tensor x, ScaleGroups, const Groups&) {
    return {double(x.count()), bytes(bits, x)};
}
inline Cost quantize(Tensor, Tensor x, Tensor, ScaleRule, const Groups&) {
    return {2 * double(x.count()), double(x.count()) * (1 + size_of(x.dtype))};
}
inline Cost quantize_transposed(Tensor, Tensor q, Tensor x, Tensor, ScaleRule) {
    return {2 * double(x.count()), double(x.count()) * ((q ? 2 : 1) + size_of(x.dtype))};
}
inline Cost quantize_values(Tensor y, Tensor x, Tensor, const Form&) {
    return {2 * double(x.count()), bytes(y, x)};
}
inline Cost dequantize(Tensor y, Tensor q) {
    return {double(y.count()), bytes(y, q)};
}
inline Cost scaled_gemm(Tensor d, Operand a, Operand b, Tensor c, bool) {
    return gemm(d, a, b, c);
}
inline Cost embedding(Tensor y, Tensor tokens, Tensor, VocabularyPart) {
    return {0, 2 * bytes(y) + bytes(tokens)};
}
inline Cost embedding_backward(Tensor dtable, Tensor dy, Tensor tokens, VocabularyPart) {
    const int64_t most_rows = std::min(dy.rows(), dtable.rows());  // that tokens of the batch have
    return {double(dy.count()),
            bytes(dy, tokens) + 2 * double(most_rows * dy.cols() * size_of(dtable.dtype))};
}
inline Cost rms_norm(Tensor y, Tensor rstd, Tensor plus, Tensor x, Tensor weight, const NormForm&) {
    return {4 * double(x.count()), bytes(y, rstd, x, weight) + (plus ? bytes(plus) : 0) + rounded_bytes(y)};
}
inline Cost rms_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor rstd,
                              Tensor weight, const NormForm&) {
    return {10 * double(x.count()), bytes(dx, dweight, dy, x, rstd, weight) + (plus ? bytes(plus) : 0)};
}
inline Cost layer_norm(Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor weight, double) {
    return {7 * double(x.count()), bytes(y, mean, rstd, x) + (weight ? bytes(weight) : 0) + rounded_bytes(y)};
}
inline Cost layer_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor plus, Tensor x, Tensor mean,
                                Tensor rstd, Tensor weight) {
    return {14 * double(x.count()), bytes(dx, dy, x, mean, rstd) + (dweight ? bytes(dweight) : 0) +
                                        (plus ? bytes(plus) : 0) + (weight ? bytes(weight) : 0)};
}
inline Cost modulate(Tensor y, Tensor plus, Tensor x, Tensor shift, Tensor scale, const SequenceRows&,
                     double) {
    return {4 * double(x.count()),
            bytes(y, x, scale) + (plus ? bytes(plus) : 0) + (shift ? bytes(shift) : 0)};
}
inline Cost modulate_backward(Tensor dx, Tensor dshift, Tensor dscale, Tensor dy, Tensor x, Tensor scale,
                              const SequenceRows&, double) {
    return {5 * double(x.count()), bytes(dx, dscale, dy, x, scale) + (dshift ? bytes(dshift) : 0)};
}
inline Cost head_norm(Tensor y, Tensor x, Tensor weight, int64_t, const NormForm&) {
    return {4 * double(x.count()), bytes(y, x) + (weight ? bytes(weight) : 0)};
}
inline Cost head_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight, int64_t,
                               const NormForm&) {
    return {12 * double(x.count()),
            bytes(dx, dy, x) + (dweight ? bytes(dweight) : 0) + (weight ? bytes(weight) : 0)};
}
inline Cost row_products(Tensor sums, Tensor a, Tensor b, Tensor weight, double) {
    return {3 * double(a.count()),
            bytes(sums, a) + (a.data == b.data ? 0 : bytes(b)) + (weight ? bytes(weight) : 0)};
}
inline Cost divided_norm(Tensor y, Tensor x, Tensor squares, Tensor weight, int64_t, const NormForm&) {
    return {2 * double(x.count()), bytes(y, x, squares, weight)};
}
inline Cost divided_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor squares,
                                  Tensor products, Tensor weight, int64_t, const NormForm&) {
    return {7 * double(x.count()),
            bytes(dx, dy, x, squares, products, weight) + (dweight ? bytes(dweight) : 0)};
}
inline Cost rope(Tensor x, Tensor table, Tensor positions, const RopeShape& shape, bool) {
    const double part = double(shape.width) / double(shape.head_dim);
    return {3 * part * double(x.count()), 2 * part * bytes(x) + bytes(table, positions)};
}
inline Cost scale_rows(Tensor x, Tensor factors, Tensor positions) {
    return {double(x.count()), 2 * bytes(x) + bytes(factors, positions)};
}
inline Cost add_bias(Tensor y, Tensor bias) {
    return {double(y.count()), 2 * bytes(y) + bytes(bias)};
}
inline Cost add_bias_backward(Tensor dbias, Tensor dy) {
    return {double(dy.count()), bytes(dy) + 2 * bytes(dbias)};
}
inline Cost latent_keys(Tensor k, Tensor v, Tensor kv, Tensor pe, const LatentShape&) {
    return {0, bytes(k, v, kv, pe)};
}
inline Cost latent_keys_backward(Tensor dkv, Tensor dpe, Tensor dk, Tensor dv, const LatentShape& s) {
    return {double(dpe.count() * s.heads), bytes(dkv, dpe, dk, dv)};
}
inline Cost attention(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor, const AttentionShape& s) {
    return {2 * seen_pairs(s) * double(s.head_dim + s.value_width()), bytes(out, lse, q, k, v)};
}
inline Cost merge_attention(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                            const AttentionShape& s) {
    const Cost other = attention(out, lse, q, k, v, document_start, s);
    return {other.flops + 3 * double(out.count()), other.bytes + bytes(out, lse)};
}
inline Cost attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse, Tensor q,
                               Tensor k, Tensor v, Tensor, const AttentionShape& s, bool add_to_dq) {
    return {seen_pairs(s) * double(6 * s.head_dim + 4 * s.value_width()),
            (add_to_dq ? 2 : 1) * bytes(dq) + bytes(dk, dv, dout, out, lse, q, k, v)};
}
inline Cost attention_sink(Tensor out, Tensor lse, Tensor sinks) {
    return {double(out.count()), 2 * bytes(out, lse) + bytes(sinks)};
}
inline Cost attention_sink_backward(Tensor dsinks, Tensor dout, Tensor out, Tensor lse, Tensor sinks) {
    return {2 * double(out.count()), bytes(dout, out, lse, sinks) + 2 * bytes(dsinks)};
}
inline Cost attention_cached(Tensor out, Tensor lse, Tensor keys, Tensor values, Tensor q, Tensor k, Tensor v,
                             Tensor slots, Tensor positions, const AttentionShape& s) {
    // positions may be in a GPU's memory: as many rows are counted as a full cache would need
    const double seen = double(s.batch * (s.sequence - first_key(s, nullptr, s.sequence - 1)));
    return {2 * seen * double(s.heads * (s.head_dim + s.value_width())),
            bytes(out, lse, q, k, v, slots, positions) +
                seen * double((keys.cols() + values.cols()) * size_of(keys.dtype))};
}
inline Cost swiglu(Tensor y, Tensor gate_up) {
    return {6 * double(y.count()), bytes(y, gate_up) + rounded_bytes(y)};
}
inline Cost swiglu_backward(Tensor dgate_up, Tensor dy, Tensor gate_up) {
    return {12 * double(dy.count()), bytes(dgate_up, dy, gate_up)};
}
inline Cost geglu(Tensor y, Tensor gate_up) {
    return {10 * double(y.count()), bytes(y, gate_up) + rounded_bytes(y)};
}
inline Cost geglu_backward(Tensor dgate_up, Tensor dy, Tensor gate_up) {
    return {20 * double(dy.count()), bytes(dgate_up, dy, gate_up)};
}
inline Cost activation(Tensor y, Tensor x, Activation) {
    return {8 * double(y.count()), bytes(y, x)};
}
inline Cost activation_backward(Tensor dx, Tensor dy, Tensor x, Activation) {
    return {16 * double(dx.count()), bytes(dx, dy, x)};
}
inline Cost route(Tensor experts, Tensor weights, Tensor, Tensor logits, Tensor, const RouteOptions&) {
    return {4 * double(logits.count()), bytes(experts, weights, logits)};
}
inline Cost route_backward(Tensor dlogits, Tensor dweights, Tensor logits, Tensor experts,
                           const RouteOptions&) {
    return {6 * double(logits.count()), bytes(dlogits, dweights, logits, experts)};
}
inline Cost group_by_expert(Tensor slots, Tensor sources, const Groups&, Tensor experts, int64_t*) {
    return {0, bytes(slots, sources, experts)};
}
inline Cost units_of_rows(Tensor units, Tensor assignments, Tensor experts, const RankRows&) {
    return {0, bytes(units, experts) + (assignments ? bytes(assignments, experts) : 0)};
}
inline Cost choices_of_rows(Tensor choices, Tensor numbers, Tensor places, Tensor slots, Tensor sources,
                            Tensor experts, Tensor weights, const RankRows&) {
    return {0, bytes(choices, numbers, places, slots, sources, experts, weights)};
}
inline Cost rows_in_blocks(Tensor slots, Tensor sources, Tensor sorted, Tensor counts, int64_t*) {
    return {0, bytes(slots, sources, sorted, counts)};
}
inline Cost gather_rows(Tensor out, Tensor in, Tensor sources, int64_t) {
    return {0, bytes(out, sources) + double(out.count() * size_of(in.dtype))};
}
inline Cost sum_rows(Tensor y, Tensor plus, Tensor rows_of_all, Tensor slots) {
    // each row has at most one slot
    const double rows = double(std::min(slots.count(), rows_of_all.rows()) * y.cols());
    return {rows, rows * size_of(y.dtype) + bytes(y, slots) + (plus ? bytes(plus) : 0)};
}
inline Cost grouped_gemm(Tensor d, Tensor a, Operand b, const Groups& groups) {
    const double rows = double(groups.assignments);
    return {2 * rows * double(d.cols()) * double(a.cols()),
            rows * double(d.cols() * size_of(d.dtype) + a.cols() * size_of(a.dtype)) + bytes(b.tensor)};
}
inline Cost grouped_gemm_weights(Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups) {
    const double rows = double(groups.assignments);
    return {2 * rows * double(a.cols()) * double(b.cols()),
            rows * double((a.cols() + b.cols()) * size_of(a.dtype)) + (c ? 2 : 1) * bytes(d)};
}
inline Cost scaled_grouped_gemm(Tensor d, Tensor a, Operand b, const Groups& groups, bool) {
    return grouped_gemm(d, a, b, groups);
}
inline Cost scaled_grouped_gemm_weights(Tensor d, Tensor a, Tensor b, Tensor c, const Groups& groups) {
    return grouped_gemm_weights(d, a, b, c, groups);
}
inline Cost add_group_bias(Tensor y, Tensor bias, Tensor, const Groups& groups) {
    const double elements = double(groups.assignments * y.cols());
    return {2 * elements, 2 * elements * size_of(y.dtype) + bytes(bias)};
}
inline Cost add_group_bias_backward(Tensor dbias, Tensor, Tensor dy, Tensor bias, Tensor,
                                    const Groups& groups) {
    const double elements = double(groups.assignments * dy.cols());
    return {4 * elements, elements * size_of(dy.dtype) + bytes(bias) + 2 * bytes(dbias)};
}
inline Cost gate(Tensor y, Tensor gate_up, Tensor, const Groups& groups, const Gate&) {
    const double elements = double((groups ? groups.assignments : y.rows()) * y.cols());
    return {7 * elements, 3 * elements * size_of(gate_up.dtype)};
}
inline Cost gate_backward(Tensor, Tensor, Tensor, Tensor dy, Tensor gate_up, Tensor, const Groups& groups,
                          const Gate&) {
    const double elements = double((groups ? groups.assignments : dy.rows()) * dy.cols());
    return {16 * elements, 6 * elements * size_of(gate_up.dtype)};
}
inline Cost count_by_sequence(Tensor counts, Tensor experts, const SequenceRows&) {
    return {0, bytes(counts, experts)};
}
inline Cost balance_sequences(Tensor dlogits, Tensor losses, Tensor logits, Tensor, const SequenceRows&,
                              double, const RouteOptions&, const StepScalars&) {
    return {12 * double(logits.count()), 2 * bytes(dlogits) + bytes(losses, logits)};
}
inline Cost balance_experts(Tensor bias, Tensor loads, double, const StepScalars&) {
    return {4 * double(bias.count()), 2 * bytes(bias) + bytes(loads)};
}
inline Cost log_sum_exp(Tensor lse, Tensor at_label, Tensor logits, Tensor labels, VocabularyPart) {
    return {3 * double(logits.count()), bytes(lse, at_label, logits, labels)};
}
inline Cost add_log_sum_exp(Tensor lse, Tensor parts) {
    return {3 * double(parts.count()), bytes(lse, parts)};
}
inline Cost largest_of_rows(Tensor largest, Tensor logits, double) {
    return {double(logits.count()), bytes(largest, logits)};
}
inline Cost cross_entropy(Tensor losses, Tensor z_losses, Tensor dlogits, Tensor logits, Tensor labels,
                          Tensor lse, Tensor at_label, VocabularyPart, double, double, const StepScalars&) {
    return {dlogits ? (z_losses ? 4 : 3) * double(logits.count()) : 0,
            bytes(losses, labels, lse, at_label) + (z_losses ? bytes(z_losses) : 0) +
                (dlogits ? bytes(dlogits, logits) : 0)};
}
inline Cost squared_error(Tensor losses, Tensor dprediction, Tensor prediction, Tensor target, Tensor weights,
                          const SequenceRows&, const StepScalars&) {
    return {(dprediction ? 4 : 3) * double(prediction.count()),
            bytes(losses, prediction, target, weights) + (dprediction ? bytes(dprediction) : 0)};
}
inline Cost cast(Tensor out, Tensor a) {
    return {0, bytes(out, a)};
}
inline Cost add(Tensor out, Tensor a) {
    return {double(out.count()), 2 * bytes(out) + bytes(a)};
}
inline Cost sum_parts(Tensor out, Tensor parts) {
    return {double(parts.count()), bytes(out, parts)};
}
inline Cost zero(Tensor out) {
    return {0, bytes(out)};
}
inline Cost sum(double*, Tensor a) {
    return {double(a.count()), bytes(a)};
}
inline Cost sum_of_squares(double*, Tensor a) {
    return {2 * double(a.count()), bytes(a)};
}
inline Cost finish_norm(StepScalars&, double) {
    return {0, 0};
}
inline Cost draw(Tensor out, const Init& init, uint64_t, const ElementPlace&) {
    const bool is_constant = init.std == 0 && init.bound == 0, is_normal = init.std != 0;
    return {double(out.count()) * (is_constant ? 0 : is_normal ? 60 : 3), bytes(out)};
}
inline Cost adam(const AdamTensors& t, const AdamOptions&, const ElementPlace&, const StepScalars&) {
    return {14 * double(t.master.count()), 2 * bytes(t.master, t.exp_avg, t.exp_avg_sq) + bytes(t.grad) +
                                               (t.compute ? bytes(t.compute) : 0)};
}

inline Cost momentum(Tensor buffer, Tensor direction, const MomentumOptions&, const StepScalars&) {
    return {6 * double(buffer.count()), 2 * bytes(buffer, direction)};
}
inline Cost normalize(Tensor x, const double*, double) {
    return {double(x.count()), 2 * bytes(x)};
}
inline Cost scaled_sum(Tensor out, double, Tensor a, double, Tensor b) {
    return {3 * double(out.count()), bytes(out, a, b)};
}
inline Cost descend(Tensor master, Tensor direction, Tensor compute, const DescentOptions&,
                    const ElementPlace&, const StepScalars&) {
    return {3 * double(master.count()),
            2 * bytes(master) + bytes(direction) + (compute ? bytes(compute) : 0)};
}

}  // namespace cost

// The tensors among a call's arguments.
class Operands {
public:
    template <class... Args>
    explicit Operands(const Args&... args) {
        (add(args), ...);
    }
    std::span<const Tensor> all() const { return {tensors_.data(), count_}; }

private:
    template <class Scalar>
    void add(const Scalar&) {}
    void add(const Tensor& tensor) { tensors_[count_++] = tensor; }
    void add(const Operand& operand) { add(operand.tensor); }
    void add(const Groups& groups) {
        add(groups.begins);
        add(groups.counts);
    }
    void add(const AdamTensors& t) {
        for (const Tensor& tensor : {t.master, t.exp_avg, t.exp_avg_sq, t.compute, t.grad}) add(tensor);
    }
    std::array<Tensor, 12> tensors_;
    size_t count_ = 0;
};

template <auto kernel, auto cost_of>
struct Observed;
template <class... Args, void (*kernel)(Exec&, Args...), Cost (*cost_of)(Args...)>
struct Observed<kernel, cost_of> {
    template <const char* name>
    static void call(Exec& exec, Args... args) {
        if (exec.observers.none()) return kernel(exec, args...);
        const Cost c = cost_of(args...);
        exec.observers.begin(name, c.flops, c.bytes);
        exec.observers.operands(Operands(args...).all());
        kernel(exec, args...);
        exec.observers.end();
    }
};

template <class Entry>
struct NoOp;
template <class... Args>
struct NoOp<void (*)(Exec&, Args...)> {
    static void call(Exec&, Args...) {}
};

namespace kernel_name {

#define COEUS_NAME(name) inline constexpr char name[] = #name;
COEUS_EACH_KERNEL(COEUS_NAME)
#undef COEUS_NAME

}  // namespace kernel_name

/// The table of a backend.
template <class Backend>
constexpr Kernels observed_table(const char* name, int64_t thin_rows, int64_t row_multiple, bool takes_values,
                                 int64_t most_row_bytes) {
    Kernels table{};
    table.name = name;
    table.thin_rows = thin_rows;
    table.row_multiple = row_multiple;
    table.takes_values = takes_values;
    table.most_row_bytes = most_row_bytes;
#define COEUS_ENTRY(entry)                                                                      \
    if constexpr (requires { &Backend::entry; })                                                \
        table.entry = Observed<Backend::entry, cost::entry>::template call<kernel_name::entry>; \
    else                                                                                        \
        table.entry =                                                                           \
            Observed<NoOp<decltype(Kernels::entry)>::call, cost::entry>::template call<kernel_name::entry>;
    COEUS_EACH_KERNEL(COEUS_ENTRY)
#undef COEUS_ENTRY
    return table;
}

}  // namespace coeus
