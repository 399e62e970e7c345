// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit floats on GPUs of all architectures, with the stand-in for cuBLASLt, which has the rules
// of each.
#include "pretended_gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

std::vector<KernelCase> scaled_gemm_cases() {
    std::vector<KernelCase> list = quantization_cases();
    std::erase_if(list, [](const KernelCase& c) { return !c.name.starts_with("scaled_gemm"); });
    return list;
}

/// How many products of 8-bit floats the library computes.
size_t library_products(const Device& gpu, const KernelCase& c, Dtype type) {
    const size_t before = emulation::products_of_8_bits();
    const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type),
                   result = run_case_on(gpu, c, type, type);
    INFO(c.name << " in " << name_of(type) << " on sm_" << gpu.architecture());
    CHECK(normalised_error(values_of(result[0]), values_of(truth[0])) <=
          (type == Dtype::f32 ? c.bound_f32 : c.bound_bf16));
    CHECK(nothing_beside(c, result, 0));
    return emulation::products_of_8_bits() - before;
}

size_t library_products(const PretendedGpu& gpu, const ScaledShape& shape, Residual residual = Residual::none,
                        bool acc_output = false) {
    return library_products(gpu.get(), scaled_gemm_case(shape, residual, acc_output), Dtype::bf16);
}

constexpr auto architectures = {80, 89, 90, 100, 120};
constexpr ScaledShape whole = {48, 80, 64}, outer = {48, 80, 64, false, true, Along::outer, Along::outer},
                      mixed = {48, 80, 64, false, true, Along::outer, Along::one},
                      blocks = {48, 80, 64, false, true, Along::blocks, Along::blocks};

}  // namespace

TEST_CASE("products of 8-bit floats agree with double on every architecture") {
    // two in one case differ in what the library multiplies
    for (const int architecture : architectures) {
        const PretendedGpu gpu(architecture);
        int number = 0;
        for (const KernelCase& c : scaled_gemm_cases())
            if (const bool all = architecture == 90 || architecture == 100; all || ++number % 4 == 0)
                library_products(gpu.get(), c, number++ % 2 ? Dtype::f32 : Dtype::bf16);
    }
}

TEST_CASE("each architecture computes the products of 8-bit floats that it has, and others in bfloat16") {
    const auto counts = [](int architecture) {
        const PretendedGpu gpu(architecture);
        return std::vector<size_t>{library_products(gpu, whole), library_products(gpu, outer),
                                   library_products(gpu, mixed), library_products(gpu, blocks)};
    };
    CHECK(counts(80) == std::vector<size_t>{0, 0, 0, 0});
    CHECK(counts(89) == std::vector<size_t>{1, 1, 1, 0});
    CHECK(counts(90) == std::vector<size_t>{1, 1, 1, 0});
    CHECK(counts(100) == std::vector<size_t>{1, 1, 1, 1});
    CHECK(counts(120) == std::vector<size_t>{1, 1, 1, 1});
}

TEST_CASE("products of 8-bit floats of odd sizes, or of two gradients, are computed in bfloat16") {
    const PretendedGpu gpu(90);
    CHECK(library_products(gpu, {48, 80, 72}) == 0);
    CHECK(library_products(gpu, {47, 80, 64}) == 0);
    CHECK(library_products(gpu, {48, 8, 64}) == 0);
    ScaledShape gradients = whole;
    gradients.type_a = gradients.type_b = Dtype::fp8_e5m2;
    CHECK(library_products(gpu, gradients) == 0);
    gradients.type_b = Dtype::fp8_e4m3;
    CHECK(library_products(gpu, gradients) == 1);
}

TEST_CASE("a result is scaled by kernels of ours if the library has no vectors of scales") {
    const PretendedGpu gpu(90);
    SECTION("an older library") {
        emulation::set_cublas_version(120400);
    }
    SECTION("a library without an algorithm") {
        emulation::set_vector_products(false);
    }
    for (const ScaledShape& shape : {outer, mixed})
        for (const Residual residual : {Residual::none, Residual::other, Residual::accumulate})
            for (const bool acc_output : {false, true})
                CHECK(library_products(gpu, shape, residual, acc_output) == 1);
}

TEST_CASE("products of 8-bit floats are emulated if the Exec says so") {
    const PretendedGpu gpu(90);
    for (const ScaledShape& shape : {whole, outer, blocks}) {
        KernelCase c = scaled_gemm_case(shape, Residual::none, false);
        c.call = [call = c.call](const Kernels& k, Exec& e, const Operands& o) {
            e.emulates_8_bits = true;
            call(k, e, o);
        };
        CHECK(library_products(gpu.get(), c, Dtype::bf16) == 0);
    }
}

TEST_CASE("a step of training has the 8-bit products of the GPU, and none if they are emulated") {
    for (const int architecture : architectures)
        for (int recipe = 1; recipe < recipe_choices; ++recipe)
            for (const bool emulate : {false, true}) {
                const PretendedGpu gpu(architecture);
                MeshCase c = float32_case_of({}, recipe);
                c.model.layers = 1;
                c.model.vocab = 2048;  // the head needs the most workspace
                c.seq_len = 32;
                c.types.precision.emulate = emulate;
                c.device = &gpu.get();
                MeshRun run(c, mesh_of_one());
                TestBatch batch = batch_of_step(c, 1);
                const size_t before = emulation::products_of_8_bits();
                CHECK(run.step(1, batch));
                const bool has_blocks = c.types.precision.linear == Recipe::mx_rceil,
                           has_products = architecture >= (has_blocks ? 100 : 89);
                INFO(c.name() << " on sm_" << architecture);
                CHECK((emulation::products_of_8_bits() > before) == (has_products && !emulate));
                CHECK(run.engine.used().workspace == run.engine.layer_memory().workspace);
            }
}

