// SPDX-License-Identifier: Apache-2.0
// coeus products DECK: searches for the algorithms of the deck's matrix products that are fastest while they
// hold the GPU at its power limit, and keeps them for the runs that follow. It computes one step of the deck,
// with drawn weights and tokens, and writes no other file.
#include "products.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/gpu_monitor.hpp"
#include "coeus/session/session.hpp"
#include "coeus/watchdog/watchdog.hpp"
#include "command_line/deck_arguments.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

namespace coeus::apps {

namespace {

Flags products_flags() {
    const SteadySearch usual;
    Flags flags(
        "products", "DECK [--replace] [--section.option=value ...]", "a deck",
        "Searches for the fastest algorithms of the deck's matrix products, and keeps them for runs on such "
        "GPUs. A run times algorithms in short turns on a cool GPU. Here the best four of up to 32 run until "
        "the GPU is at its power limit, as in a long run, and the one that is fastest then is kept.\n"
        "On several ranks: mpirun -n RANKS coeus products DECK. It takes about 4 s for each product, "
        "computes "
        "one step of random weights and tokens, and needs neither data nor checkpoints.");
    flags
        .add_switch("replace",
                    "also replace algorithms that were kept before; runs that resume then have other bits")
        .add("seconds", "S", fmt::format("{}", usual.seconds),
             "how long each of the best four runs, twice; the GPU is heated three times as long before");
    return flags;
}

// The numbers of a step count, but the loss need not become smaller.
void compute_step(Session& session) {
    Engine& engine = session.engine();
    const EngineOptions& options = engine.options();
    engine.model().parameters().initialise(engine.exec(), engine.kernels(), options.seed);
    engine.renew_weights();
    const BatchKind& batches = engine.model().batches();
    const auto training = batches.drawn(options.training);
    engine.compute_gradients(1, 0, options.step_sequences() * options.training.seq_len,
                             [&](int64_t) { return *training; });
    engine.update();
    if (options.validation.sequences > 0) engine.evaluate(*batches.drawn(options.validation));
}

std::string rate_of(double operations, double seconds) {
    return seconds > 0 ? fmt::format("{:.1f}", 1e-12 * operations / seconds) : "-";
}

std::string end_text(const SearchedProduct& product) {
    const double ratio = product.best.seconds > 0 ? product.used.seconds / product.best.seconds : 1;
    switch (product.end) {
        case SearchedProduct::End::kept: return "kept";
        case SearchedProduct::End::replaced: return "replaced";
        case SearchedProduct::End::had_been_kept:
            return ratio > 1 ? fmt::format("kept before, takes {:.1f} % longer", 100 * (ratio - 1))
                             : "kept before";
        case SearchedProduct::End::cannot_be_kept: return "could not be kept";
    }
    return "";
}

// What comes last names the product.
std::string line_of(const SearchedProduct& product) {
    const auto number = [](double value) { return value > 0 ? fmt::format("{:.0f}", value) : "-"; };
    return fmt::format("{:>11} {:>11} {:>7} {:>5} {:>5} {:>3}  {:<34}  {}",
                       rate_of(product.operations, product.shortest_turn),
                       rate_of(product.operations, product.of_short_turns.seconds),
                       rate_of(product.operations, product.best.seconds), number(product.best.watts),
                       number(product.best.megahertz), product.algorithms, end_text(product),
                       product.problem);
}

// Each product once, as the first rank that has it found it. Collective.
std::vector<std::string> lines_of_all(const Communicator& world, const std::vector<SearchedProduct>& own) {
    std::string text;
    for (const SearchedProduct& product : own) text += line_of(product) + "\n";
    std::vector<std::string> lines;
    std::set<std::string> seen;
    for (const std::string& of_rank : gather_texts(world, text)) {
        std::istringstream rows(of_rank);
        for (std::string line; std::getline(rows, line);)
            if (seen.insert(line.substr(line.rfind(' ') + 1)).second) lines.push_back(line);
    }
    return lines;
}

void require_place(const Config& config, const Rank& rank) {
    if (rank.device().is_host())
        throw ConfigError(
            "coeus products: this run would compute on the CPU ({}), whose products have no algorithms to "
            "choose from; "
            "start it on a machine with a GPU",
            config.device == "cpu" ? "device = \"cpu\"" : why_no_gpu());
    if (!config.kernels.autotune)
        throw ConfigError(
            "kernels.autotune = false: runs of this deck take cuBLASLt's first suggestions, whatever is "
            "kept; set "
            "kernels.autotune = true");
    const std::string folder = user_cache("products");
    if (folder.empty())
        throw ConfigError(
            "coeus products: neither XDG_CACHE_HOME nor HOME is set, so there is no folder in which "
            "algorithms are "
            "kept; set one of them");
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed || access(folder.c_str(), W_OK | X_OK) != 0)
        throw ConfigError(
            "coeus products: {} cannot be written to{}, so nothing would be kept; set XDG_CACHE_HOME to a "
            "folder of "
            "yours",
            folder, failed ? ": " + failed.message() : "");
}

// Before this process uses the GPU.
void warn_if_busy(const Rank& rank) {
    const std::optional<GpuMonitor> monitor = GpuMonitor::of_bus_id(rank.device().bus_id());
    const std::string others = monitor ? use_by_others(monitor->sample()) : "";
    if (!others.empty())
        log::warn("Another process uses GPU {}: {}. The times below are not those of a GPU that one run has",
                  rank.device().bus_id(), others);
}

void search(const CommandLine& command_line, const MpiRuntime& mpi, Watchdog& watchdog, StartUp& start_up,
            const SteadySearch& options) {
    const Config& config = command_line.config;
    Rank rank(config, mpi, start_up);
    together(rank.world(), [&] { require_place(config, rank); });
    watchdog.set_gpu(rank.device().bus_id());
    warn_if_busy(rank);
    Session session(config, rank, start_up);
    const Session::Ending ending(session);
    session.require_fits();
    session.take_memory(watchdog.nccl(), options);
    if (rank.is_first())
        log::info("Searching on {} with turns of {:.3g} s; what is found is kept at once",
                  rank.device().name(), options.seconds);
    compute_step(session);
    const std::vector<std::string> lines =
        lines_of_all(rank.world(), searched_products(session.engine().exec()));
    if (!rank.is_first()) return;
    fmt::print("{:>11} {:>11} {:>7} {:>5} {:>5} {:>3}  {:<34}  {}\n", "short turns", "its steady", "steady",
               "W", "MHz", "of", "", "product; rates in TFLOP/s");
    for (const std::string& line : lines) fmt::print("{}\n", line);
    fmt::print("{} product{}, in {}; `coeus info --products` shows what is kept\n", lines.size(),
               lines.size() == 1 ? "" : "s", user_cache("products"));
}

}  // namespace

Flags products_help() {
    return products_flags();
}

int products(const Arguments& arguments) {
    DeckArguments split_arguments = split_deck_arguments(arguments);
    Flags flags = products_flags();
    flags.parse(split_arguments.own);
    if (flags.words().size() > 1)
        throw ConfigError("coeus products: takes one deck, but got {}", join(flags.words(), " "));
    const SteadySearch options = {.seconds = flags.number("seconds", 1e-6, 60),
                                  .replaces = flags.given("replace")};
    Arguments of_run = flags.words();
    of_run.emplace_back("--dry_run");  // the deck's data need not be there
    std::ranges::copy(split_arguments.deck, std::back_inserter(of_run));

    StartUp start_up;
    const MpiRuntime mpi(nullptr, nullptr);
    log::init({.rank = mpi.world_rank()});
    const CommandLine command_line = parse_command_line(of_run, Communicator::world("deck"));
    mpi.require_all_tasks();
    Watchdog watchdog(command_line.config.comm, mpi);
    watchdog.guard([&] { search(command_line, mpi, watchdog, start_up, options); });
    return 0;
}

}  // namespace coeus::apps
