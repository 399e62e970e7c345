// SPDX-License-Identifier: Apache-2.0
// The speed of every kernel at the shapes of a training step, and of the matrix products next to oneDNN and
// OpenBLAS.
//     bench_kernels --benchmark_filter=gemm.*f32       threads: OMP_NUM_THREADS (default: all cores)
// Rates are per second of the calling thread's processor time, so they are meaningful on a busy machine too.
#include "support/cases.hpp"
#include "support/quantized.hpp"

#if __has_include(<cblas-openblas.h>)
#include <cblas-openblas.h>  // Debian's name
#else
#include <cblas.h>
#endif
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <benchmark/benchmark.h>

using namespace coeus;
using namespace coeus::test;

namespace {

struct CostObserver : KernelObserver {
    double flops = 0, bytes = 0;
    void begin(const char*, double f, double b) override { flops += f, bytes += b; }
    void end() override {}
};

void report(benchmark::State& state, double flops, double bytes) {
    using benchmark::Counter;
    const auto rate = [&](double amount) {
        return Counter(amount / 1e9, Counter::kIsIterationInvariantRate);
    };
    state.counters["GF/s"] = rate(flops);
    state.counters["GB/s"] = rate(bytes);
}

/// Measures a call of a kernel.
void measure(benchmark::State& state, const std::function<void(const Kernels&, Exec&)>& call) {
    CostObserver cost;
    Exec planning, exec;
    planning.threads = exec.threads = omp_get_max_threads();
    {
        const Observation seen = planning.observers.add(cost);
        call(dry_kernels(), planning);
    }
    exec.workspace = Arena(planning.workspace.peak(), "workspace");
    call(cpu_kernels(), exec);
    for (auto _ : state) call(cpu_kernels(), exec);
    report(state, cost.flops, cost.bytes);
}

void run_kernel(benchmark::State& state, const KernelCase& c, Dtype type) {
    const Operands operands = prepared_operands(c, type, type);
    measure(state, [&](const Kernels& kernels, Exec& exec) { c.call(kernels, exec, operands); });
}

/// The libraries' f32 products of the same shapes: forward nt, input gradient nn, weight gradient tn.
enum class Library { openblas, onednn };
void run_library(benchmark::State& state, const Product& p, Library library) {
    OwnedTensor a(Dtype::f32, {p.m, p.k}), b(Dtype::f32, {p.k, p.n}), d(Dtype::f32, {p.m, p.n});
    for (Tensor t : {a.view, b.view})
        for (int64_t i = 0; i < t.count(); ++i) t.as<float>()[i] = float(i % 17) - 8;
    const int64_t lda = p.transpose_a ? p.m : p.k, ldb = p.transpose_b ? p.k : p.n;
    const float beta = p.transpose_a ? 1 : 0;
    const float *x = a.view.as<float>(), *y = b.view.as<float>();
    for (auto _ : state)
        if (library == Library::openblas)
            cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans,
                        p.transpose_b ? CblasTrans : CblasNoTrans, int(p.m), int(p.n), int(p.k), 1, x,
                        int(lda), y, int(ldb), beta, d.view.as<float>(), int(p.n));
        else
            dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1, x, lda, y, ldb,
                       beta, d.view.as<float>(), p.n);
    report(state, 2.0 * double(p.m) * double(p.n) * double(p.k),
           4.0 * double(p.m * p.k + p.k * p.n + p.m * p.n));
}

