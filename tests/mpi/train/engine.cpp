// SPDX-License-Identifier: Apache-2.0
// Any number of data ranks takes the same steps as one rank: loss, gradient norm, every weight.
#include "coeus/engine/engine.hpp"

#include "coeus/comm/together.hpp"
#include "coeus/train/evaluator.hpp"
#include "support/catch.hpp"
#include "support/mesh_run.hpp"
#include "support/support.hpp"
#include "unit/data/token_files.hpp"

#include <optional>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t seq_len = 5, global_batch = 12;

class Run {
public:
    Run(const StateTypes& types, const Mesh& mesh)
        : engine(tiny_config(), {.types = types,
                                 .training = {.sequences = 1, .seq_len = seq_len},
                                 .accumulation = global_batch / mesh.size(axis::dp),
                                 .validation = {.sequences = 2, .seq_len = seq_len},
                                 .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                                 .mesh = mesh.shape(),
                                 .rank = mesh.world().rank()}) {
        engine.allocate(mesh);
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
    }

    /// Computes the gradients of this rank's part of the batch, one sequence at a time.
    void compute_gradients(int64_t number, TestBatch& batch) {
        const Communicator& ranks = engine.mesh()[axis::dp];
        const int64_t first = ranks.rank() * (global_batch / ranks.size());
        engine.compute_gradients(number, 1e-2, batch.valid_labels(),
                                 [&](int64_t i) { return batch.local_batch(first + i, 1); });
    }
    bool step(int64_t number, TestBatch& batch) {
        compute_gradients(number, batch);
        return engine.update().taken;
    }

    std::vector<double> weights() const {
        std::vector<double> all;
        for (const Storage& storage : engine.model().parameters().storages())
            for (double x : values(storage.master)) all.push_back(x);
        return all;
    }

    Engine engine;
};

// One replica per rank.
Mesh data_mesh() {
    Communicator world = Communicator::world("world");
    const MeshShape shape = {.dp_replicate = world.size()};
    return {std::move(world), shape};
}

}  // namespace

TEST_CASE("engine: many ranks take the steps of one") {
    const Mesh mesh = data_mesh();
    for (Dtype dtype : {Dtype::f64, Dtype::f32}) {
        const bool exact = dtype == Dtype::f64;
        TestBatch batch(global_batch, seq_len, tiny_config().vocab);
        // labels only in the first three sequences: most ranks have none
        batch.ignore_every(4).split_documents(2, false);
        for (size_t t = 3 * seq_len; t < batch.labels.size(); ++t) batch.labels[t] = -100;
        Run many({.master = dtype, .compute = dtype}, mesh),
            one({.master = dtype, .compute = dtype}, mesh_of_one());
        for (int64_t number : {1, 2, 3, 4, 5}) {
            CHECK(many.step(number, batch));
            CHECK(one.step(number, batch));
            CHECK(relatively_close(many.engine.scalars().loss, one.engine.scalars().loss,
                                   exact ? 1e-13 : 1e-5));
            CHECK(relatively_close(many.engine.scalars().grad_norm, one.engine.scalars().grad_norm,
                                   exact ? 1e-12 : 1e-4));
        }
        CHECK(normalised_error(many.weights(), one.weights()) < (exact ? 1e-11 : 1e-3));
    }
}

TEST_CASE("engine: sums over replicas begin in the backward, and none is left for its end") {
    struct Sums : CommunicationObserver, KernelObserver {
        int gradients = 0, numbers = 0, behind = 0;  // `behind`: sums after all kernels
        int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                      const std::source_location&, const Queue*) override {
            if (communicator == "dp_replicate" && std::string(operation) == "all_reduce")
                ++(bytes == sizeof(double) ? numbers : gradients), behind += bytes != sizeof(double);
            return 0;
        }
        void begin(const char*, double, double) override { behind = 0; }
        void begin_exchange(Exchange, double) override {}
        void end() override {}
        void end(int64_t) override {}
    };
    const Communicator world = Communicator::world("world");
    if (world.size() != 2 && world.size() != 4) return;
    const MeshShape shapes[] = {{.dp_replicate = world.size()},
                                {.dp_replicate = 2, .dp_shard = world.size() / 2},
                                {.pp = world.size() / 2, .dp_replicate = 2}};
    for (const MeshShape& shape : shapes)
        for (const bool tied : {false, true}) {
            Mesh mesh(world.split(0, "world"), shape);
            MeshCase c = {.mesh = shape, .model = tiny_config(3, tied)};
            if (shape.pp > 1) {
                c.pipeline = pipeline_of("ZBVZeroBubble", shape.pp, 4, 2, c.model);
                c.sequences = 4;
                c.gather.gradients = Keep::all;
            }
            CAPTURE(c.name());
            MeshRun run(c, mesh);
            TestBatch batch = batch_of_step(c, 1);
            Sums sums;
            mesh.observe(&sums);
            Observation observation = run.engine.observe(sums);
            run.compute_gradients(1, batch);
            observation.end();
            mesh.observe(nullptr);
            // the loss's own sum counts here only if replicas are the only axis, since its ranks then have
            // the same name
            const int single_numbers = shape.ranks() == shape.dp_replicate ? 1 : 0;
            const Parameters& parameters = run.engine.model().parameters();
            CHECK(sums.gradients >= int(parameters.units().size()));
            // the last unit of a backward is the first one; a stage that computes gradients of weights late
            // ends with two
            const size_t last_units = shape.pp > 1 ? 2 : 1;
            CHECK(sums.behind <= int(last_units * parameters.gradients_of(0).size()));
            CHECK(sums.numbers == single_numbers);
        }
}

