// SPDX-License-Identifier: Apache-2.0
// gpu_rows [NAME ...] [--small]: the kernels that memory bounds on the first GPU, in bfloat16, at the shapes
// of a local batch of Llama 2 7B (16 x 1024 tokens) and Llama 3 8B (1 x 8192), and experts at those of
// DeepSeek V2 Lite. Each NAME is a kernel of the table (rms_norm, adam) or a group: norms, rope, swiglu,
// loss, quantize, updates, casts, experts. Without one, all are measured, in less than 10 s on an H200.
// --small: tiny shapes, for a test. It prints one JSON object per line: first the GPU's own copy, then for
// each kernel the bytes that it has to move (each operand once), the median and the shortest microseconds of
// a call by the GPU's clock, GB/s, and the share of the copy's.
#include "coeus/base/error.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/plan/copy_rate.hpp"
#include "coeus/state/step_state.hpp"
#include "on_gpu.hpp"

#include <cstdio>
#include <functional>

using namespace coeus;
using namespace coeus::bench;

namespace {

constexpr Dtype bf16_ = Dtype::bf16, f32 = Dtype::f32;
constexpr double eps = 1e-5;

struct Llama {
    const char* name;
    int64_t tokens, sequence, dim, ffn, heads, kv_heads, vocabulary;
    int64_t head_dim() const { return dim / heads; }
};
constexpr Llama llamas[] = {{"7B", 16384, 1024, 4096, 11008, 32, 32, 32000},
                            {"8B", 8192, 8192, 4096, 14336, 32, 8, 128256}};
constexpr Llama small_llamas[] = {{"small", 64, 32, 64, 96, 4, 2, 320}};

struct Experts {
    const char* name;
    int64_t tokens, number, top_k, dim, hidden;
};
constexpr Experts experts_of_a_layer = {"16B", 8192, 64, 6, 2048, 1408},
                  small_experts = {"small", 64, 4, 2, 64, 32};

/// A group of kernels that share operands.
struct Group {
    const char* name;
    std::vector<const char*> kernels;
};
const std::vector<Group> all_groups = {
    {"norms",
     {"rms_norm", "rms_norm_backward", "layer_norm", "layer_norm_backward", "head_norm", "head_norm_backward",
      "row_products", "divided_norm", "divided_norm_backward", "modulate", "modulate_backward"}},
    {"rope", {"rope"}},
    {"swiglu", {"swiglu", "swiglu_backward", "geglu", "geglu_backward", "activation", "activation_backward"}},
    {"loss", {"log_sum_exp", "cross_entropy", "embedding", "embedding_backward"}},
    {"quantize", {"largest_magnitudes", "quantize", "quantize_transposed", "dequantize", "scaled_gemm"}},
    {"updates", {"adam", "sum_of_squares"}},
    {"casts", {"cast", "add", "zero", "sum_parts", "add_bias", "add_bias_backward"}},
    {"experts",
     {"route", "route_backward", "group_by_expert", "gather_rows", "sum_rows", "gate", "gate_backward"}},
};

/// The bytes of the calls.
class Bytes : public KernelObserver {
public:
    void begin(const char* /*kernel*/, double /*flops*/, double bytes) override { all += bytes; }
    void end() override {}
    double all = 0;
};

std::string sizes(const Shape& shape) {
    return fmt::format("{} x {}", shape.rows(), shape.cols());
}

using Call = std::function<void(const Kernels&, Exec&)>;

class Bench {
public:
    Bench(const Device& device, std::vector<std::string> names)
        : device_(device), names_(std::move(names)), exec_(device), copy_(copy_rate(exec_, kernels())) {
        fmt::print(R"({{"gpu": "{}", "copy": "{}", "bytes": {:.0f}, "gb_per_s": {:.1f}}})"
                   "\n",
                   device.name(), copy_.by_kernel ? "cast" : "cudaMemcpyAsync", 2 * double(copy_.bytes),
                   copy_.bytes_per_second / 1e9);
        std::fflush(stdout);
    }

