// SPDX-License-Identifier: Apache-2.0
// A run resumes from its checkpoint on another mesh as if it had not been interrupted: five steps on one mesh
// and five on the other, against ten steps on one rank in float64. On the same mesh it resumes with the same
// bits.
#include "coeus/base/random.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/data/batch_loader.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "mpi/io/groups.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/part.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t global_batch = 8, seq_len = 16, vocab = 37, micro_batches = 4;
constexpr double learning_rate = 1e-2;

/// How the model is distributed over a mesh.
struct Layout {
    MeshShape mesh;
    const char* schedule = nullptr;
    int virtual_stages = 1;
    ContextExchange exchange = ContextExchange::all_gather;
    Balancing balancing = Balancing::none;
    bool halves = false;  // see set_halves
};

/// Layouts of 1, 2, 4 and 8 ranks, with every axis alone and combined with others. No degree divides the rows
/// of all parameters. Some divide the experts over ranks, and the ranks of two of these divide each expert.
const std::vector<Layout>& layouts() {
    static const std::vector<Layout> all = {
        {{}},
        {{.dp_shard = 2, .ep = 2}},
        {{.pp = 2}, "Interleaved1F1B", 2},
        {{.cp = 2, .tp = 2, .ep = 4}, nullptr, 1, ContextExchange::ring, Balancing::head_tail, true},
        {{.dp_replicate = 2, .dp_shard = 2}},
        {{.pp = 2, .tp = 2, .ep = 2}, "ZBVZeroBubble", 2},
        {{.dp_shard = 8, .ep = 8}},
        {{.pp = 2, .dp_shard = 2, .tp = 2, .ep = 2, .etp = 2}, "DualPipeV", 2},
        {{.dp_replicate = 2, .cp = 2, .tp = 2, .ep = 2, .etp = 2},
         nullptr,
         1,
         ContextExchange::heads,
         Balancing::none},
        {{.pp = 4, .dp_shard = 2}, "Interleaved1F1B", 2},
    };
    return all;
}

/// What the cases have besides a mesh.
struct Kind {
    bool tied;
    const char* optimizer;
    int attention, experts;  // see set_attention, set_experts
    int64_t depths;          // of multi-token prediction
    int recipe;              // see set_recipe
    int frozen;              // see set_frozen
    const char* layers;      // see set_layer_choices; null: regular choices
};
constexpr std::array kinds = {
    Kind{false, "AdamW", 1, 2, 0, 0, 0, nullptr}, Kind{true, "Muon", 2, 1, 1, 1, 2, "1101001"},
    Kind{false, "Muon", 3, 3, 1, 2, 0, nullptr}, Kind{true, "AdamW", 5, 4, 0, 3, 1, "110"}};

MeshCase case_of(const Layout& layout, const Kind& kind, const StateTypes& types) {
    MeshCase c = {.mesh = layout.mesh, .model = tiny_config(), .types = types, .seq_len = seq_len};
    c.model.layers = 7;  // divided among eight stages; the last has no layer
    c.model.grouped().heads = 8;
    c.model.grouped().kv_heads = 4;
    c.model.grouped().head_dim = 4;
    c.model.feed_forward.hidden = 23;
    c.model.vocab = vocab;
    c.model.tied = kind.tied;
    c.optimizer.name = kind.optimizer;
    set_attention(c.model, kind.attention);
    if (kind.attention == 2) set_two_ropes(c.model);
    set_experts(c.model, kind.experts);
    if (kind.layers) set_layer_choices(c.model, kind.layers);
    c.model.moe.experts = round_up(c.model.moe.experts, 8 * c.model.moe.groups);
    c.exchanges.expert_capacity = kind.tied ? 2 : 0.3;
    c.model.mtp.layers = kind.depths;
    if (kind.tied) c.model.z_loss_weight = 0.05;
    c.sequences = layout.schedule ? micro_batches : 1;
    if (layout.halves) set_halves(c);
    c.local_batches = global_batch / layout.mesh.size(axis::dp) / c.sequences;
    c.exchanges.context = {layout.exchange, layout.balancing};
    if (layout.schedule)
        c.pipeline =
            pipeline_of(layout.schedule, layout.mesh.pp, micro_batches, layout.virtual_stages, c.model);
    set_recipe(c, kind.recipe);
    set_frozen(c, kind.frozen);
    return c;
}

