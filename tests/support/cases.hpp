// SPDX-License-Identifier: Apache-2.0
// One list of kernel calls, shared by tests and benchmarks: every entry of the table of kernels, at small,
// odd sizes for the tests and at the sizes of a training step for the benchmarks. A case defines its operands
// by name, role and shape. Their values are drawn in double, rounded to the tested type, and given to the
// oracle in rounded form.
#pragma once

#include "coeus/device/memory.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"
#include "support/copy_converting.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coeus::test {

enum class Role { input, output, update };  ///< update: read and written
/// The tested type, its acc type, i32, i64; u8 and f32: codes of 8-bit floats, and scales.
enum class Kind { compute, acc, index, count, code, scale };

struct Argument {
    std::string name;
    Role role = Role::input;
    Kind kind = Kind::compute;
    Shape shape;
    double mean = 0, deviation = 1;  ///< of normal values; an integer is uniform in [0, mean)
    int64_t padding = 0;             ///< columns after each row that do not belong to it
    int64_t offset = 0;              ///< columns before each row that do not belong to it
};

/// A case's tensors in one type, with their memory.
struct Operands {
    std::vector<OwnedTensor> storage;
    std::vector<Tensor> tensors;
    Tensor operator[](size_t i) const { return tensors[i]; }
};

struct KernelCase {
    std::string name;
    std::vector<Argument> arguments;
    /// Calls the kernel on the operands.
    std::function<void(const Kernels&, Exec&, const Operands&)> call;
    /// Computes inputs that depend on others (those that a forward keeps for its backward), in double.
    std::function<void(const Kernels&, Exec&, const Operands&)> prepare = {};
    double bound_f32 = 2e-6, bound_bf16 = 8e-3;  ///< normalised error against double
    bool sums_8_bits = false;                    ///< a GPU may sum products of 8-bit floats less exactly
};

/// Every kernel, at sizes for tests.
std::vector<KernelCase> test_cases();
/// The types in which to test a case. COEUS_CASES_SEED=N (`make sanitize`): one of them, drawn for each case.
std::vector<Dtype> types_of(const KernelCase& c, std::vector<Dtype> types);
/// The kernels of a training step: a Llama of width 256, 16 heads, F 768, V 2048, and one of width 768, 12
/// heads of 64 (4 key/value heads), F 2048, V 32000; `tokens` in sequences of `sequence`.
struct StepShape {
    int64_t tokens = 4096, sequence = 512, width = 256, heads = 16, kv_heads = 16, feed_forward = 768,
            vocabulary = 2048;
};
std::vector<KernelCase> step_cases(const StepShape& shape);
/// Its matrix products. For each linear layer: the forward, the gradient of the input and the gradient of the
/// weight.
struct Product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
};
std::vector<Product> step_products(const StepShape& shape);

// Cases for tests of a single kernel.
enum class Residual { none, accumulate, other };
KernelCase gemm_case(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, Residual residual,
                     bool acc_output = false, int64_t padding = 0);
/// `partial`: results have type acc, and dq is added to the previous content.
KernelCase attention_case(const AttentionShape& shape, bool documents, bool backward, bool fused = false,
                          bool partial = false);
KernelCase merge_attention_case(const AttentionShape& shape, bool documents);
/// With values beside each row; `acc_output`: out is acc.
KernelCase attention_sink_case(int64_t tokens, int64_t heads, int64_t head_dim, bool backward,
                               bool acc_output = false);
/// Attention over sequences, over parts of them, and with a cache.
std::vector<KernelCase> attention_cases();
/// The kernels of mixtures of experts.
std::vector<KernelCase> expert_cases();
/// The activation of all rows, each with a scale.
std::vector<KernelCase> gate_cases();
/// Initial values of one kind. `padding`: elements before the first one.
KernelCase draw_case(const std::string& kind, const Init& init, int64_t count, const ElementPlace& place,
                     int64_t padding = 0);
/// Every kind, at every kind of place in a parameter.
std::vector<KernelCase> draw_cases();
/// Conversions to and from 8-bit floats, and their products; those of experts' rows are expert_cases.
std::vector<KernelCase> quantization_cases();
/// op(a) op(b) of 8-bit floats with groups of scales: one for each operand, those along what is not summed,
/// or blocks along what is summed.
enum class Along { one, outer, blocks };
struct ScaledShape {
    int64_t m, n, k;
    bool transpose_a = false, transpose_b = true;
    Along a = Along::one, b = Along::one;
    Dtype type_a = Dtype::fp8_e4m3, type_b = Dtype::fp8_e4m3;
};
KernelCase scaled_gemm_case(const ScaledShape& shape, Residual residual, bool acc_output, bool fast = false,
                            int64_t padding = 0);
