// SPDX-License-Identifier: Apache-2.0
// The kinds of files and folders that `coeus info` can show: one function for each, in its own file. Each
// prints to stdout, and throws ConfigError if the file or folder is damaged.
#pragma once

#include "coeus/base/text.hpp"
#include "coeus/data/separator.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coeus::info {

struct Options {
    bool verify = false;                ///< read and check all data
    bool model = false;                 ///< for a deck: print one line per parameter
    int ranks = 0;                      ///< for a deck: plan for this many; 0: as few as its degrees need
    std::string gpu = {}, memory = {};  ///< for a deck: as in a dry run; "": plan for this host
};

/// Which part of the data to show as text.
struct Part {
    int64_t document = -1, position = -1;  ///< of a token file; -1: not asked for
    int64_t step = -1;                     ///< of a deck's run, from 1
    int64_t first_sample = -1, last_sample = -1;
    int64_t rank = -1;      ///< with `step`: only the samples of this data-parallel rank
    int ranks = 0;          ///< of the run; 0: see RunSamples
    bool divides = false;   ///< show where tokens end
    std::string tokenizer;  ///< its place; "": the deck's
    GivenSeparator separator;
};

/// Shows a document, or the tokens around a position.
void show_part_of_token_file(const std::string& path, const Part& part);
/// Shows samples of a run: the arguments are a deck, or the folder of a run, and options of the deck.
void show_samples(const std::vector<std::string>& arguments, const Part& part);

void show_checkpoint(const std::string& file, const Options& options);
void show_token_file(const std::string& path, const Options& options);
void show_encoded_file(const std::string& path, const Options& options);
/// `place`: a folder or a file.
void show_tokenizer(const std::string& place, const Options& options);
/// Returns the exit code that follows from what was found: 2 if a run would be refused wherever it starts,
/// for its deck or its memory. Data and weights are not looked at.
int show_deck(const std::string& file, const Options& options);
/// Shows the algorithms of products that are kept in this folder and the folders in it; "": the user's cache.
void show_products(const std::string& folder);
/// Prints the step from which `coeus train` with these arguments (without --newest_step) would resume.
void show_newest_step(const std::vector<std::string>& arguments);
/// `place`: a .safetensors file, an index, or a folder with one of them.
void show_safetensors(const std::string& place, const Options& options);
void show_hub_folder(const std::string& folder, const Options& options);
/// Compares the weights of two checkpoints, runs or Hugging Face folders.
void show_difference(const std::string& path, const std::string& other);
void show_run_folder(const std::string& folder, const Options& options);

/// Shows a file or folder of any of these kinds. Returns the exit code: 0, or that of show_deck().
/// ConfigError if it does not exist, or is of no kind.
int show(const std::string& path, const Options& options);

/// Prints to stdout. Control characters from files are escaped (printable_lines).
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::print("{}", printable_lines(fmt::format(format, std::forward<Args>(args)...)));
}

/// "  name           value"
inline void entry(const std::string& name, const std::string& value) {
    print("  {:<14} {}\n", name, value);
}
/// "1.50 GiB"
std::string file_size(const std::string& path);

}  // namespace coeus::info
