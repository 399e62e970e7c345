// SPDX-License-Identifier: Apache-2.0
// Rank and Session: a rank is made ready to run from its deck, with its share of the host.
#include "coeus/session/session.hpp"

#include "coeus/comm/queue_watch.hpp"
#include "coeus/deck/command_line.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/mpi_runtime.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

Config config_with(const Words& more) {
    Words words = {"--dry_run",
                   "--device=cpu",
                   "--model.flavor=debugmodel",
                   "--model.vocab_size=64",
                   "--training.seq_len=32",
                   "--training.local_batch_size=1",
                   "--debug.seed=7"};
    words.insert(words.end(), more.begin(), more.end());
    return parse_command_line(words).config;
}

// The weights that this rank owns.
std::vector<double> weights_of(const Engine& engine) {
    std::vector<double> all;
    for (const Storage& storage : engine.model().parameters().storages())
        for (const double value : values(storage.master)) all.push_back(value);
    return all;
}

}  // namespace

TEST_CASE("session: the ranks of a host share its memory") {
    const Communicator world = Communicator::world("world");
    const Config config = config_with({});
    StartUp start_up;
    const Rank rank(config, mpi_runtime(), start_up);
    CHECK(rank.device().is_host());
    CHECK(rank.is_first() == (world.rank() == 0));
    CHECK(rank.local_size() == world.size());
    CHECK(rank.mesh().shape().ranks() == world.size());
    CHECK(rank.memory_bytes() == rank.device().memory_bytes() / world.size());
    CHECK(rank.host_memory_bytes() == memory_limit_bytes() / world.size());
}

TEST_CASE("session: takes the memory of its plan, and draws the weights by the seed of the deck") {
    const Config config = config_with({});
    StartUp start_up;
    Rank rank(config, mpi_runtime(), start_up);
    Session session(config, rank, start_up);
    CHECK(session.engine().options().machine.threads == rank.cpu().threads);
    CHECK(session.engine().options().rank == rank.world().rank());
    CHECK(session.findings().count(Finding::Severity::refusal) == 0);
    CHECK_NOTHROW(session.require_fits());
    QueueWatch watch({});
    session.take_memory(watch);
    const Session::Ending ending(session);
    CHECK(session.load_initial_weights().empty());
    const std::vector<double> drawn = weights_of(session.engine());
    CHECK_FALSE(drawn.empty());
    Parameters& parameters = session.engine().model().parameters();
    parameters.initialise(8, 1);
    CHECK(weights_of(session.engine()) != drawn);
    parameters.initialise(7, 1);
    CHECK(weights_of(session.engine()) == drawn);
}