void add_shape(const std::string& prefix, const StepShape& shape) {
    for (const KernelCase& c : step_cases(shape))
        for (Dtype type : {Dtype::f32, Dtype::bf16})
            benchmark::RegisterBenchmark((prefix + "/" + c.name + "/" + name_of(type)).c_str(),
                                         [=](benchmark::State& s) { run_kernel(s, c, type); });
    for (const Product& p : step_products(shape))
        for (Library library : {Library::openblas, Library::onednn})
            benchmark::RegisterBenchmark(
                fmt::format("{}/{} {}x{}x{} {}{}/float32", prefix,
                            library == Library::openblas ? "openblas" : "onednn", p.m, p.n, p.k,
                            p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n')
                    .c_str(),
                [=](benchmark::State& s) { run_library(s, p, library); });
}

/// The products of rows of `experts` experts with their matrices, and the plain products of as many rows with
/// one matrix (bench/grouped.py compares them).
void add_experts(const std::string& name, int64_t experts, int64_t width, int64_t hidden) {
    const auto add = [](const std::string& text, const KernelCase& c) {
        for (Dtype type : {Dtype::f32, Dtype::bf16})
            benchmark::RegisterBenchmark((text + "/" + name_of(type)).c_str(),
                                         [=](benchmark::State& s) { run_kernel(s, c, type); });
    };
    for (const int64_t rows : {64, 256})
        for (const bool down : {false, true}) {
            const int64_t in = down ? hidden : width, out = down ? width : 2 * hidden, all = experts * rows;
            const std::string prefix =
                fmt::format("experts {} {}/{} rows each", name, down ? "down" : "up", rows);
            const std::vector<KernelCase> grouped = grouped_product_cases(experts, rows, in, out);
            // forward, gradient of the rows, gradient of the matrices; `grouped` continues with other kinds
            // of the last
            const KernelCase plain[] = {gemm_case(all, out, in, false, true, Residual::none, false),
                                        gemm_case(all, out, in, false, false, Residual::none, false),
                                        gemm_case(in, out, all, true, false, Residual::accumulate, true)};
            const char* const products[] = {"nt", "nn", "tn"};
            for (size_t i = 0; i < std::size(plain); ++i) {
                add(fmt::format("{}/grouped {}", prefix, products[i]), grouped[i]);
                add(fmt::format("{}/plain {}", prefix, products[i]), plain[i]);
            }
        }
}

OwnedTensor small_numbers(Dtype type, const Shape& shape) {
    OwnedTensor t(type, shape);
    for (int64_t i = 0; i < shape.count(); ++i) set_element(t, i, double(i % 61) / 16 - 2);
    return t;
}

/// The kernels for an operand of a product in 8 bits.
void run_quantization(benchmark::State& state, const Shape& shape, Dtype type, const Form& form) {
    const OwnedTensor x = small_numbers(type, shape);
    const Quantized q(form.type, shape, form.groups);
    Threads exec(omp_get_max_threads());
    const OwnedTensor bits = magnitudes(cpu_kernels(), exec, x, form.groups);
    const Tensor given = form.groups == ScaleGroups::rows ? Tensor() : bits.view;
    measure(state, [&](const Kernels& kernels, Exec& e) { kernels.quantize(e, q, x, given, form.rule, {}); });
}
void run_magnitudes(benchmark::State& state, const Shape& shape, Dtype type, ScaleGroups groups) {
    const OwnedTensor x = small_numbers(type, shape), bits(Dtype::i32, scale_shape(groups, shape));
    measure(state,
            [&](const Kernels& kernels, Exec& e) { kernels.largest_magnitudes(e, bits, x, groups, {}); });
}
void run_dequantization(benchmark::State& state, const Shape& shape, Dtype type, const Form& form) {
    const OwnedTensor y = small_numbers(type, shape);
    Threads exec(omp_get_max_threads());
    const Quantized q = quantized(cpu_kernels(), exec, y, form);
    measure(state, [&](const Kernels& kernels, Exec& e) { kernels.dequantize(e, y, q); });
}
/// A product of a step, with the operands of a recipe.
void run_scaled_gemm(benchmark::State& state, const Product& p, Recipe recipe) {
    const RecipeForms forms = forms_of(recipe);
    const bool of_weight = p.transpose_a, forward = p.transpose_b;
    const Form of_a = of_weight ? forms.dy_of_wgrad
                      : forward ? forms.x
                                : forms.dy,
               of_b = of_weight ? forms.x_of_wgrad
                      : forward ? forms.w
                                : forms.w_of_dgrad;
    Threads exec(omp_get_max_threads());
    const auto operand = [&](const Shape& shape, const Form& form) {
        return quantized(cpu_kernels(), exec, small_numbers(Dtype::bf16, shape), form);
    };
    const Quantized a = operand(p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k}, of_a),
                    b = operand(p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n}, of_b);
    const OwnedTensor d(of_weight ? Dtype::f32 : Dtype::bf16, {p.m, p.n});
    measure(state, [&](const Kernels& kernels, Exec& e) {
        kernels.scaled_gemm(e, d, {a, p.transpose_a}, {b, p.transpose_b}, of_weight ? d : Tensor(), false);
    });
}

