// SPDX-License-Identifier: Apache-2.0
// coeus info PATH...: shows what a file or folder is and contains.
#include "info.hpp"

#include "built_with.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/info/kinds.hpp"
#include "command_line/deck_arguments.hpp"
#include "number_ranges.hpp"
#include "token_flags.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <tuple>

namespace coeus::apps {

namespace {

// The compiler, flags and libraries of the build, and the MPI library that is found now.
void show_build() {
    info::print("coeus {}\n", version());
    for (const auto& [name, text] : built_with()) info::entry(name, text);
    info::entry("MPI found here", MpiRuntime::library_version());
}

Flags info_flags() {
    Flags flags(
        "info",
        "PATH... [--verify] [--diff OTHER] [--model] [--ranks N] [--gpu NAME] [--newest_step] | TOKENS "
        "--document "
        "N | DECK --step N | --build | --products [FOLDER]",
        "a file or folder",
        "Shows what a file or folder is and contains: checkpoints, token files, encoded images, "
        "tokenizers, decks, safetensors files, Hugging Face folders, and folders of runs. The content, not "
        "the name, determines its kind. The exit code is 2 for a deck whose run would be refused wherever it "
        "starts.");
    flags
        .add_switch("verify",
                    "also read and check all data: checksums of a checkpoint, ids of a token file, elements "
                    "of encodings and of weights")
        .add("diff", "OTHER", "",
             "compare weights with those of another checkpoint, run or Hugging Face folder")
        .add_switch("model", "for a deck: print one line per parameter, with elements and FLOPs per token")
        .add("ranks", "N", "0", "for a deck: plan for N ranks; 0: for as few as its degrees need")
        .add("gpu", "NAME", "", "for a deck: plan for this GPU model: h100, h200, a100-40gb, ...")
        .add("memory", "SIZE", "", "for a deck: plan for this much memory per rank, such as 80GiB")
        .add_switch(
            "build",
            "without PATH: show the compiler, flags, libraries and CUDA with which the program was built")
        .add_switch("products",
                    "without PATH: show the algorithms that the search on GPUs has kept for matrix "
                    "products, and how fast they were; of another FOLDER than ~/.cache/coeus/products")
        .add_switch("newest_step",
                    "for a deck: print only the step of the newest checkpoint of its run, or 0; options of "
                    "the deck can be added, as for `coeus train`")
        .add("document", "N", "", "of a token file: show the text of document N, counted from 0")
        .add("position", "N", "", "of a token file: show the text around the token at this position")
        .add("step", "N", "",
             "of a deck or a run's folder: show the samples that step N reads; options of the deck can be "
             "added")
        .add("samples", "A-B", "", "the same for samples by number, such as those that a guard has skipped")
        .add("rank", "R", "", "with --step: only the samples of this data-parallel rank")
        .add("tokenizer", "PLACE", "", "tokenizer for these texts; default: the deck's")
        .add_switch("tokens", "put | between the tokens of these texts");
    add_separator_flags(flags);
    return flags;
}

}  // namespace

Flags info_help() {
    return info_flags();
}

namespace {

// Which part of the data is asked for; nothing if none is.
std::optional<info::Part> part_of(const Flags& flags) {
    const auto number = [&](const char* name, int64_t least) {
        return flags.given(name) ? flags.integer(name, least) : -1;
    };
    info::Part part{.document = number("document", 0),
                    .position = number("position", 0),
                    .step = number("step", 1),
                    .rank = number("rank", 0),
                    .ranks = int(flags.integer("ranks", 0, INT32_MAX)),
                    .divides = flags.given("tokens"),
                    .tokenizer = flags.text("tokenizer"),
                    .separator = separator_of(flags)};
    if (flags.given("samples"))
        std::tie(part.first_sample, part.last_sample) = number_range("--samples", flags.text("samples"));
    const std::vector<std::string> kinds = {"document", "position", "step", "samples"};
    std::vector<std::string> given;
    for (const std::string& kind : kinds)
        if (flags.given(kind)) given.push_back("--" + kind);
    if (given.size() > 1) throw ConfigError("coeus info: {}: give one of these", join(given, ", "));
    for (const char* name : {"tokenizer", "tokens", "bos_id", "eos_id"})
        if (given.empty() && flags.given(name))
            throw ConfigError("coeus info --{}: is for --document, --position, --step and --samples", name);
    for (const char* name : {"verify", "diff", "model", "gpu", "memory"})
        if (!given.empty() && flags.given(name))
            throw ConfigError("coeus info --{}: cannot be used together with {}, which shows a part", name,
                              given[0]);
    if (flags.given("rank") && part.step < 0)
        throw ConfigError("coeus info --rank: is for --step; a sample has one rank, which is shown");
    if (given.empty()) return std::nullopt;
    if (flags.given("ranks") && part.step < 0 && part.first_sample < 0)
        throw ConfigError("coeus info --ranks: cannot be used together with {}, which shows a part of a file",
                          given[0]);
    return part;
}

void show_part(const Flags& flags, const info::Part& part, const Arguments& deck_options) {
    if (flags.words().size() != 1)
        throw ConfigError("coeus info: shows a part of one PATH, but {} are given", flags.words().size());
    const bool of_file = part.document >= 0 || part.position >= 0;
    if (of_file && !deck_options.empty())
        throw ConfigError("coeus info: {} is for --step and --samples", deck_options[0]);
    if (of_file) return info::show_part_of_token_file(flags.words()[0], part);
    Arguments deck = {flags.words()[0]};
    deck.insert(deck.end(), deck_options.begin(), deck_options.end());
    info::show_samples(deck, part);
}

}  // namespace

int info(const Arguments& arguments) {
    const DeckArguments split = split_deck_arguments(arguments);
    // --build and --products have no path, and --newest_step takes options of a deck
    if (arguments == Arguments{"--build"}) {
        show_build();
        return 0;
    }
    if (Arguments rest = arguments; std::erase(rest, "--products") > 0) {
        if (rest.size() > 1 || (!rest.empty() && rest.front().starts_with('-')))
            throw ConfigError("coeus info --products: takes only one FOLDER, but got {}", join(rest, " "));
        info::show_products(rest.empty() ? "" : rest.front());
        return 0;
    }
    if (std::ranges::count(split.own, "--newest_step") > 0) {
        info::show_newest_step(arguments);
        return 0;
    }
    Flags flags = info_flags();
    flags.parse(split.own);
    if (const auto part = part_of(flags)) return show_part(flags, *part, split.deck), 0;
    if (!split.deck.empty())
        throw ConfigError(
            "coeus info: {0} can only be used with --newest_step, --step and --samples; `coeus train DECK "
            "{0} --dry_run` plans a "
            "deck with this option",
            split.deck[0]);
    const info::Options options = {.verify = flags.given("verify"),
                                   .model = flags.given("model"),
                                   .ranks = int(flags.integer("ranks", 0, INT32_MAX)),
                                   .gpu = flags.text("gpu"),
                                   .memory = flags.text("memory")};
    if (flags.given("diff")) {
        if (flags.words().size() != 1)
            throw ConfigError("coeus info --diff: compares one PATH with OTHER, but {} paths are given",
                              flags.words().size());
        info::show_difference(flags.words()[0], flags.text("diff"));
        return 0;
    }
    int exit_code = 0;
    for (size_t i = 0; i < flags.words().size(); ++i) {
        if (i > 0) fmt::print("\n");
        exit_code = std::max(exit_code, info::show(flags.words()[i], options));
        std::fflush(stdout);
    }
    return exit_code;
}

}  // namespace coeus::apps
