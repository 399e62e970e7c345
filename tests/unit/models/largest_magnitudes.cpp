// SPDX-License-Identifier: Apache-2.0
// Tensors that are quantized: which of them are read once more for that, and whether what kernels found out
// when they wrote them is right.
#include "coeus/state/precision.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/written_operands.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr auto computes = {Dtype::f64, Dtype::f32, Dtype::bf16};
constexpr auto recomputes = {Recompute::nothing, Recompute::operations, Recompute::block};

struct Pass {
    WrittenOperands seen;
    double loss, evaluated;
    OwnedTensor gradients;
};

// `rounds`: kernels round what they write.
Pass pass_of(const DecoderConfig& config, Dtype compute, const Precision& precision, Recompute recompute,
             bool rounds = true) {
    StateTypes types = {compute == Dtype::f64 ? Dtype::f64 : Dtype::f32, compute};
    types.precision = precision;
    TestModel model(config, types, {2, 24}, 2, 1,
                    std::vector<Recompute>(size_t(config.all_layers()), recompute));
    if (!rounds) model.kernels.most_row_bytes = 0;
    TestBatch batch(2, 24, config.vocab);
    model.scalars.loss_scale = 1.0 / double(batch.valid_labels());
    model.zero_gradients();
    Pass pass;
    const Observation observation = model.exec.observers.add(pass.seen);
    model.forward_backward(batch);
    pass.loss = model.scalars.loss;
    const Tensor gradients = model.parameters().gradients();
    pass.gradients = OwnedTensor(gradients.dtype, gradients.shape);
    cpu_kernels().cast(model.exec, pass.gradients, gradients);
    model.scalars.loss = 0;
    model.evaluate(batch);
    pass.evaluated = model.scalars.loss;
    return pass;
}

WrittenOperands maxima_of(Dtype compute, const std::vector<std::string>& filter, Recompute recompute) {
    return pass_of(config_of_16s(), compute, {.linear = Recipe::tensorwise, .filter_fqns = filter}, recompute)
        .seen;
}

}  // namespace

// In a layer, the inputs of wq, wk, wv (as one), of w1 and w3, and of w2 come with their largest magnitude,
// and so do the gradients of the outputs of w1 and w3, of wo, and of w2, but for the last layer's. The input
// of wo does not, but is kept with it for the backward; nor do the gradients of the outputs of wq, wk and wv.
// The forward without a backward that follows reads the input of wo.
TEST_CASE("largest magnitudes: norms and SwiGLU hand theirs to the products with one scale") {
    for (const Dtype compute : computes)
        for (const Recompute recompute : recomputes) {
            CAPTURE(name_of(compute), int(recompute));
            const WrittenOperands seen = maxima_of(compute, {}, recompute);
            CHECK(seen.given == seen.own);
            CHECK(!seen.given.empty());
            CHECK(seen.passes == 2 * (recompute == Recompute::block ? 8 : 7) - 3);
        }
}

TEST_CASE("largest magnitudes: a stack of which some parts stay in the compute type has them too") {
    for (const Recompute recompute : recomputes) {
        CAPTURE(int(recompute));
        const WrittenOperands seen = maxima_of(Dtype::bf16, {"wk", "w1"}, recompute);
        CHECK(seen.given == seen.own);
        // without the gradient of wk's output; the input of w1 and w3 stays, and comes with its magnitude
        CHECK(seen.passes == 2 * (recompute == Recompute::block ? 7 : 6) - 3);
    }
}

TEST_CASE("largest magnitudes: kernels find those of every kind of model") {
    for (int number = 0; number < attention_kinds * expert_kinds; ++number) {
        const DecoderConfig config = config_of_16s(number % attention_kinds, number % expert_kinds);
        const Recompute recompute = recomputes.begin()[number % 3];
        CAPTURE(number % attention_kinds, number % expert_kinds, int(recompute));
        const WrittenOperands seen =
            pass_of(config, computes.begin()[number / 3 % 3], {.linear = Recipe::tensorwise}, recompute).seen;
        CHECK(seen.given == seen.own);
        CHECK(!seen.given.empty());
    }
}

// The gradients of several losses are added between blocks.
TEST_CASE("largest magnitudes: those of gradients are right if several tokens ahead are predicted") {
    for (const Recompute recompute : recomputes) {
        DecoderConfig config = config_of_16s();
        config.mtp.layers = 2;
        CAPTURE(int(recompute));
        const WrittenOperands seen =
            pass_of(config, Dtype::f32, {.linear = Recipe::tensorwise}, recompute).seen;
        CHECK(seen.given == seen.own);
        CHECK(!seen.given.empty());
    }
}

// In a layer, norms and SwiGLU round the inputs of wq, wk, wv (as one), of w1 and w3, and of w2; in all three
// forwards if blocks are recomputed, but for the last product, which is not repeated.
TEST_CASE("rounded rows: norms and SwiGLU write them in place of a kernel of their own") {
    for (const Recipe recipe : {Recipe::rowwise, Recipe::rowwise_with_gw_hp})
        for (const Dtype compute : computes)
            for (const Recompute recompute : recomputes) {
                CAPTURE(int(recipe), name_of(compute), int(recompute));
                const Pass fused = pass_of(config_of_16s(), compute, {.linear = recipe}, recompute),
                           separate = pass_of(config_of_16s(), compute, {.linear = recipe}, recompute, false);
                CHECK(fused.seen.rounded == 2 * (recompute == Recompute::block ? 8 : 6));
                CHECK(fused.seen.wrongly_rounded == 0);
                CHECK(separate.seen.rounded == 0);
                CHECK(separate.seen.quantizations - fused.seen.quantizations == fused.seen.rounded);
            }
}

TEST_CASE("rounded rows: every kind of model has the bits that it has without them") {
    int number = 0;
    for (const Recipe recipe : {Recipe::rowwise, Recipe::rowwise_with_gw_hp})
        for (int attention = 0; attention < attention_kinds; ++attention)
            for (int experts = 0; experts < expert_kinds; ++experts) {
                ++number;
                DecoderConfig config = config_of_16s(attention, experts);
                set_norms(config, (number + experts) % norm_kinds);
                if (number % 2 == 1) set_parallel(config);
                const Dtype compute = computes.begin()[number % 3];
                const Recompute recompute = recomputes.begin()[number / 3 % 3];
                const Precision precision = {.linear = recipe,
                                             .filter_fqns = number % 4 == 0
                                                                ? std::vector<std::string>{"wk", "w1"}
                                                                : std::vector<std::string>{}};
                CAPTURE(int(recipe), attention, experts, name_of(compute), int(recompute), number % 4,
                        config.parallel_block);
                const Pass fused = pass_of(config, compute, precision, recompute),
                           separate = pass_of(config, compute, precision, recompute, false);
                CHECK((fused.seen.rounded > 0) == has_rounded_inputs(config));
                CHECK(fused.seen.wrongly_rounded == 0);
                CHECK(fused.loss == separate.loss);
                CHECK(fused.evaluated == separate.evaluated);
                CHECK(same_bits(fused.gradients.view, separate.gradients.view));
            }
}