/// Codes with their scales as a tensor.
Tensor quantized(Tensor codes, Dtype type, ScaleGroups groups, const Tensor& scales);
/// Groups and rule, of codes whose rows (or columns) are not summed.
ScaleGroups groups_along(Along along, bool rows);
ScaleRule rule_of(ScaleGroups groups);
/// Writes q and its scales, with the largest magnitudes of x; bits i32[groups] is overwritten.
void quantize_whole(const Kernels& k, Exec& exec, Tensor q, Tensor x, Tensor bits,
                    const Groups& experts = {});
/// The number of largest magnitudes, of which each gives a scale; 1 for blocks, which have none.
int64_t count_of_maxima(ScaleGroups groups, int64_t rows, int64_t cols, int64_t matrices = 1);
/// The same with a number at a place of an operand, and everything else as it was.
KernelCase with_number(KernelCase c, size_t operand, double number);
/// A kernel that finds the largest magnitudes of its result, and the same call without room for them, which
/// has one operand less.
struct LargestCase {
    KernelCase with_largest, plain;
    int64_t parts;      ///< of the result's columns, each with a largest magnitude
    size_t result = 0;  ///< its number among the operands
};
/// With numbers of all sizes, infinity and NaN.
std::vector<LargestCase> largest_cases();
/// The same with room for the largest magnitude of more columns than the result has, which kernels refuse.
KernelCase with_wrong_columns(const LargestCase& c);
/// What is wrong if `run` runs cases in one type, with these operands: the largest magnitudes are not those
/// that largest_magnitudes finds, or the result is another one than without them. Empty if nothing is wrong.
std::string wrong_largest(const LargestCase& c, const std::function<Operands(const KernelCase&)>& run,
                          const Operands& before);
/// A kernel that also rounds its result (Tensor::rounded), and the same with a separate kernel for that.
struct RoundedCase {
    KernelCase fused, separate;
};
/// `values`: rounded to values, which only backends that take them can do.
RoundedCase rounded_case(const KernelCase& plain, bool values);
/// With numbers of all sizes, infinity and NaN.
std::vector<RoundedCase> rounded_cases(bool values);
/// The products of rows grouped by expert, [groups * rows, width] by matrices [other, width]: forward,
/// gradient of the rows, gradient of the matrices. Every group has the same number of rows.
std::vector<KernelCase> grouped_product_cases(int64_t groups, int64_t rows, int64_t width, int64_t other);
/// Products of rows grouped by expert in 8-bit floats with a scale for each row or column of the result:
/// groups without rows, groups of more rows than the tallest tile, and sizes that are multiples of 16, not
/// of 32.
std::vector<KernelCase> scaled_grouped_cases();
KernelCase latent_keys_case(int64_t tokens, const LatentShape& shape, bool backward);
/// `shape.batch` tokens with a cache of `kept` sequences of `shape.sequence` rows.
KernelCase attention_cached_case(const AttentionShape& shape, int64_t kept, int64_t padding = 0);
/// The residual path or its gradient: none, a tensor, or the previous content of the result.
enum class Plus { none, other, in_dx };
KernelCase momentum_case(int64_t count, bool nesterov);
KernelCase descend_case(int64_t count, bool compute_copy);
/// `plus`: the residual path. `offset`: of the weight.
KernelCase rms_norm_case(int64_t rows, int64_t width, Plus plus = Plus::none, double offset = 0);
KernelCase rms_norm_backward_case(int64_t rows, int64_t width, Plus plus, double offset = 0);
KernelCase layer_norm_case(int64_t rows, int64_t width, bool weighted);
KernelCase layer_norm_backward_case(int64_t rows, int64_t width, bool weighted, Plus plus);
/// `in`: the memory of the result.
enum class Place { own, of_gradient, of_input };
KernelCase head_norm_case(int64_t tokens, int64_t heads, int64_t head_dim, bool weighted, bool in_place,
                          double offset = 0);
KernelCase head_norm_backward_case(int64_t tokens, int64_t heads, int64_t head_dim, bool weighted,
                                   Place place, double offset = 0);
