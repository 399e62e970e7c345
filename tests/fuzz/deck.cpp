// SPDX-License-Identifier: Apache-2.0
// A deck: TOML, its options and their values.
#include "coeus/deck/command_line.hpp"
#include "target.hpp"

namespace coeus::fuzz::deck {

void read_input(std::string_view input) {
    const CommandLine line = parse_command_line({write_scratch("deck.toml", input)});
    deck_text(line.config);
}

std::vector<std::string> seeds() {
    return {
        "[training]\nsteps = 10\nseq_len = 128\n",
        "[job]\ndump_folder = \"x\"\n[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[optimizer]\nlr = "
        "3e-4\n[training]\ndataset_path = [\"a.h5\", \"b.h5\"]\n[checkpoint]\nenable = true\nasync_mode = "
        "\"async\"\n",
        "include = \"other.toml\"\n",
        "training.steps = 1\n[metrics]\nlog_freq = 0x10\n",
        "[{a]\nb = 1\n",  // an assertion of toml++ 3.3
        "[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n"};
}

const Target target("deck", read_input, seeds);

}  // namespace coeus::fuzz::deck