TEST_CASE("engine: the memory of reductions is allocated before the first step") {
    const Communicator world = Communicator::world("world");
    if (world.size() > 4) return;  // more ranks test nothing new
    for (const MeshShape& shape :
         meshes_of(world.size(), {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp}))
        for (const ContextExchange exchange : {ContextExchange::all_gather, ContextExchange::ring}) {
            MeshCase c = {.mesh = shape, .model = tiny_config()};
            c.model.grouped().heads = c.model.grouped().kv_heads = 4;
            c.model.layers = 4;
            c.exchanges.context.exchange = exchange;
            c.pipeline = pipeline_of("1F1B", shape.pp, 2 * shape.pp, 1, c.model);
            c.sequences = 2 * shape.pp;
            CAPTURE(c.name());
            const Mesh mesh(world.split(0, "world"), shape);
            MeshRun run(c, mesh);
            const auto held = [&] {
                int64_t bytes = mesh.gradient_reduction().reduction_bytes();
                for (const unsigned axes :
                     {unsigned(axis::pp), unsigned(axis::dp_replicate), unsigned(axis::dp_shard),
                      unsigned(axis::cp), unsigned(axis::tp), axis::dp, axis::fsdp, loss_axes, owner_axes})
                    bytes += mesh[axes].reduction_bytes();
                return bytes;
            };
            CHECK(held() == run.engine.plan().bytes(term::reduction));
            TestBatch batch = batch_of_step(c, 1);
            CHECK(run.step(1, batch));
            CHECK(held() == run.engine.plan().bytes(term::reduction));
        }
}

TEST_CASE("engine: layers report what tensor-parallel ranks exchange, and need few products for it") {
    // checks that each collective lies within an exchange that was reported
    class Noted : public KernelObserver, public CommunicationObserver {
    public:
        int products = 0, collectives = 0, unnoted = 0;
        void begin(const char* kernel, double, double) override {
            products += std::string(kernel).starts_with("gemm");
        }
        void begin_exchange(Exchange, double) override { noted_ = true; }
        void end() override { noted_ = false; }
        int64_t begin(const std::string& communicator, const char*, int64_t, const std::source_location&,
                      const Queue*) override {
            collectives += communicator == "tp";
            unnoted += communicator == "tp" && !noted_;
            return 0;
        }
        void end(int64_t) override {}

    private:
        bool noted_ = false;
    };
    const Communicator world = Communicator::world("world");
    if (world.size() < 2 || world.size() > 4) return;
    for (const bool split_loss : {true, false}) {
        MeshCase c = {.mesh = {.tp = world.size()}, .model = tiny_config()};
        c.model.grouped().heads = c.model.grouped().kv_heads = 4;
        c.exchanges.split_loss = split_loss;
        CAPTURE(c.name());
        Mesh mesh(world.split(0, "world"), c.mesh);
        MeshRun run(c, mesh);
        TestBatch batch = batch_of_step(c, 1);
        Noted noted;
        Observation observation = run.engine.observe(noted);
        mesh.observe(&noted);
        run.compute_gradients(1, batch);
        mesh.observe(nullptr);
        observation.end();
        // per layer 4 exchanges forward and 6 backward; 2 of the embedding, 2 of the head, 1 or 2 of the
        // loss, 1 of the gradients of which each rank has a part
        CHECK(noted.collectives == 10 * c.model.layers + 5 + (split_loss ? 2 : 1));
        CHECK(noted.unnoted == 0);
        // per layer 2 and at most 2 x 3 forward, 8 backward; 3 of the head
        CHECK(noted.products <= 16 * c.model.layers + 3);
    }
}

TEST_CASE("engine: ranks hold the same bits after each step, also with stochastic rounding") {
    const Mesh mesh = data_mesh();
    const Communicator& world = mesh.world();
    for (Dtype master : {Dtype::f32, Dtype::bf16}) {
        TestBatch batch(global_batch, seq_len, tiny_config().vocab);
        batch.split_documents(3, false);
        Run run({.master = master, .compute = Dtype::bf16}, mesh);
        for (int64_t number : {1, 2, 3}) {
            CHECK(run.step(number, batch));
            std::vector<double> first = run.weights();
            world.broadcast(Tensor(first.data(), Dtype::f64, {int64_t(first.size())}), 0);
            CHECK(run.weights() == first);
        }
    }
}