    void run(const Llama& llama) {
        model_ = llama.name;
        group("norms", [&] {
            norms(llama);
            divided_norms(llama);
            modulation(llama);
        });
        group("rope", [&] { rope(llama); });
        group("swiglu", [&] { swiglu(llama); });
        group("loss", [&] { loss(llama); });
        group("quantize", [&] { quantize(llama); });
        group("updates", [&] { updates(llama); });
        group("casts", [&] { casts(llama); });
    }
    void run(const Experts& experts) {
        model_ = experts.name;
        group("experts", [&] { rows_of_experts(experts); });
    }

    /// All names that an argument may have.
    static std::vector<std::string> known_names() {
        std::vector<std::string> all;
        for (const auto& [name, members] : all_groups) {
            all.emplace_back(name);
            for (const char* kernel : members)
                if (std::ranges::find(all, kernel) == all.end()) all.emplace_back(kernel);
        }
        return all;
    }

private:
    const Kernels& kernels() const { return kernels_of(device_.backend()); }
    bool is_named(const char* name) const { return std::ranges::find(names_, name) != names_.end(); }

    /// Calls `measure_all` if the group or one of its kernels is wanted.
    void group(const char* name, const std::function<void()>& measure_all) {
        whole_group_ = names_.empty() || is_named(name);
        const auto found = std::ranges::find(all_groups, std::string_view(name),
                                             [](const Group& g) { return std::string_view(g.name); });
        if (whole_group_ || std::ranges::any_of(found->kernels, [&](const char* k) { return is_named(k); }))
            measure_all();
    }

    void measure(const char* kernel, const std::string& of, const Call& call) {
        if (!whole_group_ && !is_named(kernel)) return;
        Exec planning;
        planning.architecture = exec_.architecture;
        Bytes bytes;
        {
            const Observation seen = planning.observers.add(bytes);
            call(dry_kernels_of(device_.backend()), planning);
        }
        exec_.queue->finish();
        exec_.workspace = Arena(planning.workspace.peak(), "kernel workspace", device_.memory());
        const Seconds seconds = seconds_of(exec_, [&] { call(kernels(), exec_); });
        exec_.queue->finish();
        const double rate = bytes.all / seconds.median;
        fmt::print(R"({{"model": "{}", "kernel": "{}", "of": "{}", "bytes": {:.0f}, "us": {:.1f}, )"
                   R"("us_best": {:.1f}, "gb_per_s": {:.1f}, "share_of_copy": {:.3f}}})"
                   "\n",
                   model_, kernel, of, bytes.all, seconds.median * 1e6, seconds.best * 1e6, rate / 1e9,
                   rate / copy_.bytes_per_second);
        std::fflush(stdout);
    }

    OwnedTensor numbers(Dtype type, const Shape& shape, double middle = 0, double width = 1) const {
        return bench::numbers(device_, type, shape, middle, width);
    }
    OwnedTensor room(Dtype type, const Shape& shape) const { return bench::room(device_, type, shape); }

