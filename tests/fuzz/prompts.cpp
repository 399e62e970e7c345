// SPDX-License-Identifier: Apache-2.0
// Prompts: as text, and as lines of JSON.
#include "coeus/generate/prompts.hpp"

#include "coeus/base/error.hpp"
#include "target.hpp"

namespace coeus::fuzz::prompts {

void read_input(std::string_view input) {
    for (const char* name : {"prompts.txt", "prompts.jsonl"}) {
        try {
            read_prompts(write_scratch(name, input));
        } catch (const ConfigError&) {
        }
    }
}

std::vector<std::string> seeds() {
    return {"Hello\n\nOnce upon a time\r\n", "{\"prompt\": \"a\"}\n{\"text\": \"\\u00e9\"}\n",
            "\xEF\xBB\xBFx\n", ""};
}

const Target target("prompts", read_input, seeds);

}  // namespace coeus::fuzz::prompts
