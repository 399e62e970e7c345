// SPDX-License-Identifier: Apache-2.0
// A model that is not a decoder, with batches of its own kind, on ranks that divide its layers, its
// parameters and the data: it takes the steps of one rank. It resumes from its checkpoint with the same bits.
#include "coeus/comm/together.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/io/checkpoint.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"
#include "support/two_flow_model.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t echo_words = 11, echo_width = 6, length = 5;
constexpr size_t blocks = 6;

// The tokens are their own labels.
class EchoPart : public BatchPart {
public:
    explicit EchoPart(std::unique_ptr<BatchPart> tokens) : tokens_(std::move(tokens)) {}

    void stage(int64_t place, const LocalBatch& local_batch) override {
        SampleRows rows = local_batch.text;
        rows.labels = rows.tokens;
        tokens_->stage(place, rows);
    }
    Batch bring(Exec& exec, int64_t place) const override { return tokens_->bring(exec, place); }

private:
    std::unique_ptr<BatchPart> tokens_;
};

class EchoBatches : public BatchKind {
public:
    const char* name() const override { return "echoed tokens"; }
    BatchBytes bytes(const LocalBatches& training, const BatchShape& validation, int ranks,
                     Backend backend) const override {
        return tokens_.bytes(training, validation, ranks, backend);
    }
    std::unique_ptr<BatchPart> part(const LocalBatches& batches, const SequencePart& part,
                                    const Device& device) const override {
        return std::make_unique<EchoPart>(tokens_.part(batches, part, device));
    }
    Batch planned(const BatchShape& shape, int ranks) const override { return tokens_.planned(shape, ranks); }
    std::shared_ptr<const LocalBatch> drawn(const BatchShape& shape) const override {
        return tokens_.drawn(shape);
    }

private:
    TokenBatches tokens_;
};

class EchoModel : public TwoFlowModel {
public:
    using TwoFlowModel::TwoFlowModel;
    const BatchKind& batches() const override { return batches_; }

private:
    EchoBatches batches_;
};

class EchoDescription : public TwoFlowDescription {
public:
    EchoDescription() : TwoFlowDescription(blocks, echo_width, echo_words) {}
    std::unique_ptr<Model> build(const StateTypes& types, int64_t /*positions*/, const ModelPlace& place,
                                 const std::vector<ModelPart>& parts,
                                 const std::vector<Recompute>& recompute) const override {
        return std::make_unique<EchoModel>(blocks_, dim_, vocab_, types, recomputes_blocks(recompute), parts,
                                           place);
    }
};

const ModelConfig echoing(std::make_shared<EchoDescription>()),
    with_labels(std::make_shared<TwoFlowDescription>(blocks, echo_width, echo_words));

// An engine on a mesh, and its steps. `sequences`: of a local batch on all ranks together.
class EchoRun {
public:
    EchoRun(const ModelConfig& model, const Mesh& mesh, int64_t sequences)
        : engine_(model, options(model, mesh, sequences)), sequences_(sequences) {
        engine_.allocate(mesh);
        engine_.model().parameters().initialise(5, 1);
        engine_.renew_weights();
    }

    Engine& engine() { return engine_; }
    std::vector<CheckpointTensor> state() const {
        return checkpoint_tensors(engine_.model().parameters(), true);
    }
    // Returns the losses.
    std::vector<double> take_steps(int64_t first, int64_t last) {
        std::vector<double> losses;
        for (int64_t step = first; step <= last; ++step) {
            TestBatch batch(2 * sequences_, length, echo_words, uint64_t(step));
            const int64_t own = engine_.options().training.sequences,
                          first_row = 2 * own * engine_.mesh().rank(axis::dp);
            engine_.compute_gradients(step, 1e-2, batch.valid_labels(),
                                      [&](int64_t i) { return batch.local_batch(first_row + i * own, own); });
            CHECK(engine_.update().taken);
            losses.push_back(engine_.scalars().loss);
        }
        return losses;
    }

private:
    static EngineOptions options(const ModelConfig& model, const Mesh& mesh, int64_t sequences) {
        const int ranks = mesh.shape().pp;
        const int64_t own = sequences / mesh.shape().size(axis::dp);
        EngineOptions options = {.types = {.master = Dtype::f64, .compute = Dtype::f64},
                                 .training = {.sequences = own, .seq_len = length},
                                 .accumulation = 2,
                                 .validation = {.sequences = 2, .seq_len = length},
                                 .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
                                 .mesh = mesh.shape(),
                                 .rank = mesh.world().rank()};
        if (ranks > 1)
            options.pipeline = {.timetable = find_schedule("1F1B")->timetable({ranks, int(own), 1}),
                                .parts = model->split(ranks, {}),
                                .sends = Sends::synchronous};
        return options;
    }