    void norms(const Llama& l) {
        const std::string of = sizes({l.tokens, l.dim});
        const OwnedTensor x = numbers(bf16_, {l.tokens, l.dim}), w = numbers(bf16_, {l.dim}, 1, 0.1),
                          y = room(bf16_, {l.tokens, l.dim}), dx = numbers(bf16_, {l.tokens, l.dim}),
                          rstd = numbers(f32, {l.tokens}, 1, 0.1), mean = numbers(f32, {l.tokens}, 0, 0.1),
                          dw = numbers(f32, {l.dim});
        measure("rms_norm", of, [&](const Kernels& k, Exec& e) { k.rms_norm(e, y, rstd, {}, x, w, eps); });
        measure("rms_norm", of + " with a residual path",
                [&](const Kernels& k, Exec& e) { k.rms_norm(e, y, rstd, dx, x, w, eps); });
        // as in a block: the gradient of the residual path is what the result replaces
        measure("rms_norm_backward", of,
                [&](const Kernels& k, Exec& e) { k.rms_norm_backward(e, dx, dw, y, dx, x, rstd, w, eps); });
        measure("layer_norm", of,
                [&](const Kernels& k, Exec& e) { k.layer_norm(e, y, mean, rstd, x, w, eps); });
        measure("layer_norm_backward", of, [&](const Kernels& k, Exec& e) {
            k.layer_norm_backward(e, dx, dw, y, dx, x, mean, rstd, w);
        });
        const OwnedTensor of_head = numbers(bf16_, {l.head_dim()}, 1, 0.1),
                          d_of_head = numbers(f32, {l.head_dim()});
        measure("head_norm", fmt::format("{}, heads of {}", of, l.head_dim()),
                [&](const Kernels& k, Exec& e) { k.head_norm(e, y, x, of_head, l.head_dim(), eps); });
        measure("head_norm_backward", fmt::format("{}, heads of {}", of, l.head_dim()),
                [&](const Kernels& k, Exec& e) {
                    k.head_norm_backward(e, dx, d_of_head, y, x, of_head, l.head_dim(), eps);
                });
    }

    /// As if one rank had all columns.
    void divided_norms(const Llama& l) {
        const std::string of = sizes({l.tokens, l.dim});
        const OwnedTensor x = numbers(bf16_, {l.tokens, l.dim}), w = numbers(bf16_, {l.dim}, 1, 0.1),
                          y = room(bf16_, {l.tokens, l.dim}), dx = room(bf16_, {l.tokens, l.dim}),
                          squares = numbers(f32, {l.tokens}, double(l.dim), 1),
                          products = numbers(f32, {l.tokens}), dw = numbers(f32, {l.dim});
        measure("row_products", of,
                [&](const Kernels& k, Exec& e) { k.row_products(e, products, x, y, w, 0); });
        measure("divided_norm", of,
                [&](const Kernels& k, Exec& e) { k.divided_norm(e, y, x, squares, w, l.dim, eps); });
        measure("divided_norm_backward", of, [&](const Kernels& k, Exec& e) {
            k.divided_norm_backward(e, dx, dw, y, x, squares, products, w, l.dim, eps);
        });
    }

    /// As in a block of an image transformer: each sequence has scales and shifts of its own.
    void modulation(const Llama& l) {
        const std::string of = sizes({l.tokens, l.dim});
        const SequenceRows rows = {.first = 0, .length = l.sequence};
        const Shape all = {l.tokens, l.dim};
        const OwnedTensor x = numbers(bf16_, all), dx = numbers(bf16_, all), y = room(bf16_, all),
                          of_sequences = numbers(bf16_, {l.tokens / l.sequence, 2 * l.dim}, 0, 0.1),
                          gradients = room(f32, {l.tokens / l.sequence, 2 * l.dim});
        const auto part = [&](const Tensor& both, int64_t number) {
            return both.slice_cols(number * l.dim, l.dim);
        };
        const Tensor shift = part(of_sequences, 0), scale = part(of_sequences, 1);
        measure("modulate", of,
                [&](const Kernels& k, Exec& e) { k.modulate(e, y, {}, x, shift, scale, rows, 1); });
        measure("modulate", of + " with a residual path",
                [&](const Kernels& k, Exec& e) { k.modulate(e, y, dx, x, {}, scale, rows, 0); });
        measure("modulate_backward", of, [&](const Kernels& k, Exec& e) {
            k.modulate_backward(e, dx, part(gradients, 0), part(gradients, 1), dx, x, scale, rows, 1);
        });
    }