TEST_CASE("engine: a gradient that is not finite on one rank stops all ranks") {
    const Mesh mesh = data_mesh();
    const Communicator& world = mesh.world();
    TestBatch batch(global_batch, seq_len, tiny_config().vocab);
    batch.split_documents(5, false);
    Run run({.master = Dtype::f32, .compute = Dtype::f32}, mesh);
    const std::vector<double> before = run.weights();
    const Tensor last = run.engine.model().parameters().storages().back().w;
    const double good = element(last, 7);
    if (world.rank() == world.size() - 1) set_element(last, 7, std::numeric_limits<double>::infinity());
    CHECK_FALSE(run.step(1, batch));
    set_element(last, 7, good);
    CHECK(run.weights() == before);
}

TEST_CASE("evaluator: many ranks measure the loss of one") {
    const Mesh mesh = data_mesh();
    const Communicator& world = mesh.world();
    std::optional<TemporaryFolder> folder;
    if (world.rank() == 0) folder.emplace();
    Run run({.master = Dtype::f64, .compute = Dtype::f64}, mesh),
        one_rank({.master = Dtype::f64, .compute = Dtype::f64}, mesh_of_one());
    // 6 samples, which 4 ranks cannot share evenly, and 1; one at a time, some ranks have none left
    for (const int64_t samples : {6, 1}) {
        const std::string path =
            broadcast_text(world, folder ? counting_file(folder->path() / fmt::format("{}.h5", samples),
                                                         samples * (seq_len + 1), {3, 5})
                                               .string()
                                         : "");
        const TokenFile file(path);
        const Sampler sampler(file, {.seq_len = seq_len});
        Config config;
        config.validation.seq_len = seq_len;
        config.training.document_mask = true;
        for (const int64_t at_a_time : {2, 1})
            for (const int64_t steps : {-1, 1}) {
                CAPTURE(samples, at_a_time, steps);
                config.validation.local_batch_size = at_a_time;
                config.validation.steps = steps;
                Evaluator evaluator(config, sampler);
                const ValidationMetrics many = evaluator.run(run.engine, [] { return true; }).value();
                config.validation.steps = steps < 0 ? -1 : world.size();
                Evaluator alone(config, sampler);
                const ValidationMetrics one = alone.run(one_rank.engine, [] { return true; }).value();
                CHECK(many.tokens == one.tokens);
                CHECK(relatively_close(many.loss, one.loss, 1e-13));
            }
    }
    world.barrier();  // rank 0 removes the file
}

// With room for the mean number of experts' rows, ranks with different numbers of rows in a call would
// disagree on the rounds in which these travel.
TEST_CASE("evaluator: ranks that divide experts evaluate the same number of rows in each call") {
    Communicator ranks = Communicator::world("world");
    if (ranks.size() % 2 != 0) return;
    const MeshShape shape = {.dp_shard = ranks.size(), .ep = 2};
    const Mesh mesh(std::move(ranks), shape);
    const Communicator& world = mesh.world();
    DecoderConfig model = tiny_config();
    set_experts(model, 1);
    model.moe.experts = 8;
    model.moe.top_k = 6;
    const int64_t tokens = (world.size() + 1) * (seq_len + 1);  // rank 0 has 2 samples, the others 1
    model.vocab = std::max(model.vocab, tokens);
    const auto loss_on = [&](const Mesh& on, const Sampler& sampler) {
        Engine engine(model, {.types = {.master = Dtype::f64, .compute = Dtype::f64},
                              .training = {.sequences = 1, .seq_len = seq_len},
                              .validation = {.sequences = 2, .seq_len = seq_len},
                              .mesh = on.shape(),
                              .rank = on.world().rank(),
                              .exchanges = {.expert_capacity = 1}});
        engine.allocate(on);
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
        Config config;
        config.validation.seq_len = seq_len;
        config.validation.local_batch_size = 2;
        config.validation.steps = -1;
        return Evaluator(config, sampler).run(engine, [] { return true; })->loss;
    };
    std::optional<TemporaryFolder> folder;
    if (world.rank() == 0) folder.emplace();
    const std::string path =
        broadcast_text(world, folder ? counting_file(folder->path() / "tokens.h5", tokens).string() : "");
    const TokenFile file(path);
    const Sampler sampler(file, {.seq_len = seq_len});
    CHECK(relatively_close(loss_on(mesh, sampler), loss_on(mesh_of_one(), sampler), 1e-13));
    world.barrier();  // rank 0 removes the file
}