KernelCase row_products_case(int64_t rows, int64_t width, bool weighted, bool squares = false);
/// Rows of `width` columns, which are half of all.
KernelCase divided_norm_case(int64_t rows, int64_t width, bool in_place, double offset);
KernelCase divided_norm_backward_case(int64_t rows, int64_t width, Place place, double offset);
/// `place`: the memory of the result, which is that of the residual path with Plus::in_dx.
KernelCase modulate_case(int64_t rows, int64_t width, const SequenceRows& sequences, bool shifted, Plus plus,
                         Place place, double base);
KernelCase modulate_backward_case(int64_t rows, int64_t width, const SequenceRows& sequences, bool shifted,
                                  Place place, double base);
KernelCase activation_case(Activation kind, int64_t rows, int64_t width, bool in_place);
KernelCase activation_backward_case(Activation kind, int64_t rows, int64_t width, Place place);
KernelCase squared_error_case(int64_t rows, int64_t width, const SequenceRows& sequences, bool gradient,
                              bool in_place);
/// All of these five.
std::vector<KernelCase> modulation_cases();
KernelCase rope_case(int64_t tokens, int64_t heads, const RopeShape& shape, bool inverse,
                     int64_t padding = 0);
/// SwiGLU, or GEGLU with GELU.
KernelCase glu_case(Activation activation, int64_t rows, int64_t width);
KernelCase glu_backward_case(Activation activation, int64_t rows, int64_t width, bool in_place);
/// `divided`: the table is one of three parts of a vocabulary. Here and below, `scale` is that of the part.
KernelCase embedding_case(int64_t tokens, int64_t width, int64_t vocabulary, bool divided = false,
                          double scale = 1);
KernelCase embedding_backward_case(int64_t tokens, int64_t width, int64_t vocabulary, bool divided = false,
                                   double scale = 1);
KernelCase log_sum_exp_case(int64_t rows, int64_t vocabulary, bool divided = false, double scale = 1);
KernelCase add_log_sum_exp_case(int64_t parts, int64_t rows);
KernelCase largest_of_rows_case(int64_t rows, int64_t vocabulary, double scale = 1);
KernelCase sum_parts_case(int64_t parts, int64_t rows, int64_t cols);
/// As the loss head calls it: after log_sum_exp.
KernelCase cross_entropy_case(int64_t rows, int64_t vocabulary, bool gradient, bool in_place,
                              bool divided = false, bool z = false, double scale = 1);
/// `narrow`: the gradient is in the tested type.
KernelCase adam_case(int64_t count, bool decoupled, bool compute_copy, bool narrow = false);

/// Draws the operands: values are rounded to `values` first, then stored as `type`; outputs are filled with
/// NaN. The same seed gives the same operands.
Operands make_operands(const KernelCase& c, Dtype type, Dtype values, uint64_t seed = 1);
/// Whether the columns outside an operand's rows still hold their NaN.
bool nothing_beside(const KernelCase& c, const Operands& operands, size_t i);
/// Whether all bytes of the memory are the same, padding included.
bool same_bits(const Operands& a, const Operands& b);
/// The workspace that the dry table asks for in this case; `architecture`: of the GPU.
int64_t planned_bytes(const KernelCase& c, const Operands& operands, int threads,
                      const Kernels& dry = dry_kernels(), int architecture = 0);
/// An Exec whose workspace has exactly the size that the dry table asks for in this case.
struct PlannedExec : Exec {
    PlannedExec(const KernelCase& c, const Operands& operands, int threads,
                const Kernels& dry = dry_kernels());
};
/// The operands after the case's preparation.
Operands prepared_operands(const KernelCase& c, Dtype type, Dtype values, uint64_t seed = 1);
/// Runs the case (after its preparation) and returns the operands.
Operands run_case(const KernelCase& c, const Kernels& kernels, Dtype type, Dtype values, int threads = 2,
                  uint64_t seed = 1, const Kernels& dry = dry_kernels());
/// The same on a GPU; the returned operands are on the host. `observer`, if not null, is told of the calls.
Operands run_case_on(const Device& gpu, const KernelCase& c, Dtype type, Dtype values, uint64_t seed = 1,
                     KernelObserver* observer = nullptr);
/// The case with these options of products.
KernelCase with_options(const KernelCase& c, const ProductOptions& options);
/// The case with this Processor::experts_in_8_bits.
KernelCase experts_in_8_bits(const KernelCase& c, std::optional<bool> asked);
/// Fills a tensor with NaN (indices with a negative number, codes with a number).
void poison(const Tensor& t);

}  // namespace coeus::test