    void rope(const Llama& l) {
        const int64_t turned = (l.heads + l.kv_heads) * l.head_dim(), values = l.kv_heads * l.head_dim();
        const OwnedTensor qkv = numbers(bf16_, {l.tokens, turned + values}),
                          table = numbers(f32, {l.sequence, l.head_dim()}, 0, 0.7);
        int64_t next = 0;
        const OwnedTensor host(Dtype::i32, {l.tokens});
        for (int32_t& position : std::span(host.view.as<int32_t>(), size_t(l.tokens)))
            position = int32_t(next++ % l.sequence);
        const OwnedTensor positions = room(Dtype::i32, {l.tokens});
        device_.copy(positions.view.data, host.view.data, host.view.bytes());
        const Tensor queries_and_keys = qkv.view.slice_cols(0, turned);
        for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
            for (const bool inverse : {false, true})
                measure("rope",
                        fmt::format("{} of {}, {}{}", sizes({l.tokens, turned}), turned + values,
                                    layout == RopeLayout::interleaved ? "pairs" : "halves",
                                    inverse ? ", backward" : ""),
                        [&](const Kernels& k, Exec& e) {
                            k.rope(e, queries_and_keys, table, positions,
                                   RopeShape::whole(l.head_dim(), layout), inverse);
                        });
    }

    void swiglu(const Llama& l) {
        const std::string of = sizes({l.tokens, l.ffn});
        const OwnedTensor gate_up = numbers(bf16_, {l.tokens, 2 * l.ffn}, 0, 3),
                          y = numbers(bf16_, {l.tokens, l.ffn}),
                          gradient = room(bf16_, {l.tokens, 2 * l.ffn});
        measure("swiglu", of, [&](const Kernels& k, Exec& e) { k.swiglu(e, y, gate_up); });
        measure("swiglu_backward", of,
                [&](const Kernels& k, Exec& e) { k.swiglu_backward(e, gradient, y, gate_up); });
        measure("geglu", of, [&](const Kernels& k, Exec& e) { k.geglu(e, y, gate_up); });
        measure("geglu_backward", of,
                [&](const Kernels& k, Exec& e) { k.geglu_backward(e, gradient, y, gate_up); });
        const Tensor x = gate_up.view.slice_cols(0, l.ffn), dx = gradient.view.slice_cols(0, l.ffn);
        measure("activation", of,
                [&](const Kernels& k, Exec& e) { k.activation(e, y, x, Activation::gelu_tanh); });
        measure("activation_backward", of, [&](const Kernels& k, Exec& e) {
            k.activation_backward(e, dx, y, x, Activation::gelu_tanh);
        });
    }

    void loss(const Llama& l) {
        // a chunk of logits
        const int64_t rows = std::min(l.tokens, gpu_chunk_bytes.front() / (2 * l.vocabulary)) / 32 * 32;
        const std::string of = sizes({rows, l.vocabulary});
        const VocabularyPart whole = {0, l.vocabulary};
        const StepState state(device_);
        {
            const OwnedTensor logits = numbers(bf16_, {rows, l.vocabulary}, 0, 4),
                              dlogits = room(bf16_, {rows, l.vocabulary}),
                              labels = indices(device_, {rows}, l.vocabulary), lse = numbers(f32, {rows}, 12),
                              at_label = numbers(f32, {rows}), losses = room(f32, {rows});
            measure("log_sum_exp", of, [&](const Kernels& k, Exec& e) {
                k.log_sum_exp(e, lse, at_label, logits, labels, whole);
            });
            measure("cross_entropy", of, [&](const Kernels& k, Exec& e) {
                k.cross_entropy(e, losses, {}, dlogits, logits, labels, lse, at_label, whole, 1, 0,
                                state.scalars());
            });
        }
        const OwnedTensor table = numbers(bf16_, {l.vocabulary, l.dim}),
                          y = numbers(bf16_, {l.tokens, l.dim}),
                          gradient = numbers(f32, {l.vocabulary, l.dim}),
                          tokens = indices(device_, {l.tokens}, l.vocabulary);
        const std::string words = fmt::format("{} of {}", sizes({l.tokens, l.dim}), l.vocabulary);
        measure("embedding", words,
                [&](const Kernels& k, Exec& e) { k.embedding(e, y, tokens, table, whole); });
        measure("embedding_backward", words,
                [&](const Kernels& k, Exec& e) { k.embedding_backward(e, gradient, y, tokens, whole); });
    }

