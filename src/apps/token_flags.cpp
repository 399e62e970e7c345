// SPDX-License-Identifier: Apache-2.0
#include "token_flags.hpp"

#include "coeus/base/error.hpp"

#include <filesystem>
#include <optional>

namespace coeus::apps {

void add_separator_flags(Flags& flags) {
    flags
        .add(
            "bos_id", "ID", "",
            "id with which documents begin in a file that does not list them (llm.c, NumPy); default: BOS or "
            "EOS of the tokenizer")
        .add("eos_id", "ID", "",
             "the same for the id with which documents end; only one of the two may be given");
}

GivenSeparator separator_of(const Flags& flags) {
    const auto id = [&](const char* name) {
        return flags.given(name) ? std::optional(flags.integer(name, 0, INT32_MAX)) : std::nullopt;
    };
    const GivenSeparator given = {id("bos_id"), id("eos_id")};
    if (given.bos_id && given.eos_id)
        throw ConfigError(
            "--bos_id {} --eos_id {}: a document begins with the one or ends with the other; give one of "
            "them",
            *given.bos_id, *given.eos_id);
    return given;
}

std::vector<std::string> files_of_tokens(const std::string& tokens) {
    std::vector<std::string> files = {tokens};
    for (const char* ending : {".bin", ".idx"})
        files.push_back(std::filesystem::path(tokens).replace_extension(ending).string());
    return files;
}

std::vector<std::string> files_of_tokenizer(const std::string& place) {
    if (place.empty()) return {};
    return {place, place + "/tokenizer.json", place + "/tokenizer_config.json"};
}

}  // namespace coeus::apps
