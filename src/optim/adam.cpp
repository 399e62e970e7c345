// SPDX-License-Identifier: Apache-2.0
#include "adam.hpp"

#include <cmath>

namespace coeus {

namespace {

class Adam : public Optimizer {
public:
    Adam(const AdamOptions& options, double weight_decay, bool moments_in_bf16)
        : options_(options), weight_decay_(weight_decay), moments_in_bf16_(moments_in_bf16) {}

    std::vector<Moment> moments(const StateTypes& types) const override {
        const bool narrower = moments_in_bf16_ && types.master == Dtype::f32;
        const Dtype type = narrower ? Dtype::bf16 : types.master;
        return {{"exp_avg", type}, {"exp_avg_sq", type}};
    }

    void begin_step(uint64_t step, GroupScalars& scalars) const override {
        scalars.weight_decay = weight_decay_;
        scalars.bias_correction1 = 1 - std::pow(options_.beta1, double(step));
        scalars.bias_correction2 = 1 - std::pow(options_.beta2, double(step));
    }

    void update(Exec& exec, const Kernels& kernels, const OwnedRows& rows,
                const StepScalars& scalars) const override {
        const AdamTensors tensors = {.master = rows.master,
                                     .exp_avg = rows.moments[0],
                                     .exp_avg_sq = rows.moments[1],
                                     .grad = rows.gradient,
                                     .compute = rows.compute};
        kernels.adam(exec, tensors, options_, rows.place(), scalars);
    }

private:
    AdamOptions options_;
    double weight_decay_;  ///< decoupled
    bool moments_in_bf16_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& o, uint64_t seed, size_t group) {
    const bool decoupled = o.name == "AdamW";
    const AdamOptions options = {.beta1 = o.beta1,
                                 .beta2 = o.beta2,
                                 .eps = o.eps,
                                 .decay = decoupled ? 0 : o.weight_decay,
                                 .seed = seed,
                                 .group = group};
    return std::make_unique<Adam>(options, decoupled ? o.weight_decay : 0,
                                  o.implementation == "fused_opt_states_bf16");
}

}  // namespace coeus
