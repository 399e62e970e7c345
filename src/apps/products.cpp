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

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream rows(text);
    for (std::string line; std::getline(rows, line);) lines.push_back(line);
    return lines;
}

std::string rate_of(double operations, double seconds) {
    return seconds > 0 ? fmt::format("{:.1f}", 1e-12 * operations / seconds) : "-";
}

std::string end_text(const SearchedProduct& product) {
    const double longer = product.kept_before && product.best.seconds > 0
                              ? product.kept_before->seconds / product.best.seconds - 1
                              : 0;
    switch (product.end) {
        case SearchedProduct::End::kept: return "kept";
        case SearchedProduct::End::replaced:
            return fmt::format("replaced, took {:.1f} % longer", 100 * longer);
        case SearchedProduct::End::had_been_kept:
            return longer > 0 ? fmt::format("kept before, takes {:.1f} % longer", 100 * longer)
                              : "kept before";
        case SearchedProduct::End::cannot_be_kept: return "could not be kept";
        case SearchedProduct::End::not_kept: return "not kept";
    }
    return "";
}

std::string line_of(const SearchedProduct& product) {
    const auto number = [](double value) { return value > 0 ? fmt::format("{:.0f}", value) : "-"; };
    return fmt::format("{:>11} {:>11} {:>7} {:>5} {:>5} {:>3}  {:<34}  {}\n",
                       rate_of(product.operations, product.shortest_turn),
                       rate_of(product.operations, product.of_short_turns.seconds),
                       rate_of(product.operations, product.best.seconds), number(product.best.watts),
                       number(product.best.megahertz), product.algorithms, end_text(product),
                       product.problem);
}

// Keeps each product as the first rank that has it found it, and returns a line for each. Collective.
std::vector<std::string> keep(const Communicator& world, Exec& exec) {
    std::string problems;
    for (const SearchedProduct& product : searched_products(exec)) problems += product.problem + "\n";
    std::set<std::string> of_earlier_ranks;
    const std::vector<std::string> of_all = gather_texts(world, problems);
    for (int rank = 0; rank < world.rank(); ++rank) {
        const std::vector<std::string> lines = lines_of(of_all[size_t(rank)]);
        of_earlier_ranks.insert(lines.begin(), lines.end());
    }
    std::string text;
    together(world, [&] {
        for (const SearchedProduct& product : searched_products(exec))
            if (!of_earlier_ranks.contains(product.problem))
                text += line_of(keep_searched(exec, product.problem));
    });
    std::vector<std::string> lines;
    for (const std::string& of_rank : gather_texts(world, text))
        std::ranges::move(lines_of(of_rank), std::back_inserter(lines));
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
            "coeus products: it keeps algorithms in the user's cache, but neither XDG_CACHE_HOME nor HOME is "
            "set; set one of them");
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed || access(folder.c_str(), W_OK | X_OK) != 0)
        throw ConfigError(
            "coeus products: {} cannot be written to{}, so nothing would be kept; set XDG_CACHE_HOME to a "
            "folder of "
            "yours",
            folder, failed ? ": " + failed.message() : "");
}

// Only on rank 0. The first warnings are of other processes that hold a GPU's memory: times are not steady
// beside them.
void describe(const CommandLine& command_line, const Session& session) {
    for (const std::string& line : command_line.notices) log::info("{}", line);
    for (const std::string& line : session.device_lines()) log::info("{}", line);
    const RankDevice& choice = session.rank().choice();
    for (const std::vector<std::string>& warnings : {choice.warnings(), choice.transport().warnings})
        for (const std::string& line : warnings) log::warn("{}", line);
    for (const Finding& finding : session.findings())
        if (finding.is_warning()) log::warn("{}", finding.line());
}

void search(const CommandLine& command_line, const MpiRuntime& mpi, Watchdog& watchdog, StartUp& start_up,
            const SteadySearch& options) {
    const Config& config = command_line.config;
    Rank rank(config, mpi, start_up);
    together(rank.world(), [&] { require_place(config, rank); });
    watchdog.set_gpu(rank.device().bus_id());
    Session session(config, rank, start_up);
    const Session::Ending ending(session);
    if (rank.is_first()) describe(command_line, session);
    session.require_fits();
    session.take_memory(watchdog.nccl(), options);
    if (rank.is_first())
        log::info("Searching on {} with turns of {:.3g} s", rank.device().name(), options.seconds);
    compute_step(session);
    const std::vector<std::string> lines = keep(rank.world(), session.engine().exec());
    if (!rank.is_first()) return;
    fmt::print("{:>11} {:>11} {:>7} {:>5} {:>5} {:>3}  {:<34}  {}\n", "short turns", "its steady", "steady",
               "W", "MHz", "of", "", "product; rates in TFLOP/s");
    for (const std::string& line : lines) fmt::print("{}\n", line);
    fmt::print("{} product{}, in {}; `coeus info --products` shows what is kept\n", lines.size(),
               lines.size() == 1 ? "" : "s", user_cache("products"));
}

// Ranks wait for others that search: the turns of one product are 11 of options.seconds, and a stage has
// fewer products than this.
Config::Comm with_time_to_search(Config::Comm comm, const SteadySearch& options) {
    constexpr double most_products = 100, turns = 11;
    comm.init_timeout_seconds += int64_t(most_products * turns * options.seconds);
    return comm;
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
    std::ranges::copy(split_arguments.deck, std::back_inserter(of_run));

    StartUp start_up;
    const MpiRuntime mpi(nullptr, nullptr);
    log::init({.rank = mpi.world_rank()});
    DeckRules rules = deck_rules();
    rules.needs_data = false;
    const CommandLine command_line = parse_by_rules(of_run, rules, Communicator::world("deck"));
    mpi.require_all_tasks();
    Watchdog watchdog(with_time_to_search(command_line.config.comm, options), mpi);
    watchdog.guard([&] { search(command_line, mpi, watchdog, start_up, options); });
    return 0;
}

}  // namespace coeus::apps
