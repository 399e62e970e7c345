// SPDX-License-Identifier: Apache-2.0
// The fraction of its communication that a step hides: mpirun -n 2 build/bench/mpi_overlap.
// Each collective and message of a stream (gathers of weights, sums of gradients, overlapped tokens) gets 5
// ms of extra latency that takes no processor time, as on a network. Exchanges of the computing thread itself
// (loss and norm, one number each) are not slowed.
// The last line says whether FSDP and replicas reach the goal of hiding 80 %.
#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/models/registry.hpp"
#include "slow_network.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

using namespace coeus;

namespace {

constexpr auto latency = std::chrono::milliseconds(5);
constexpr int64_t seq_len = 512, sequences = 4;
constexpr double wanted = 0.8;

// Prints the figures on rank 0; returns the fraction of the communication time that was hidden on this rank.
double measure(const char* what, const MeshShape& shape, const ExchangeOptions& exchanges = {}) {
    Mesh mesh(Communicator::world("world"), shape);
    const DecoderConfig& model = find_flavor(find_family("llama3"), "debugmodel");
    Engine engine(model, {.training = {.sequences = sequences, .seq_len = seq_len},
                          .mesh = shape,
                          .rank = mesh.world().rank(),
                          .exchanges = exchanges,
                          .streams = Stream::Mode::threaded});
    engine.allocate(mesh);
    engine.model().parameters().initialise(1, 1);
    engine.renew_weights();
    std::vector<int32_t> ids(size_t(sequences * seq_len));
    const RandomStream random(uint64_t(mesh.world().rank()), "tokens");
    for (size_t t = 0; t < ids.size(); ++t) ids[t] = int32_t(random.u64(t) % uint64_t(model.vocab));

    Tracer tracer(mesh.world().rank());
    // communication of other threads than this one
    SlowNetwork network(tracer, latency, [computing = std::this_thread::get_id()](const std::string&) {
        return std::this_thread::get_id() != computing;
    });
    Observation tracing;
    for (int64_t step = 1; step <= 5; ++step) {
        if (step == 3) {  // the first two steps are the warm-up
            tracing = engine.observe(tracer);
            mesh.observe(&network);
        }
        engine.compute_gradients(step, 1e-4, 2 * sequences * seq_len, [&](int64_t) {
            return SampleRows{.sequences = sequences, .seq_len = seq_len, .tokens = ids, .labels = ids};
        });
        engine.update();
    }
    mesh.observe(nullptr);
    mesh.world().barrier();
    Tracer::Communication all;
    for (const auto& [name, sum] : tracer.communication()) {
        all.seconds += sum.seconds;
        all.exposed += sum.exposed;
    }
    const double hidden = all.seconds > 0 ? 1 - all.exposed / all.seconds : 0;
    if (mesh.world().rank() == 0)
        fmt::print(
            "== {}: 3 steps, {} ms of latency for communication of streams, none for other "
            "communication\n{}\n",
            what, latency.count(), tracer.overlap());
    return hidden;
}

}  // namespace

int main(int argc, char** argv) {
    const MpiRuntime mpi(&argc, &argv);
    const int ranks = mpi.world_size();
    measure("tensor parallel, tokens overlapped", {.tp = ranks}, {.overlap_tokens = true});
    const double shards = measure("FSDP", {.dp_shard = ranks}),
                 replicas = measure("replicas", {.dp_replicate = ranks});
    if (mpi.world_rank() == 0)
        fmt::print("FSDP hides {:.0f} % and replicas hide {:.0f} % of their communication: {:.0f} % {}\n",
                   100 * shards, 100 * replicas, 100 * wanted,
                   std::min(shards, replicas) >= wanted ? "is reached" : "is NOT reached");
    return 0;
}
