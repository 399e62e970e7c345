// SPDX-License-Identifier: Apache-2.0
// What `coeus info` can show: one function, in a file of its own, for each kind of file or folder. Each
// prints to stdout and throws ConfigError where what it shows is damaged.
#pragma once

#include "coeus/base/text.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

namespace coeus::apps {

struct InfoOptions {
    bool verify = false;                ///< read everything
    bool model = false;                 ///< of a deck: a line for each parameter
    int ranks = 0;                      ///< of a deck; 0: as few as its degrees ask for
    std::string gpu = {}, memory = {};  ///< of a deck: what it is planned for, as of a dry run; "": this host
};

void show_checkpoint(const std::string& file, const InfoOptions& options);
void show_token_file(const std::string& path, const InfoOptions& options);
/// A folder or a file.
void show_tokenizer(const std::string& place, const InfoOptions& options);
void show_deck(const std::string& file, const InfoOptions& options);
/// The program itself.
void show_build();
/// What `coeus train` with these arguments, but for --newest_step, would go on from.
void show_newest_step(const std::vector<std::string>& arguments);
/// A .safetensors file, its index, or a folder with one.
void show_safetensors(const std::string& place, const InfoOptions& options);
void show_hub_folder(const std::string& folder, const InfoOptions& options);
/// Of two checkpoints, runs or Hugging Face folders.
void show_difference(const std::string& path, const std::string& other);
void show_run_folder(const std::string& folder, const InfoOptions& options);

/// To stdout; what files say is printed printable (printable_lines).
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::print("{}", printable_lines(fmt::format(format, std::forward<Args>(args)...)));
}

/// "  name           value"
inline void info_line(const std::string& name, const std::string& value) {
    print("  {:<14} {}\n", name, value);
}
/// "1.50 GiB"
std::string file_size(const std::string& path);

}  // namespace coeus::apps