    /// A matrix in 8 bits, with its scales.
    struct Codes {
        OwnedTensor codes, scales;
        Tensor view(Dtype type, ScaleGroups groups) const {
            Tensor t(codes.view.data, type, codes.view.shape);
            t.groups = groups;
            t.scale = scales.view.data;
            return t;
        }
    };
    Codes codes_of(const Shape& shape, ScaleGroups groups) const {
        // 0.5 to 1.9 in E4M3; scales near 1
        Draws draws(7);
        return {filled(device_, Dtype::u8, shape, [&] { return double(0x30 + draws.next() % 16); }),
                numbers(f32, scale_shape(groups, shape), 1, 0.1)};
    }

    void quantize(const Llama& l) {
        using G = ScaleGroups;
        const Shape shape = {l.tokens, l.dim};
        const OwnedTensor x = numbers(bf16_, shape), y = room(bf16_, shape);
        struct Way {
            const char* name;
            G groups;
            ScaleRule rule;
        };
        for (const auto& [name, groups, rule] :
             {Way{"one scale", G::one, ScaleRule::exact},
              Way{"a scale for each row", G::rows, ScaleRule::power_of_two},
              Way{"a scale for each column", G::cols, ScaleRule::power_of_two}}) {
            const std::string of = fmt::format("{}, {}", sizes(shape), name);
            const OwnedTensor bits = indices(device_, scale_shape(groups, shape), 1);
            const Codes q = codes_of(shape, groups);
            const Tensor codes = q.view(Dtype::fp8_e4m3, groups);
            const auto largest = [&, groups = groups](const Kernels& k, Exec& e) {
                k.largest_magnitudes(e, bits, x, groups, {});
            };
            largest(kernels(), exec_with(largest));  // quantize reads them
            measure("largest_magnitudes", of, largest);
            const Tensor given = groups == G::rows ? Tensor() : bits.view;
            measure("quantize", of, [&, rule = rule](const Kernels& k, Exec& e) {
                k.quantize(e, codes, x, given, rule, {});
            });
            if (groups != G::rows) {
                const Codes t = codes_of({l.dim, l.tokens}, groups == G::one ? G::one : G::rows);
                const Tensor turned = t.view(Dtype::fp8_e4m3, groups == G::one ? G::one : G::rows),
                             as_they_are = groups == G::one ? codes : Tensor();
                measure("quantize_transposed", of, [&, rule = rule](const Kernels& k, Exec& e) {
                    k.quantize_transposed(e, turned, as_they_are, x, given, rule);
                });
            }
            measure("dequantize", of, [&](const Kernels& k, Exec& e) { k.dequantize(e, y, codes); });
        }
        // dx = dy W of few rows, whose matrix is transposed first on GPUs before Blackwell, beside y = x W^T
        constexpr int64_t rows = 16;
        const Codes w = codes_of({l.ffn, l.dim}, G::one), few = codes_of({rows, l.dim}, G::one),
                    others = codes_of({rows, l.ffn}, G::one);
        const OwnedTensor wide = room(bf16_, {rows, l.ffn}), narrow = room(bf16_, {rows, l.dim});
        const std::string matrix = fmt::format("{} rows by {}", rows, sizes({l.ffn, l.dim}));
        const auto one = [](const Codes& c) { return c.view(Dtype::fp8_e4m3, G::one); };
        measure("scaled_gemm", matrix + " as it is", [&](const Kernels& k, Exec& e) {
            k.scaled_gemm(e, wide, one(few), transposed(one(w)), {}, true);
        });
        measure("scaled_gemm", matrix + " transposed", [&](const Kernels& k, Exec& e) {
            k.scaled_gemm(e, narrow, one(others), Operand(one(w)), {}, true);
        });
    }

