// SPDX-License-Identifier: Apache-2.0
#include "muon.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

constexpr double smallest_norm = 1e-7;

// Rows of one matrix; a parameter with three extents, or with groups, is several matrices.
int64_t matrix_rows(const Param& param) {
    return param.shape.rank == 3 ? param.shape[1] : param.rows_per_group();
}

class Muon : public MatrixOptimizer {
public:
    Muon(const OptimizerOptions& options, uint64_t seed, size_t group)
        : options_(options), seed_(seed), group_(group) {}

    std::vector<Moment> moments(const StateTypes& types) const override {
        return {{"momentum_buffer", types.accumulate()}};
    }
    bool is_for(const Param& param) const override { return param.role == ParamRole::matrix; }
    bool can_take(const Param& param) const override { return param.shape.rank > 1; }
    void begin_step(uint64_t, GroupScalars& scalars) const override {
        scalars.weight_decay = options_.weight_decay;
    }

    void update(Exec& exec, const Kernels& kernels, const OwnedRows& rows,
                const StepScalars& scalars) const override {
        kernels.momentum(exec, rows.moments[0], rows.gradient,
                         {.momentum = options_.momentum, .nesterov = options_.nesterov}, scalars);
    }

    void transform(Exec& exec, const Kernels& kernels, const Param& param, Tensor matrices,
                   Arena& scratch) const override {
        const int64_t rows = matrix_rows(param);
        for (int64_t first = 0; first < matrices.rows(); first += rows)
            newton_schulz(exec, kernels, matrices.slice_rows(first, rows), options_.ns_steps,
                          options_.ns_coefficients, scratch);
    }

    void descend(Exec& exec, const Kernels& kernels, const OwnedRows& rows,
                 const StepScalars& scalars) const override {
        const double factor =
            muon_factor(options_.adjust_lr_fn, matrix_rows(rows.param), rows.param.shape.cols());
        kernels.descend(exec, rows.master, rows.gradient, rows.compute,
                        {.factor = factor, .seed = seed_, .group = group_}, rows.place(), scalars);
    }

private:
    OptimizerOptions options_;
    uint64_t seed_;
    size_t group_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options, uint64_t seed, size_t group) {
    if (options.ns_coefficients.size() != 3)
        throw ConfigError("ns_coefficients: must be three numbers, but there are {}",
                          options.ns_coefficients.size());
    muon_factor(options.adjust_lr_fn, 1, 1);  // throws if the name is unknown
    return std::make_unique<Muon>(options, seed, group);
}

void newton_schulz(Exec& exec, const Kernels& kernels, Tensor x, int64_t steps,
                   const std::vector<double>& coefficients, Arena& scratch) {
    const Scope scope(scratch);
    const bool tall = x.rows() > x.cols();
    const int64_t side = std::min(x.rows(), x.cols());
    const Dtype sums = x.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    const Tensor squared_norm = scratch.alloc(Dtype::f64, {1}), gram = scratch.alloc(x.dtype, {side, side}),
                 product = scratch.alloc(sums, {x.rows(), x.cols()});
    const Tensor gram_squared(product.data, sums, {side, side});  // used before `product` is written
    kernels.zero(exec, squared_norm);
    kernels.sum_of_squares(exec, squared_norm.as<double>(), x);
    kernels.normalize(exec, x, squared_norm.as<double>(), smallest_norm);
    for (int64_t i = 0; i < steps; ++i) {
        kernels.gemm(exec, gram, tall ? transposed(x) : Operand(x), tall ? Operand(x) : transposed(x), {});
        kernels.gemm(exec, gram_squared, gram, gram, {});
        kernels.scaled_sum(exec, gram, coefficients[1], gram, coefficients[2], gram_squared);
        kernels.gemm(exec, product, tall ? x : gram, tall ? gram : x, {});
        kernels.scaled_sum(exec, x, coefficients[0], x, 1, product);
    }
}

double muon_factor(const std::string& adjust, int64_t rows, int64_t cols) {
    const double ratio = double(rows) / double(cols);
    if (adjust == "original") return std::sqrt(std::max(1.0, ratio));
    if (adjust == "match_rms_adamw") return 0.2 * std::sqrt(double(std::max(rows, cols)));
    if (adjust == "spectral_unclamped") return std::sqrt(ratio);
    throw ConfigError("adjust_lr_fn = \"{}\": must be original, match_rms_adamw or spectral_unclamped",
                      adjust);
}

}  // namespace coeus
