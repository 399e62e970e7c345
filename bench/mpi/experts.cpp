// SPDX-License-Identifier: Apache-2.0
// Steps of a model with experts, with and without expert parallelism: mpirun -n 2 build/bench/mpi_experts.
// The cases take their steps in turns, and the figures are medians. With a latency, each collective of the
// ranks that divide the experts (counts, rows, weights, results, and their gradients) takes so much longer
// without using a processor, as on a network. The exposed part of this communication is the part for which
// the computation waits. (pairs.cpp measures the overlapped pairs of DualPipeV on four ranks.)
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/models/registry.hpp"
#include "slow_network.hpp"

#include <algorithm>
#include <vector>

using namespace coeus;

namespace {

constexpr int64_t seq_len = 512, sequences = 1;
constexpr int turns = 3, steps_per_turn = 3;  // the first step of a turn is not measured

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// An engine, and what it has measured.
class Case {
public:
    Case(const DecoderConfig& model, const MeshShape& shape, std::chrono::milliseconds latency)
        : latency_(latency),
          mesh_(Communicator::world("world"), shape),
          engine_(model, {.training = {.sequences = sequences, .seq_len = seq_len},
                          .mesh = shape,
                          .rank = mesh_.world().rank(),
                          .streams = Stream::Mode::threaded}),
          ids_(size_t(sequences * seq_len)),
          tracer_(mesh_.world().rank()),
          network_(tracer_, latency,
                   [](const std::string& communicator) { return communicator == axes_name(axis::ep); }) {
        engine_.allocate(mesh_);
        engine_.model().parameters().initialise(1, 1);
        engine_.renew_weights();
        const RandomStream random(uint64_t(mesh_.world().rank()), "tokens");
        for (size_t t = 0; t < ids_.size(); ++t) ids_[t] = int32_t(random.u64(t) % uint64_t(model.vocab));
        mesh_.observe(&network_);
    }
    ~Case() { mesh_.observe(nullptr); }

    void take_turn() {
        const Observation tracing = engine_.observe(tracer_);
        for (int i = 0; i < steps_per_turn; ++i) {
            mesh_.world().barrier();
            tracer_.clear();
            const Timer timer;
            engine_.compute_gradients(
                ++step_, 1e-4, mesh_.world().size() * sequences * seq_len, [&](int64_t) {
                    return SampleRows{
                        .sequences = sequences, .seq_len = seq_len, .tokens = ids_, .labels = ids_};
                });
            engine_.update();
            if (i == 0) continue;
            seconds_.push_back(timer.seconds());
            const auto all = tracer_.communication();
            const auto experts = all.find(axes_name(axis::ep));
            const Tracer::Communication sum =
                experts == all.end() ? Tracer::Communication{} : experts->second;
            exchange_.push_back(sum.seconds);
            exposed_.push_back(sum.exposed);
        }
    }

    std::string row() const {
        std::string row =
            fmt::format("| {} | {} ms | {:.3f} |", mesh_.shape().text(), latency_.count(), median(seconds_));
        if (mesh_.shape().ep == 1) return row + " | | |";
        const double seconds = median(exchange_), exposed = median(exposed_);
        return row + fmt::format(" {:.0f} | {:.0f} | {:.0f} % |", 1e3 * seconds, 1e3 * exposed,
                                 100 * exposed / seconds);
    }

private:
    std::chrono::milliseconds latency_;
    Mesh mesh_;
    Engine engine_;
    std::vector<int32_t> ids_;
    Tracer tracer_;
    SlowNetwork network_;
    int64_t step_ = 0;
    std::vector<double> seconds_, exchange_, exposed_;
};

}  // namespace

int main(int argc, char** argv) {
    using std::chrono::milliseconds;
    const MpiRuntime mpi(&argc, &argv);
    const int ranks = mpi.world_size();
    const DecoderConfig& model = find_flavor(find_family("deepseek_v3"), "debugmodel");
    std::vector<std::unique_ptr<Case>> cases;
    cases.push_back(std::make_unique<Case>(model, MeshShape{.dp_shard = ranks}, milliseconds(0)));
    for (const int latency : {0, 5})
        cases.push_back(
            std::make_unique<Case>(model, MeshShape{.dp_shard = ranks, .ep = ranks}, milliseconds(latency)));
    for (int turn = 0; turn < turns; ++turn)
        for (const auto& one : cases) one->take_turn();
    if (mpi.world_rank() != 0) return 0;
    fmt::print(
        "deepseek_v3 debugmodel, float32, {} tokens per rank; medians of {} steps\n"
        "| mesh | latency | step, s | experts' exchange, ms | exposed, ms | exposed |\n"
        "|---|---:|---:|---:|---:|---:|\n",
        sequences * seq_len, turns * (steps_per_turn - 1));
    for (const auto& one : cases) fmt::print("{}\n", one->row());
    return 0;
}