/// The data of all runs, in a file whose path all ranks know. An epoch ends within a step.
class Data {
public:
    Data(const Communicator& world, const std::string& folder) {
        const std::string path = folder + "/tokens.h5";
        on_first_rank(world, [&] {
            const RandomStream random(5, "tokens");
            std::vector<uint16_t> tokens;
            for (uint64_t i = 0; i < 30 * (seq_len + 1); ++i)
                tokens.push_back(uint16_t(random.u64(i) % vocab));
            hdf5::File file = hdf5::File::create(path);
            file.create_dataset("tokens", hdf5::Type::u16, {int64_t(tokens.size())})
                .write(std::span<const uint16_t>(tokens));
            file.close();
        });
        file_.emplace(path);
    }
    SampleStream stream() const {
        return {Sampler(*file_, {.seq_len = seq_len, .seed = 3, .shuffle = true})};
    }

private:
    std::optional<TokenFile> file_;
};

/// A run on a mesh, with its data. It does with an engine what Trainer does, and also returns the tokens that
/// were read.
class Run {
public:
    Run(const MeshCase& c, const Mesh& mesh, const Data& data, int64_t first_sample = 0)
        : mesh_(mesh),
          local_(c.sequences),
          model_(c, mesh),
          loader_(data.stream(), {.global_batch = global_batch,
                                  .rank = mesh.rank(axis::dp),
                                  .ranks = mesh.size(axis::dp),
                                  .first_sample = first_sample}) {}

    MeshRun& model() { return model_; }
    const Mesh& mesh() const { return mesh_; }
    std::vector<CheckpointTensor> state() const {
        return checkpoint_tensors(model_.engine.model().parameters(), true);
    }
    /// The record of a run's position after a step.
    static TrainRecord record_of(int64_t step) {
        return {.step = step, .sample = step * global_batch, .deck = "", .version = "", .model = ""};
    }
    TrainRecord load(const std::string& file) {
        Parameters& parameters = model_.engine.model().parameters();
        parameters.initialise(99, 1);  // nothing of the loaded state may be there already
        const TrainRecord record = load_checkpoint(file, state(), mesh_.world());
        model_.engine.renew_weights();
        return record;
    }

    /// The loss of the step. Appends to `read` the tokens that all data ranks read together, in their order.
    double step(int64_t number, std::vector<int64_t>& read, AsyncCheckpoint* beside = nullptr) {
        const StepBatch batch = loader_.next().value();
        keep_tokens(batch, read);
        SampleRows samples = batch.samples.text;
        samples.document_start = {};
        Engine& engine = model_.engine;
        engine.compute_gradients(number, learning_rate, mesh_[axis::dp].all_reduce(batch.counted),
                                 [&](int64_t i) { return samples.slice(i * local_, local_); });
        if (beside) beside->wait_for_copies();
        CHECK(engine.update().taken);
        return engine.scalars().loss;
    }

private:
    void keep_tokens(const StepBatch& batch, std::vector<int64_t>& read) const {
        std::vector<int64_t> step(size_t(global_batch * seq_len));
        const size_t first = size_t(mesh_.rank(axis::dp)) * batch.samples.text.tokens.size();
        if (mesh_.rank(axis::pp) + mesh_.rank(axis::cp) + mesh_.rank(axis::tp) == 0)
            std::copy(batch.samples.text.tokens.begin(), batch.samples.text.tokens.end(),
                      step.begin() + int64_t(first));
        mesh_.world().all_reduce(Tensor(step.data(), Dtype::i64, {int64_t(step.size())}));
        read.insert(read.end(), step.begin(), step.end());
    }

    const Mesh& mesh_;
    int64_t local_;
    MeshRun model_;
    BatchLoader loader_;
};

/// The results of a run, for comparison.
struct Trace {
    std::vector<double> losses;
    std::vector<int64_t> read;
    std::map<std::string, std::vector<double>> state;  // keys such as "exp_avg of norm.weight"

    void take_steps(Run& run, int64_t first, int64_t last) {
        for (int64_t step = first; step <= last; ++step) losses.push_back(run.step(step, read));
    }
    void keep_state(Run& run) {
        const auto keep = [&](const char* what, const StorageTensor& kind) {
            for (auto& [name, values] : run.model().whole(kind)) state[what + name] = std::move(values);
        };
        keep("weight ", &Storage::master);
        keep("exp_avg of ", exp_avg);
        keep("exp_avg_sq of ", exp_avg_sq);
        keep("momentum_buffer of ", moment("momentum_buffer"));
    }
};

/// Ranks [0, n) of the world as a mesh; the other ranks get none and wait.
std::optional<Mesh> mesh_on(const Communicator& world, const MeshShape& shape) {
    const bool takes_part = world.rank() < shape.ranks();
    Communicator ranks = world.split(takes_part ? 0 : 1, "ranks of a mesh");
    if (!takes_part) return std::nullopt;
    return std::optional<Mesh>(std::in_place, std::move(ranks), shape);
}

const StateTypes float64 = {Dtype::f64, Dtype::f64};

/// Scales of experts' columns depend on the mesh, so experts have no recipe.
MeshCase float64_case_of(const Layout& layout, const Kind& kind) {
    MeshCase c = case_of(layout, kind, float64);
    c.types.precision.experts = Recipe::none;
    return c;
}