namespace {

/// How often a step launches each kernel.
class LaunchCounts : public KernelObserver {
public:
    void begin(const char*, double, double) override {}
    void launch(const char* kernel) override { ++of[kernel]; }
    void end() override {}
    std::map<std::string, int> of;
};

struct Gradients {
    std::map<std::string, int> launches;
    std::map<std::string, std::vector<double>> values;
};

Gradients gradients_on(int architecture, int recipe, bool keeps_operands = false) {
    const PretendedGpu gpu(architecture);
    MeshCase c = float32_case_of({}, recipe);
    c.model.layers = 1;
    c.seq_len = 32;
    c.types.precision.filter_fqns.push_back("output");
    c.device = &gpu.get();
    c.keeps_operands = keeps_operands;
    MeshRun run(c, mesh_of_one());
    TestBatch batch = batch_of_step(c, 1);
    LaunchCounts launches;
    const Observation observation = run.engine.observe(launches);
    run.compute_gradients(1, batch);
    return {launches.of, run.whole(&Storage::gradient)};
}

}  // namespace

// Otherwise the products transpose what they sum along columns: x, dy and the weight.
TEST_CASE("a step writes codes transposed where the GPU's products sum rows only, with the same bits") {
    for (const int recipe : {1, 3}) {
        CAPTURE(recipe);
        Gradients plain = gradients_on(100, recipe);
        CHECK(plain.launches["transpose"] + plain.launches["quantize_transposed"] == 0);
        for (const int architecture : {89, 90, 120}) {
            CAPTURE(architecture);
            Gradients transposed = gradients_on(architecture, recipe);
            CHECK(transposed.launches["transpose"] == 0);
            CHECK(transposed.launches["quantize_transposed"] >= 12);
            CHECK(transposed.values == plain.values);
            Gradients kept = gradients_on(architecture, recipe, true);
            CHECK(kept.launches["transpose"] == 0);
            CHECK(kept.launches["quantize_transposed"] < transposed.launches["quantize_transposed"]);
            CHECK(kept.values == plain.values);
        }
    }
    // weights that are kept in 8 bits are transposed by the products
    CHECK(gradients_on(90, 2).launches["transpose"] > 0);
}

TEST_CASE("products of 8-bit floats use exactly the workspace planned for their architecture") {
    for (const int architecture : architectures) {
        const PretendedGpu gpu(architecture);
        for (const KernelCase& c : scaled_gemm_cases()) {
            INFO(c.name << " on sm_" << architecture);
            const Operands operands = prepared_operands(c, Dtype::bf16, Dtype::bf16);
            const int64_t planned = planned_bytes(c, operands, 1, dry_cuda_kernels(), architecture);
            Exec exec;
            exec.architecture = architecture;
            exec.workspace = Arena(planned, "the workspace of " + c.name);
            c.call(cuda_kernels(), exec, operands);
            CHECK(exec.workspace.peak() == planned);
            CHECK(exec.workspace.mark() == 0);
            CHECK(planned <= planned_bytes(c, operands, 1, dry_cuda_kernels()));  // for an unknown GPU
        }
    }
}

TEST_CASE("recorded products of 8-bit floats take the scales of the time when they run, each its own") {
    for (const int architecture : {80, 90, 100}) {
        const PretendedGpu pretended(architecture);
        const Device& gpu = pretended.get();
        const Memory& memory = gpu.memory();
        const OwnedTensor codes(Dtype::u8, {16, 32}, "codes", memory),
            scales(Dtype::f32, {2}, "scales", memory), first(Dtype::f32, {16, 16}, "first", memory),
            second(Dtype::f32, {16, 16}, "second", memory);
        const std::vector<uint8_t> ones(16 * 32, 0x38);  // e4m3
        gpu.copy(codes.view.data, ones.data(), 16 * 32);
        const auto operand = [&](int64_t scale) {
            return quantized(codes, Dtype::fp8_e4m3, ScaleGroups::one, scales.view.slice_rows(scale, 1));
        };
        const auto multiply = [&](const Kernels& k, Exec& exec) {
            k.scaled_gemm(exec, first, operand(0), transposed(operand(1)), {}, false);
            k.scaled_gemm(exec, second, operand(1), transposed(operand(1)), {}, false);
        };
        Exec exec(gpu), planning;
        planning.architecture = architecture;
        multiply(dry_cuda_kernels(), planning);
        exec.workspace = Arena(planning.workspace.peak(), "workspace", memory);
        exec.queue->begin_recording();
        multiply(cuda_kernels(), exec);
        const std::unique_ptr<Graph> graph = exec.queue->end_recording();
        for (const float scale : {0.5F, 3.0F}) {
            const float both[] = {scale, 2};
            gpu.copy(scales.view.data, both, sizeof both);
            exec.queue->give(*graph);
            exec.queue->finish();
            float results[2] = {};
            gpu.copy(results, first.view.data, sizeof(float));
            gpu.copy(results + 1, second.view.data, sizeof(float));
            CHECK(results[0] == 32 * 2 * scale);
            CHECK(results[1] == 32 * 2 * 2);
        }
    }
}
