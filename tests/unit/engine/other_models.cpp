// SPDX-License-Identifier: Apache-2.0
// The engine with a model that is not a decoder, of which it knows the description alone.
#include "coeus/base/error.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/predict/record.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/two_flow_model.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t words = 11, flow_dim = 6;
constexpr size_t blocks = 3;

// A loss that nothing adds to, and a step after the update.
class Counting : public TwoFlowModel {
public:
    Counting(const StateTypes& types, bool recompute, const std::vector<ModelPart>& parts)
        : TwoFlowModel(blocks, flow_dim, words, types, recompute, parts) {
        set_losses({{.number = 3, .topic = "flows", .name = "unused_loss"}});
    }
    Counters counters() const override { return {"visits", 2, 5}; }
    void after_update(Exec& exec, const Kernels& kernels, Tensor counts,
                      const StepScalars& /*scalars*/) const override {
        CHECK(counts.shape == Shape{2, 5});
        kernels.zero(exec, counts);
        ++updates;
    }
    mutable int updates = 0;
};

class CountingDescription : public TwoFlowDescription {
public:
    CountingDescription() : TwoFlowDescription(blocks, flow_dim, words) {}
    std::unique_ptr<Model> build(const StateTypes& types, int64_t, const ModelPlace&,
                                 const std::vector<ModelPart>& parts,
                                 const std::vector<Recompute>& recompute) const override {
        return std::make_unique<Counting>(types, recomputes_blocks(recompute), parts);
    }
};

const ModelConfig two_flows(std::make_shared<CountingDescription>());

EngineOptions options(RecomputeOptions::Mode mode) {
    return {.types = {.master = Dtype::f64, .compute = Dtype::f64},
            .training = {.sequences = 2, .seq_len = 7},
            .accumulation = 2,
            .validation = {.sequences = 2, .seq_len = 7},
            .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
            .recompute = {.mode = mode}};
}

}  // namespace

TEST_CASE("engine: a model that is not a decoder trains and validates in the memory that was planned") {
    for (const auto mode : {RecomputeOptions::Mode::nothing, RecomputeOptions::Mode::blocks}) {
        Engine engine(two_flows, options(mode));
        engine.allocate();
        CHECK(engine.model().parameters().count() == two_flows->parameters());
        CHECK(engine.plan().bytes("visits") == padded_bytes(2 * 5 * 8));
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
        TestBatch batch(4, 7, words);
        const double before = engine.evaluate(batch.local_batch(0, 2));
        double first = 0;
        for (int64_t number = 1; number <= 5; ++number) {
            engine.compute_gradients(number, 1e-2, batch.valid_labels(),
                                     [&](int64_t i) { return batch.local_batch(i * 2, 2); });
            CHECK(engine.update().taken);
            if (number == 1) first = engine.scalars().loss;
        }
        CHECK(engine.scalars().loss < first);
        CHECK(engine.scalars().losses[3] == 0);
        CHECK(engine.evaluate(batch.local_batch(0, 2)) < before);
        CHECK(dynamic_cast<const Counting&>(engine.model()).updates == 5);
        CHECK(engine.counts() == std::vector<int64_t>(10));
        CHECK(engine.used().activations == engine.layer_memory().activations);
        CHECK(engine.used().temporaries == engine.layer_memory().temporaries);
        CHECK(engine.used().workspace == engine.layer_memory().workspace);
        CHECK_THROWS_AS(decoder_of(engine.model()), LogicError);
    }
}

TEST_CASE("engine: what needs a language model refuses a model that is not a decoder") {
    CHECK_THROWS_WITH(require_decoder(two_flows, "training on text"),
                      "two flows is not a language model, which training on text needs");
    CHECK(require_decoder(tiny_config(3), "training on text").layers == 3);
    // its counters are not of experts
    CHECK(Engine(two_flows, options(RecomputeOptions::Mode::nothing)).model().counters().choices ==
          Counters::Choices::other);
}

TEST_CASE("engine: a step of a model that is not a decoder can be recorded") {
    EngineOptions on_gpu = options(RecomputeOptions::Mode::nothing);
    on_gpu.types = {.master = Dtype::f32, .compute = Dtype::f32};
    on_gpu.machine.backend = Backend::cuda;
    on_gpu.machine.architecture = 90;
    const Recording step = record_step(two_flows, on_gpu);
    CHECK(step.launches() > 0);
}

TEST_CASE("engine: parts of a pipeline that are not the whole model are refused") {
    const auto with = [](const std::vector<ModelPart>& parts) {
        EngineOptions wrong = options(RecomputeOptions::Mode::nothing);
        wrong.pipeline.parts = parts;
        return Engine(two_flows, wrong).plan().total();
    };
    CHECK(with({{0, blocks + 2}}) > 0);
    CHECK_THROWS_AS(with({{0, blocks}}), LogicError);
    CHECK_THROWS_AS(with({{1, blocks + 2}}), LogicError);
}

TEST_CASE("engine: a model that is not a decoder names each part of its loss once, and with room for it") {
    struct With : TwoFlowModel {
        explicit With(const std::vector<PartOfLoss>& losses)
            : TwoFlowModel(blocks, flow_dim, words, {.master = Dtype::f64, .compute = Dtype::f64}, false,
                           {{0, blocks + 2}}) {
            set_losses(losses);
        }
    };
    CHECK(With({{.number = 7, .name = "a_loss"}, {.number = 0, .name = "b_loss"}}).losses().size() == 2);
    CHECK_THROWS_AS(With({{.number = 8, .name = "a_loss"}}), LogicError);
    CHECK_THROWS_AS(With({{.number = 1, .name = "a_loss"}, {.number = 1, .name = "b_loss"}}), LogicError);
    CHECK_THROWS_AS(With({{.number = 1, .name = "a"}}), LogicError);
}