void add_8_bits(const std::string& prefix, const StepShape& s) {
    using benchmark::RegisterBenchmark, benchmark::State;
    constexpr std::pair<const char*, ScaleGroups> all_groups[] = {{"one", ScaleGroups::one},
                                                                  {"rows", ScaleGroups::rows},
                                                                  {"cols", ScaleGroups::cols},
                                                                  {"rows32", ScaleGroups::rows32},
                                                                  {"cols32", ScaleGroups::cols32}};
    const Shape shape = {s.tokens, 2 * s.feed_forward};
    for (const Dtype type : {Dtype::f32, Dtype::bf16})
        for (const auto& [name, groups] : all_groups) {
            const auto named = [&, &text = name](const char* kernel) {
                return fmt::format("{}/{} {} {}/{}", prefix, kernel, text, shape.text(), name_of(type));
            };
            const bool blocks = scale_type(groups) == Dtype::u8;
            const Form form = {Dtype::fp8_e4m3, groups,
                               blocks ? ScaleRule::mx_rceil : ScaleRule::power_of_two};
            if (!blocks)
                RegisterBenchmark(named("largest_magnitudes").c_str(),
                                  [=, of = groups](State& state) { run_magnitudes(state, shape, type, of); });
            RegisterBenchmark(named("quantize").c_str(),
                              [=](State& state) { run_quantization(state, shape, type, form); });
            RegisterBenchmark(named("dequantize").c_str(),
                              [=](State& state) { run_dequantization(state, shape, type, form); });
        }
    constexpr std::pair<const char*, Recipe> recipes[] = {
        {"tensorwise", Recipe::tensorwise}, {"rowwise", Recipe::rowwise}, {"mx", Recipe::mx_rceil}};
    for (const Product& p : step_products(s))
        for (const auto& [name, recipe] : recipes)
            RegisterBenchmark(fmt::format("{}/scaled_gemm {} {}x{}x{} {}{}", prefix, name, p.m, p.n, p.k,
                                          p.transpose_a ? 't' : 'n', p.transpose_b ? 't' : 'n')
                                  .c_str(),
                              [=, of = recipe](State& state) { run_scaled_gemm(state, p, of); });
}

}  // namespace

int main(int argc, char** argv) {
    add_shape("debug", {});
    add_shape("debug long", {.tokens = 4096, .sequence = 2048});
    const StepShape small = {.tokens = 2048,
                             .sequence = 1024,
                             .width = 768,
                             .heads = 12,
                             .kv_heads = 4,
                             .feed_forward = 2048,
                             .vocabulary = 32000};
    add_shape("small", small);
    add_8_bits("small", small);
    add_shape("wide heads", {.tokens = 2048,
                             .sequence = 2048,
                             .width = 512,
                             .heads = 4,
                             .kv_heads = 4,
                             .feed_forward = 1536,
                             .vocabulary = 2048});
    add_experts("debug", 64, 256, 768);  // Qwen 3 debugmodel_moe
    add_experts("16B", 8, 2048, 1408);   // DeepSeek V3 16B, but for the number of experts
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
