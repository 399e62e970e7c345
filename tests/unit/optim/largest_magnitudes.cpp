// SPDX-License-Identifier: Apache-2.0
// The largest magnitudes of weights with one scale, which optimizers find in an update.
#include "coeus/base/random.hpp"
#include "coeus/optim/param_groups.hpp"
#include "coeus/state/one_scale_weights.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

Param matrix(const std::string& name, int64_t rows, bool trainable = true) {
    Param param = {.name = name, .shape = {rows, 16}, .init = Init::normal(1)};
    param.trainable = trainable;
    param.takes_recipe = param.sums_products = true;
    param.recipe = Recipe::tensorwise;
    return param;
}

/// Counts how often weights are read for their largest magnitude, and quantized.
struct Passes : KernelObserver {
    void begin(const char* kernel, double, double) override {
        if (std::strcmp(kernel, "largest_magnitudes") == 0) ++maxima;
        if (std::strcmp(kernel, "quantize") == 0) ++quantizations;
    }
    void end() override {}
    int maxima = 0, quantizations = 0;
};

/// A stack of two weights, and one that stays.
struct Weights {
    Parameters parameters;
    Exec exec;
    Arena scratch{1 << 20, "scratch"};
    WholeMatrices matrices{scratch};
    OneScaleWeights one_scale_weights;

    Weights(const ParamGroups& groups, const StateTypes& types)
        : parameters(types), one_scale_weights((add_all(parameters), parameters)) {
        exec.workspace = Arena(1 << 20, "workspace");
        groups.attach(parameters);
        parameters.allocate(true);
        one_scale_weights.allocate();
        parameters.initialise(1, 1);
        parameters.refresh_compute(exec, cpu_kernels());
        one_scale_weights.renew(exec, cpu_kernels(), alone());
    }
    static void add_all(Parameters& parameters) {
        parameters.add({matrix("wq", 32), matrix("wk", 16)});
        parameters.add({matrix("frozen", 16, false)});
    }
    /// All elements of the weight that stays get this value.
    void load_frozen(double value) {
        Storage& frozen = parameters.storages().back();
        for (int64_t i = 0; i < frozen.master.count(); ++i) set_element(frozen.master, i, value);
        parameters.refresh_compute(exec, cpu_kernels());
        one_scale_weights.renew(exec, cpu_kernels(), alone());
    }
    std::vector<double> largest() const {
        std::vector<double> all;
        for (const Storage& storage : parameters.storages())
            for (const Storage::OneScale& one : storage.one_scales) all.push_back(element(one.largest, 0));
        return all;
    }
    /// The passes in an update that are not the optimizer's.
    Passes update(const ParamGroups& groups, bool refused) {
        for (const Storage& storage : parameters.storages()) {
            const RandomStream random(3, storage.params().front().name);
            for (int64_t i = 0; storage.trainable() && i < storage.gradient.count(); ++i)
                set_element(storage.gradient, i, normal_quantile(random.uniform(uint64_t(i))));
        }
        StepScalars scalars = groups.begin_step(1, 0.5, 1);
        scalars.refusals = refused ? 1 : 0;
        Passes passes;
        const Observation observation = exec.observers.add(passes);
        one_scale_weights.begin_update(exec, cpu_kernels());
        groups.update(exec, cpu_kernels(), parameters, scalars, &matrices);
        one_scale_weights.finish_update(exec, cpu_kernels(), alone());
        return passes;
    }
};

}  // namespace

TEST_CASE("optimizers find the largest magnitudes of weights with one scale") {
    StateTypes in_8_bits = {Dtype::f32, Dtype::bf16};
    in_8_bits.precision.gather_in_8_bits = true;
    for (const StateTypes& types :
         {StateTypes{Dtype::f64, Dtype::f64}, StateTypes{Dtype::f32, Dtype::f32},
          StateTypes{Dtype::f32, Dtype::bf16}, StateTypes{Dtype::bf16, Dtype::bf16}, in_8_bits})
        for (const char* name : {"AdamW", "Muon"})
            for (const bool refused : {false, true}) {
                CAPTURE(name_of(types.master), name_of(types.compute), name, refused);
                const ParamGroups groups({.name = name});
                Weights weights(groups, types);
                const std::vector<double> before = weights.largest();
                // nothing is made again for the weight that stays; a scale and the codes for the others
                const Passes passes = weights.update(groups, refused);
                CHECK(passes.maxima == 0);
                CHECK(passes.quantizations == (types.precision.gather_in_8_bits ? 4 : 0));
                const std::vector<double> after = weights.largest();
                REQUIRE(after.size() == 3);
                CHECK((before == after) == refused);
                CHECK(before[2] == after[2]);
                CHECK(after[2] > 0);
                weights.one_scale_weights.renew(weights.exec, cpu_kernels(), alone());
                CHECK(after == weights.largest());
                weights.load_frozen(2);
                const auto bits_of_2 = double(std::bit_cast<int32_t>(2.0F));
                CHECK(weights.largest()[2] == bits_of_2);
                weights.update(groups, refused);
                CHECK(weights.largest()[2] == bits_of_2);
            }
}