    void updates(const Llama& l) {
        const StepState state(device_);
        StepScalars scalars;
        scalars.learning_rate = scalars.groups[0].learning_rate = 1e-4;
        scalars.groups[0].bias_correction1 = scalars.groups[0].bias_correction2 = 0.5;
        scalars.groups[0].set_factors();
        scalars.squared_norm = 4;
        scalars.step = 7;
        device_.copy(&state.scalars(), &scalars, sizeof scalars);
        kernels().finish_norm(exec_, state.scalars(), 1);
        // a matrix of attention, and the gate and up matrices
        for (const int64_t rows : {l.dim, 2 * l.ffn}) {
            const Shape shape = {rows, l.dim};
            const std::string of = sizes(shape);
            const OwnedTensor narrow = numbers(bf16_, shape), wide = numbers(f32, shape);
            for (const bool is_wide : {false, true}) {
                const Dtype type = is_wide ? f32 : bf16_;
                const OwnedTensor master = numbers(type, shape), first = numbers(type, shape, 0, 0.1),
                                  second = numbers(type, shape, 0.5, 0.4), compute = room(bf16_, shape);
                for (const Tensor& gradient : {wide.view, narrow.view})
                    measure(
                        "adam",
                        fmt::format("{}, {} state, {} gradient", of, name_of(type), name_of(gradient.dtype)),
                        [&](const Kernels& k, Exec& e) {
                            k.adam(e, {master, first, second, gradient, is_wide ? compute.view : Tensor()},
                                   {}, {.stream = 1}, state.scalars());
                        });
            }
            const OwnedTensor sum = numbers(Dtype::f64, {1});
            for (const Tensor& gradient : {wide.view, narrow.view})
                measure("sum_of_squares", fmt::format("{}, {}", of, name_of(gradient.dtype)),
                        [&](const Kernels& k, Exec& e) {
                            k.sum_of_squares(e, static_cast<double*>(sum.view.data), gradient);
                        });
        }
    }

    void casts(const Llama& l) {
        const Shape shape = {l.ffn, l.dim};
        const std::string of = sizes(shape);
        const OwnedTensor wide = numbers(f32, shape), narrow = numbers(bf16_, shape),
                          x = numbers(bf16_, {l.tokens, l.dim}), bias = numbers(bf16_, {l.dim}),
                          dbias = numbers(f32, {l.dim});
        measure("cast", of + ", float32 to bfloat16",
                [&](const Kernels& k, Exec& e) { k.cast(e, narrow, wide); });
        measure("cast", of + ", bfloat16 to float32",
                [&](const Kernels& k, Exec& e) { k.cast(e, wide, narrow); });
        measure("add", of + ", float32 += bfloat16",
                [&](const Kernels& k, Exec& e) { k.add(e, wide, narrow); });
        measure("zero", of + ", float32", [&](const Kernels& k, Exec& e) { k.zero(e, wide); });
        const Tensor half = x.view.slice_rows(0, l.tokens / 2);
        const OwnedTensor sum = room(bf16_, half.shape);
        measure("sum_parts", fmt::format("2 of {}", sizes(half.shape)),
                [&](const Kernels& k, Exec& e) { k.sum_parts(e, sum, x); });
        measure("add_bias", sizes(x.view.shape), [&](const Kernels& k, Exec& e) { k.add_bias(e, x, bias); });
        measure("add_bias_backward", sizes(x.view.shape),
                [&](const Kernels& k, Exec& e) { k.add_bias_backward(e, dbias, x); });
    }

