// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/together.hpp"

#include "support/catch.hpp"

using namespace coeus;
using Catch::Contains;

namespace {

template <class Error>
std::string message_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    } catch (...) {
        return "another kind of error";
    }
    return "";
}

}  // namespace

TEST_CASE("together: if nothing is thrown, nothing happens") {
    const Communicator world = Communicator::world("world");
    int calls = 0;
    together(world, [&] { ++calls; });
    CHECK(calls == 1);
}

TEST_CASE("together: all ranks throw the error of the lowest failing rank") {
    const Communicator world = Communicator::world("world");
    for (int failing = 0; failing < world.size(); ++failing) {
        const auto config = message_of<ConfigError>([&] {
            together(world, [&] {
                if (world.rank() >= failing) throw ConfigError("wrong on rank {}", world.rank());
            });
        });
        // an error of rank 0 is usually everyone's; another rank's is marked with its number
        CHECK(config == (failing == 0 ? "" : fmt::format("rank {}: ", failing)) +
                            fmt::format("wrong on rank {}", failing));
        const auto system = message_of<SystemError>([&] {
            together(world, [&] {
                if (world.rank() == failing) throw SystemError("disk of rank " + std::to_string(failing));
            });
        });
        CHECK_THAT(system, Contains(fmt::format("disk of rank {}", failing)));
    }
    const auto stopped =
        message_of<StoppedError>([&] { on_first_rank(world, [] { throw StoppedError("in order"); }); });
    CHECK(stopped == "in order");
    int calls = 0;
    on_first_rank(world, [&] { ++calls; });
    CHECK(calls == (world.rank() == 0 ? 1 : 0));
}

TEST_CASE("broadcast_text carries text of any length") {
    const Communicator world = Communicator::world("world");
    for (size_t length : {size_t(0), size_t(1), size_t(100000)})
        for (int root = 0; root < world.size(); ++root) {
            const std::string mine(world.rank() == root ? length : 3, char('a' + world.rank()));
            CHECK(broadcast_text(world, mine, root) == std::string(length, char('a' + root)));
        }
}

TEST_CASE("together: every rank gets the texts of all, of any lengths") {
    const Communicator world = Communicator::world("world");
    const auto text_of = [](int rank) { return std::string(size_t(3 * rank), char('a' + rank)); };
    const std::vector<std::string> all = gather_texts(world, text_of(world.rank()));
    REQUIRE(int(all.size()) == world.size());
    for (int rank = 0; rank < world.size(); ++rank) CHECK(all[size_t(rank)] == text_of(rank));
}
