// SPDX-License-Identifier: Apache-2.0
#include "convert_tokens.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/separator.hpp"
#include "coeus/data/write_tokens.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "token_flags.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coeus::apps {

namespace fs = std::filesystem;

bool is_source_of_tokens(const std::string& source) {
    if (is_folder_patiently(source) || !leads_to_tokens(source)) return false;
    if (!is_token_file(source)) return fs::path(source).extension() != ".h5";
    const hdf5::File file = hdf5::File::open(source);
    return !file.has_attribute("format") && file.has("tokens");
}

void convert_tokens(const Flags& flags) {
    const std::string &source = flags.words()[0], &target = flags.words()[1];
    for (const char* name : {"dtype", "without_biases", "only", "deck", "max_shard_size"})
        if (flags.given(name))
            throw ConfigError("--{}: is for weights, but {} is a token file", name, source);
    const std::string ending = fs::path(target).extension().string();
    if (ending != ".h5" && ending != ".idx")
        throw ConfigError(
            "TARGET {}: a token file becomes a token file (a name that ends with .h5) or a pair of "
            "Megatron-LM (a "
            "name that ends with .idx)",
            target);
    const std::string& place = flags.text("tokenizer");
    std::vector<std::string> targets = {target};
    if (ending == ".idx") targets.push_back(fs::path(target).replace_extension(".bin").string());
    for (const std::string& file : targets) {
        flags.require_not_read("TARGET", file, files_of_tokens(source));
        flags.require_not_read("TARGET", file, files_of_tokenizer(place));
        flags.require_replaceable(file);
    }
    const GivenSeparator given = separator_of(flags);
    std::optional<Tokenizer> tokenizer;
    if (!place.empty()) tokenizer.emplace(place);
    TokenFile from(source);
    if (from.layout().format == "HDF5" && ending == ".h5")
        throw ConfigError(
            "{} is a token file already; a TARGET that ends with .idx makes a pair of Megatron-LM", source);
    if (const std::string line = divide_documents(from, given, place); !line.empty()) log::info("{}", line);
    {
        ProgressBar bar("converting", from.num_tokens(), false);
        const auto written = [&](int64_t tokens) { bar.update(tokens); };
        if (ending == ".h5")
            write_hdf5_tokens(from, target, tokenizer ? &*tokenizer : nullptr, written);
        else
            write_megatron_pair(from, target, written);
    }
    log::info("Wrote {}: {} in {}", target, counted(from.num_tokens(), "token"),
              counted(from.num_documents(), "document"));
}

}  // namespace coeus::apps
