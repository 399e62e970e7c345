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

#include <algorithm>
#include <cstdio>

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
        "PATH... [--verify] [--diff OTHER] [--model] [--ranks N] [--gpu NAME] [--newest_step] | --build | "
        "--products [FOLDER]",
        "a file or folder",
        "Shows what a file or folder is and contains: checkpoints, token files, tokenizers, decks, "
        "safetensors files, Hugging Face folders, and folders of runs. The content, not the name, determines "
        "its kind. The exit code is 2 for a deck whose run would be refused wherever it starts.");
    flags
        .add_switch("verify",
                    "also read and check all data: checksums of a checkpoint, ids of a token file, elements "
                    "of weights")
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
                    "the deck can be added, as for `coeus train`");
    return flags;
}

}  // namespace

Flags info_help() {
    return info_flags();
}

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
    if (!split.deck.empty())
        throw ConfigError(
            "coeus info: {0} can only be used with --newest_step; `coeus train DECK {0} --dry_run` plans a "
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