    void rows_of_experts(const Experts& s) {
        const int64_t assignments = s.tokens * s.top_k, rows = grouped_rows(assignments, s.number);
        const OwnedTensor logits = numbers(f32, {s.tokens, s.number}, 0, 3),
                          experts = room(Dtype::i32, {s.tokens, s.top_k}),
                          weights = room(f32, {s.tokens, s.top_k}), dlogits = room(f32, {s.tokens, s.number}),
                          slots = room(Dtype::i32, {s.tokens, s.top_k}), sources = room(Dtype::i32, {rows}),
                          begins = room(Dtype::i32, {s.number}), counts = room(Dtype::i32, {s.number});
        const Groups groups = {.begins = begins, .counts = counts, .assignments = assignments};
        const RouteOptions options = {.top_k = s.top_k};
        const std::string of_tokens = fmt::format("{} tokens, {} of {} experts", s.tokens, s.top_k, s.number);
        const auto route = [&](const Kernels& k, Exec& e) {
            k.route(e, experts, weights, {}, logits, {}, options);
        };
        const auto by_expert = [&](const Kernels& k, Exec& e) {
            k.group_by_expert(e, slots, sources, groups, experts, nullptr);
        };
        route(kernels(), exec_with(route));  // the others read the choice
        by_expert(kernels(), exec_with(by_expert));
        measure("route", of_tokens, route);
        measure("route_backward", of_tokens, [&](const Kernels& k, Exec& e) {
            k.route_backward(e, dlogits, weights, logits, experts, options);
        });
        measure("group_by_expert", of_tokens, by_expert);
        const OwnedTensor x = numbers(bf16_, {s.tokens, s.dim}), sorted = numbers(bf16_, {rows, s.dim}),
                          y = room(bf16_, {s.tokens, s.dim});
        measure("gather_rows", sizes({rows, s.dim}),
                [&](const Kernels& k, Exec& e) { k.gather_rows(e, sorted, x, sources, s.top_k); });
        measure("sum_rows", sizes({rows, s.dim}),
                [&](const Kernels& k, Exec& e) { k.sum_rows(e, y, x, sorted, slots); });
        const OwnedTensor gate_up = numbers(bf16_, {rows, 2 * s.hidden}, 0, 3),
                          gradient = room(bf16_, {rows, 2 * s.hidden}), out = room(bf16_, {rows, s.hidden}),
                          dout = numbers(bf16_, {rows, s.hidden}), scale = numbers(f32, {rows}, 0.5, 0.4),
                          dscale = room(f32, {rows});
        const std::string of_rows = sizes({rows, s.hidden});
        measure("gate", of_rows,
                [&](const Kernels& k, Exec& e) { k.gate(e, out, gate_up, scale, groups, Gate()); });
        measure("gate_backward", of_rows, [&](const Kernels& k, Exec& e) {
            k.gate_backward(e, gradient, dscale, out, dout, gate_up, scale, groups, Gate());
        });
    }

    /// The Exec, with the workspace of a call that is not measured.
    Exec& exec_with(const Call& call) {
        Exec planning;
        planning.architecture = exec_.architecture;
        call(dry_kernels_of(device_.backend()), planning);
        exec_.queue->finish();
        exec_.workspace = Arena(planning.workspace.peak(), "kernel workspace", device_.memory());
        return exec_;
    }

    const Device& device_;
    std::vector<std::string> names_;  // empty: all
    Exec exec_;
    CopyRate copy_;
    const char* model_ = "";
    bool whole_group_ = true;
};

}  // namespace

int main(int argc, char** argv) try {
    std::vector<std::string> names(argv + 1, argv + argc);
    const bool is_small = std::erase(names, "--small") > 0;
    if (const std::string error = unknown_name(names, Bench::known_names(), "kernel"); !error.empty())
        throw ConfigError(error);
    if (visible_gpus() == 0) throw SystemError(why_no_gpu());
    const auto gpu = open_gpu(0);
    Bench bench(*gpu, names);
    if (is_small) {
        for (const Llama& llama : small_llamas) bench.run(llama);
        bench.run(small_experts);
        return 0;
    }
    for (const Llama& llama : llamas) bench.run(llama);
    bench.run(experts_of_a_layer);
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "gpu_rows: {}\n", error.what());
    return 3;
}
