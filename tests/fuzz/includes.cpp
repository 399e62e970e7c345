// SPDX-License-Identifier: Apache-2.0
// Decks that include others. The input is several decks, one after the other, divided by lines "%". The first
// one is read.
#include "coeus/deck/command_line.hpp"
#include "target.hpp"

#include <algorithm>

namespace coeus::fuzz::includes {

void read_input(std::string_view input) {
    constexpr std::string_view border = "\n%\n";
    char name = 'a';
    for (size_t begin = 0; begin <= input.size() && name <= 'h'; ++name) {
        const size_t end = std::min(input.find(border, begin), input.size());
        write_scratch(std::string(1, name) + ".toml", input.substr(begin, end - begin));
        begin = end + border.size();
    }
    // left by an earlier input
    for (; name <= 'h'; ++name) std::filesystem::remove(scratch() / (std::string(1, name) + ".toml"));
    const CommandLine line = parse_command_line({(scratch() / "a.toml").string()});
    deck_text(line.config);
}

std::vector<std::string> seeds() {
    return {"include = \"b.toml\"\n[training]\nsteps = 10\n%\n[training]\nseq_len = 128\n",
            "include = [\"b.toml\", \"c.toml\"]\n%\ninclude = \"c.toml\"\n%\n[optimizer]\nlr = 1e-3\n",
            "include = \"a.toml\"\n",
            "include = [\"b.toml\", \"b.toml\"]\n%\ninclude = [\"c.toml\", \"c.toml\"]\n%\n",
            "include = \"/dev/zero\"\n",
            "include = \"../a.toml\"\n"};
}

const Target target("includes", read_input, seeds);

}  // namespace coeus::fuzz::includes