Trace ten_steps_on_one_rank(const Kind& kind, const Data& data) {
    Run run(float64_case_of(layouts()[0], kind), mesh_of_one(), data);
    Trace trace;
    trace.take_steps(run, 1, 10);
    trace.keep_state(run);
    return trace;
}

/// Names differences above 1e-11: of losses relative to the loss, of each array by ||a - b|| / ||b||. The
/// biases of experts, which follow from integers, must have the same bits.
std::string differences(const Trace& is, const Trace& should) {
    std::string lines;
    if (is.read != should.read) lines += "other tokens were read, or in another order\n";
    if (is.losses.size() != should.losses.size() || is.state.size() != should.state.size())
        return lines + "other steps or arrays\n";
    for (size_t i = 0; i < is.losses.size(); ++i)
        if (!relatively_close(is.losses[i], should.losses[i], 1e-11))
            lines += fmt::format("loss of step {} is {:.15g}, on one rank {:.15g}\n", i + 1, is.losses[i],
                                 should.losses[i]);
    for (const auto& [name, values] : should.state) {
        if (const double error = normalised_error(is.state.at(name), values); !(error <= 1e-11))
            lines += fmt::format("{} differs by {:.2e}\n", name, error);
        if (name.ends_with(".expert_bias") && is.state.at(name) != values)
            lines += fmt::format("{} has other bits\n", name);
    }
    return lines;
}

struct Pair {
    size_t from, to;  // numbers of layouts
    size_t kind;
    bool beside;

    std::string name() const {
        return fmt::format("{} -> {}, kind {}{}", layouts()[from].mesh.text(), layouts()[to].mesh.text(),
                           kind, beside ? ", written beside" : "");
    }
};

/// Five steps on one mesh, then five on the other. If the save is asynchronous, a sixth step runs at the same
/// time, whose result is lost.
Trace go_on_elsewhere(const Pair& pair, const Communicator& world, const Data& data,
                      const std::string& folder) {
    Trace trace;
    if (const auto mesh = mesh_on(world, layouts()[pair.from].mesh)) {
        Run run(float64_case_of(layouts()[pair.from], kinds[pair.kind]), *mesh, data);
        trace.take_steps(run, 1, 5);
        const CheckpointStore files(folder, 1, mesh->world());
        if (pair.beside) {
            AsyncCheckpoint beside(files, mesh->world(), run.state());
            beside.begin(Run::record_of(5));
            std::vector<int64_t> lost;
            run.step(6, lost, &beside);
            CHECK(beside.finish().has_value());
        } else {
            files.save(Run::record_of(5), run.state());
        }
    }
    world.barrier();
    if (const auto mesh = mesh_on(world, layouts()[pair.to].mesh)) {
        Run run(float64_case_of(layouts()[pair.to], kinds[pair.kind]), *mesh, data, 5 * global_batch);
        const TrainRecord record = run.load(CheckpointStore(folder, 1, mesh->world()).folder().path_of(5));
        CHECK(record == Run::record_of(5));
        trace.take_steps(run, record.step + 1, 10);
        trace.keep_state(run);
    }
    world.barrier();
    return trace;
}

void expect_that_all_go_on(const std::vector<Pair>& pairs) {
    const Communicator world = Communicator::world("world");
    if (world.size() != 8) return;
    const SharedFolder folder(world);
    const Data data(world, folder.path);
    std::map<size_t, Trace> references;  // of kinds; on rank 0, which is in every mesh
    size_t number = 0;
    for (const Pair& pair : pairs) {
        const Trace is = go_on_elsewhere(pair, world, data, fmt::format("{}/{}", folder.path, number++));
        if (world.rank() != 0) continue;
        INFO(pair.name());
        const auto [should, is_new] = references.try_emplace(pair.kind);
        if (is_new) should->second = ten_steps_on_one_rank(kinds[pair.kind], data);
        CHECK(differences(is, should->second) == "");
    }
}

/// Each layout is once the first mesh and once the second; in the short list half of these.
std::vector<Pair> some_pairs() {
    std::vector<Pair> pairs;
    Part part("restart on another mesh", 8, {1, 2});
    const size_t count = layouts().size();
    for (size_t from = 0; from < count; ++from)
        if (part.takes_next())
            pairs.push_back(
                {from, (from + (from % 2 == 0 ? 3 : 7)) % count, from % kinds.size(), from / 2 % 2 == 1});
    return pairs;
}

std::string bits(const std::vector<CheckpointTensor>& state) {
    std::string all;
    for (const CheckpointTensor& tensor : state)
        for (const HeldBlock& block : tensor.blocks)
            for (int64_t row = 0; row < block.local.rows(); ++row) {
                const Tensor one = block.local.slice_rows(row, 1);
                all.append(static_cast<const char*>(one.data), size_t(one.count() * size_of(one.dtype)));
            }
    return all;
}

}  // namespace

