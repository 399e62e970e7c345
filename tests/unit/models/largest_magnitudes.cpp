// SPDX-License-Identifier: Apache-2.0
// Tensors that are quantized with one scale: which of them are read once more for their largest magnitude,
// and whether it is theirs.
#include "coeus/state/quantize.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"

#include <cstring>

using namespace coeus;
using namespace coeus::test;

namespace {

/// Counts the passes that find largest magnitudes, and compares those that quantizations are given.
class Maxima : public KernelObserver {
public:
    void begin(const char* kernel, double, double) override { kernel_ = kernel; }
    void operands(std::span<const Tensor> all) override {
        if (is("largest_magnitudes")) ++passes;
        if (!is("quantize") && !is("quantize_values")) return;
        const Tensor x = all[1], given = all[2];
        if (!given || given.count() != 1) return;
        const OwnedTensor own(Dtype::i32, {1});
        Exec exec;
        cpu_kernels().largest_magnitudes(exec, own, x, ScaleGroups::one, {});
        ++quantizations;
        if (element(own, 0) != element(given, 0)) ++wrong;
    }
    void end() override {}

    int passes = 0, quantizations = 0, wrong = 0;

private:
    bool is(const char* name) const { return std::strcmp(kernel_, name) == 0; }
    const char* kernel_ = "";
};

DecoderConfig config_of_16s() {
    DecoderConfig config = tiny_config();
    config.dim = 32;
    config.attention.heads = 4;
    config.attention.kv_heads = 2;
    config.attention.head_dim = 8;
    config.feed_forward.hidden = 48;
    return config;
}

Maxima maxima_of(Dtype compute, const std::vector<std::string>& filter, Recompute recompute) {
    const DecoderConfig config = config_of_16s();
    StateTypes types = {compute == Dtype::f64 ? Dtype::f64 : Dtype::f32, compute};
    types.quantize = {.linear = Recipe::tensorwise, .filter_fqns = filter};
    TestModel model(config, types, {2, 24}, 2, 1, std::vector<Recompute>(2, recompute));
    TestBatch batch(2, 24, config.vocab);
    model.scalars.loss_scale = 1.0 / double(batch.valid_labels());
    model.zero_gradients();
    Maxima seen;
    const Observation observation = model.exec.observers.add(seen);
    model.forward_backward(batch);
    return seen;
}

}  // namespace

// In a layer, the inputs of wq, wk, wv (as one), of w1 and w3, and of w2 come with their largest magnitude,
// and so do the gradients of the outputs of w1 and w3. The input of wo does not, in the forward and the
// backward, nor do the gradients of the outputs of wq, wk, wv, wo and w2.
TEST_CASE("largest magnitudes: norms and SwiGLU hand theirs to the products with one scale") {
    for (const Dtype compute : {Dtype::f64, Dtype::f32, Dtype::bf16})
        for (const Recompute recompute : {Recompute::nothing, Recompute::operations, Recompute::block}) {
            CAPTURE(name_of(compute), int(recompute));
            const Maxima seen = maxima_of(compute, {}, recompute);
            CHECK(seen.wrong == 0);
            CHECK(seen.quantizations > 0);
            CHECK(seen.passes == 2 * (recompute == Recompute::block ? 8 : 7));
        }
}

TEST_CASE("largest magnitudes: a stack of which some parts stay in the compute type has them too") {
    for (const Recompute recompute : {Recompute::nothing, Recompute::operations, Recompute::block}) {
        CAPTURE(int(recompute));
        const Maxima seen = maxima_of(Dtype::bf16, {"wk", "w1"}, recompute);
        CHECK(seen.wrong == 0);
        // without the gradient of wk's output; the input of w1 and w3 stays, and comes with its magnitude
        CHECK(seen.passes == 2 * (recompute == Recompute::block ? 7 : 6));
    }
}
