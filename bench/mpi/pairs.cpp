// SPDX-License-Identifier: Apache-2.0
// The part of the experts' exchanges that the pairs of DualPipeV hide: mpirun -n 4 build/bench/mpi_pairs.
// Two pipeline ranks, and two ranks that divide the experts. Each message between experts takes 5 ms longer,
// without using a core, as on a network. Steps with and without pairs that take turns, and with and without
// these 5 ms, alternate; the program prints the medians, and what the 5 ms add with pairs and without.
// The last line says whether the goal of hiding 60 % is reached. Losses and gradient norms must be the same.
#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/models/registry.hpp"
#include "slow_network.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

using namespace coeus;

namespace {

constexpr auto latency = std::chrono::milliseconds(5);
constexpr int64_t seq_len = 128, micro_batches = 16;
constexpr int rounds = 3;
constexpr double wanted = 0.6;

DecoderConfig model() {
    DecoderConfig config = find_flavor(find_family("deepseek_v3"), "debugmodel");
    config.layers = 8;  // two on each stage, all with experts
    config.vocab = 512;
    config.moe_layers.first = 0;
    config.moe.balance_rate = 0;
    return config;
}

struct Run {
    std::unique_ptr<Engine> engine;
    std::vector<double> seconds, slow_seconds;
    int64_t steps = 0;

    Run(const Mesh& mesh, bool overlap_pairs) {
        const DecoderConfig config = model();
        EngineOptions options = {.training = {.sequences = micro_batches, .seq_len = seq_len},
                                 .mesh = mesh.shape(),
                                 .rank = mesh.world().rank(),
                                 .gather = {.weights = Keep::all, .gradients = Keep::all},
                                 .streams = Stream::Mode::threaded,
                                 .overlap_pairs = overlap_pairs};
        options.pipeline.timetable =
            find_schedule("DualPipeV")
                ->timetable(
                    {.ranks = mesh.shape().pp, .microbatches = int(micro_batches), .virtual_stages = 2});
        options.pipeline.parts =
            ModelConfig(config)->split(options.pipeline.timetable.stages(), {.embedding = 0, .head = 0});
        engine = std::make_unique<Engine>(config, options);
        engine->allocate(mesh);
        engine->model().parameters().initialise(1, 1);
        engine->renew_weights();
    }

    void step(const Mesh& mesh, std::vector<int32_t>& ids, std::vector<double>& times) {
        mesh.world().barrier();
        const auto begin = std::chrono::steady_clock::now();
        engine->compute_gradients(++steps, 1e-4, micro_batches * seq_len * mesh.size(axis::dp), [&](int64_t) {
            return SampleRows{.sequences = micro_batches, .seq_len = seq_len, .tokens = ids, .labels = ids};
        });
        engine->update();
        mesh.world().barrier();
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    const MpiRuntime mpi(&argc, &argv);
    if (mpi.world_size() != 4) {
        fmt::print("this benchmark needs 4 ranks\n");
        return 2;
    }
    Mesh mesh(Communicator::world("world"), {.pp = 2, .dp_shard = 2, .ep = 2});
    const bool reports = mpi.world_rank() == 0;
    std::vector<int32_t> ids(size_t(micro_batches * seq_len));
    const RandomStream random(uint64_t(mesh.rank(axis::dp)), "tokens");
    const auto vocab = uint64_t(model().vocab);
    for (size_t t = 0; t < ids.size(); ++t) ids[t] = int32_t(random.u64(t) % vocab);

    Run in_turn(mesh, false), in_pairs(mesh, true);
    Tracer tracer(mpi.world_rank());
    SlowNetwork slow(tracer, latency,
                     [](const std::string& communicator) { return communicator == axes_name(axis::ep); });
    std::vector<double> warm_up;
    bool same = true;
    for (int round = -1; round < rounds; ++round) {
        for (const bool is_slow : {false, true}) {
            mesh.observe(is_slow ? &slow : nullptr);
            for (Run* run : {&in_turn, &in_pairs})
                run->step(mesh, ids, round < 0 ? warm_up : is_slow ? run->slow_seconds : run->seconds);
            same = same && in_turn.engine->scalars().loss == in_pairs.engine->scalars().loss &&
                   in_turn.engine->scalars().grad_norm == in_pairs.engine->scalars().grad_norm;
        }
    }
    mesh.observe(nullptr);
    const auto row = [&](const char* name, const Run& run) {
        const double fast = median(run.seconds), slower = median(run.slow_seconds);
        if (reports)
            fmt::print("{}: {:.0f} ms a step, {:.0f} ms with {} ms of latency: {:.0f} ms more\n", name,
                       1000 * fast, 1000 * slower, latency.count(), 1000 * (slower - fast));
        return slower - fast;
    };
    const double exposed = row("one after the other", in_turn), left = row("pairs take turns   ", in_pairs);
    const double hidden = 1 - left / exposed;
    if (reports)
        fmt::print("pairs hide {:.0f} % of the latency: {:.0f} % {}; losses and norms are {}\n", 100 * hidden,
                   100 * wanted, hidden >= wanted ? "is reached" : "is NOT reached",
                   same ? "the same" : "DIFFERENT");
    return same && hidden >= wanted ? 0 : 1;
}