TEST_CASE("restart: on another mesh a run resumes as on one rank") {
    expect_that_all_go_on(some_pairs());
}

TEST_CASE("soak: from every mesh to every mesh a run resumes as on one rank", "[.soak]") {
    std::vector<Pair> pairs;
    for (size_t from = 0; from < layouts().size(); ++from)
        for (size_t to = 0; to < layouts().size(); ++to)
            for (size_t kind = 0; kind < kinds.size(); ++kind)
                for (const bool beside : {false, true}) pairs.push_back({from, to, kind, beside});
    expect_that_all_go_on(pairs);
}

TEST_CASE("restart: on the same mesh a run resumes with the same bits") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 8) return;
    const SharedFolder folder(world);
    const Data data(world, folder.path);
    size_t number = 0;
    Part part("restart on the same mesh", world.size(), {2, 4});
    for (const Layout& layout : layouts())
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
            ++number;
            if (!part.takes_next()) continue;
            if (const auto mesh = mesh_on(world, layout.mesh)) {
                Kind kind = kinds[number / 2 % kinds.size()];
                kind.recipe = int(number) % 4;  // without MXFP8, which needs longer sequences
                MeshCase c = case_of(layout, kind, {dtype, dtype});
                c.types.gradients_in_bf16 =
                    dtype == Dtype::bf16 && c.optimizer.name == "AdamW" && !c.types.precision.any();
                const CheckpointStore files(fmt::format("{}/{}", folder.path, number), 1, mesh->world());
                Run run(c, *mesh, data), again(c, *mesh, data, 2 * global_batch);
                Trace goes_on, resumed;
                goes_on.take_steps(run, 1, 2);
                again.load(files.save(Run::record_of(2), run.state()).path);
                INFO(layout.mesh.text() << ", " << name_of(dtype));
                const bool loaded = bits(again.state()) == bits(run.state());
                CHECK(loaded);
                goes_on.losses.clear();
                goes_on.read.clear();
                goes_on.take_steps(run, 3, 4);
                resumed.take_steps(again, 3, 4);
                CHECK(resumed.losses == goes_on.losses);
                CHECK(resumed.read == goes_on.read);
                const bool same = bits(again.state()) == bits(run.state());
                CHECK(same);
            }
            world.barrier();
        }
}

TEST_CASE("restart: another mesh with another type has the rounded numbers") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 8) return;
    const SharedFolder folder(world);
    const Data data(world, folder.path);
    const Dtype types[] = {Dtype::f64, Dtype::f32, Dtype::bf16};
    Part part("restart with another type", world.size(), {2, 4});
    for (size_t from = 0; from < layouts().size(); ++from) {
        if (!part.takes_next()) continue;
        const Layout &a = layouts()[from], &b = layouts()[(from + 5) % layouts().size()];
        const Dtype wide = types[from % 2], narrow = types[1 + from % 2];
        const std::string files = fmt::format("{}/{}", folder.path, from);
        Trace saved, loaded, back;
        if (const auto mesh = mesh_on(world, a.mesh)) {
            Run run(case_of(a, kinds[0], {wide, wide}), *mesh, data);
            saved.take_steps(run, 1, 2);
            saved.keep_state(run);
            CheckpointStore(files, 0, mesh->world()).save(Run::record_of(2), run.state());
        }
        world.barrier();
        if (const auto mesh = mesh_on(world, b.mesh)) {
            Run run(case_of(b, kinds[0], {narrow, narrow}), *mesh, data);
            const CheckpointStore checkpoint(files, 0, mesh->world());
            run.load(checkpoint.folder().path_of(2));
            loaded.keep_state(run);
            checkpoint.save(Run::record_of(3), run.state());
        }
        world.barrier();
        if (const auto mesh = mesh_on(world, a.mesh)) {
            Run run(case_of(a, kinds[0], {wide, wide}), *mesh, data);
            run.load(CheckpointStore(files, 0, mesh->world()).folder().path_of(3));
            back.keep_state(run);
        }
        world.barrier();
        if (world.rank() != 0) continue;
        INFO(a.mesh.text() << " in " << name_of(wide) << " -> " << b.mesh.text() << " in "
                           << name_of(narrow));
        // exact parameters are float32 in a run in bfloat16 too
        for (auto& [name, values] : saved.state)
            for (double& value : values)
                value = narrow == Dtype::f32 || name.find(".expert_bias") != std::string::npos
                            ? double(float(value))
                            : double(float(bf16(float(value))));
        const bool rounded = loaded.state == saved.state, widened = back.state == saved.state;
        CHECK(rounded);
        CHECK(widened);
    }
}