    Engine engine_;
    int64_t sequences_;
};

}  // namespace

TEST_CASE("other models: a pipeline takes the steps of one rank, and resumes with the same bits") {
    const Communicator world = Communicator::world("world");
    const int64_t sequences = 2 * world.size();
    const Mesh mesh(world.split(0, "world"), {.pp = world.size()});
    const TemporaryFolder own;
    const CheckpointStore store(broadcast_text(world, own.path().string()), 0, world);

    EchoRun run(echoing, mesh, sequences);
    CHECK(run.engine().plan().bytes("echoed tokens") > 0);
    CHECK(run.engine().layer_memory().executor.flow_tensors == 2);
    const std::vector<double> before = run.take_steps(1, 2);
    store.save(record_of(2), run.state());
    const std::vector<double> after = run.take_steps(3, 4);
    TestBatch validated(2, length, echo_words);
    const double loss = run.engine().evaluate(validated.local_batch(0, 2));
    CHECK(run.engine().used().activations == run.engine().layer_memory().activations);
    CHECK(run.engine().used().temporaries == run.engine().layer_memory().temporaries);

    EchoRun resumed(echoing, mesh, sequences);
    resumed.engine().model().parameters().initialise(99, 1);  // nothing of the saved state is there already
    const auto loaded = store.load_newest(resumed.state());
    REQUIRE(loaded.has_value());
    CHECK(loaded->train.step == 2);
    resumed.engine().renew_weights();
    CHECK(resumed.take_steps(3, 4) == after);

    EchoRun one(echoing, mesh_of_one(), sequences), other(with_labels, mesh_of_one(), sequences);
    const std::vector<double> of_one = one.take_steps(1, 4), of_other = other.take_steps(1, 4);
    for (size_t i = 0; i < 2; ++i) {
        CHECK(relatively_close(before[i], of_one[i], 1e-11));
        CHECK(relatively_close(after[i], of_one[2 + i], 1e-11));
    }
    CHECK(relatively_close(mesh[axis::pp].all_reduce(loss),
                           one.engine().evaluate(validated.local_batch(0, 2)), 1e-11));
    CHECK_FALSE(relatively_close(of_one[0], of_other[0], 1e-6));
    world.barrier();  // the folder is removed
}

TEST_CASE("other models: ranks that divide layers, parameters and data take the steps of one rank") {
    const Communicator world = Communicator::world("world");
    const int64_t sequences = 2 * world.size();
    EchoRun one(echoing, mesh_of_one(), sequences);
    const std::vector<double> of_one = one.take_steps(1, 3);
    TestBatch validated(2, length, echo_words);
    const double validation = one.engine().evaluate(validated.local_batch(0, 2));
    for (const MeshShape& shape : meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard})) {
        INFO(shape.text());
        const Mesh mesh(world.split(0, "world"), shape);
        EchoRun run(echoing, mesh, sequences);
        const std::vector<double> losses = run.take_steps(1, 3);
        for (size_t i = 0; i < losses.size(); ++i) CHECK(relatively_close(losses[i], of_one[i], 1e-11));
        const double loss = run.engine().evaluate(validated.local_batch(0, 2));
        CHECK(relatively_close(mesh[axis::pp].all_reduce(loss), validation, 1e-11));
        // each rank owns its part
        const bool divides = shape.dp_shard > 1;
        for (const Storage& storage : run.engine().model().parameters().storages())
            CHECK(storage.is_gathered() == divides);
    }
}
