// SPDX-License-Identifier: Apache-2.0
#include "adam.hpp"

#include <cmath>

namespace coeus {

namespace {

class Adam : public Optimizer {
public:
    explicit Adam(const AdamOptions& options) : options_(options) {}

    std::vector<Moment> moments(const StateTypes& types) const override {
        return {{"exp_avg", types.master}, {"exp_avg_sq", types.master}};
    }

    void begin_step(uint64_t step, GroupScalars& scalars) const override {
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
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const OptimizerOptions& o, uint64_t seed, size_t group) {
    return std::make_unique<Adam>(AdamOptions{.beta1 = o.beta1,
                                              .beta2 = o.beta2,
                                              .eps = o.eps,
                                              .weight_decay = o.weight_decay,
                                              .decoupled = o.name == "AdamW",
                                              .seed = seed,
                                              .group = group});
}

}  // namespace coeus
