// SPDX-License-Identifier: Apache-2.0
// coeus info FILE...: what a checkpoint or a token file holds, and whether its bytes are sound.
#include "info.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/train/flags.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace coeus::apps {

namespace {

void line(const char* name, const std::string& value) {
    fmt::print("  {:<14} {}\n", name, value);
}

std::string file_size(const std::string& path) {
    return bytes_text(double(std::filesystem::file_size(path)));
}

void verify(const std::string& path, const CheckpointHeader& header) {
    int64_t bytes = 0;
    for (const auto& array : header.arrays) bytes += array.shape.count() * hdf5::size_of(array.type);
    std::vector<DamagedRows> damaged;
    {
        Progress bar("verifying", bytes, true);
        damaged = verify_checkpoint(path, [&](int64_t done, int64_t) { bar.update(done); });
    }
    for (const DamagedRows& rows : damaged)
        fmt::print("  damaged: rows {} to {} of {}\n", rows.first_row, rows.last_row - 1, rows.array);
    std::fflush(stdout);
    if (!damaged.empty())
        throw ConfigError("{} is damaged: {} of its blocks do not match their checksum", path,
                          damaged.size());
    line("verified", fmt::format("{} in {} arrays match their checksums", bytes_text(double(bytes)),
                                 header.arrays.size()));
}

void show_checkpoint(const std::string& path, bool verified) {
    const CheckpointHeader header = read_checkpoint_header(path);
    fmt::print("{}: checkpoint of Coeus, {}, {}\n", path,
               header.full ? "weights and optimizer" : "weights alone", file_size(path));
    int64_t parameters = 0;
    for (const auto& array : header.arrays)
        if (array.path.starts_with("model/")) parameters += array.shape.count();
    line("step", with_commas(header.train.step));
    line("tokens seen", with_commas(header.train.tokens_seen));
    line("next sample", with_commas(header.train.sample));
    line("seed", std::to_string(header.train.seed));
    line("parameters", with_commas(parameters));
    line("model", header.train.model);
    line("written by", header.train.version);
    for (const auto& array : header.arrays)
        fmt::print("  {:<60} {:<9} {}\n", array.path, hdf5::name_of(array.type), array.shape.text());
    if (verified) verify(path, header);
}

/// Opening the file has checked the documents; the ids remain.
void verify_tokens(const TokenFile& tokens, const hdf5::File& file) {
    int32_t largest = 0;
    std::vector<int32_t> piece(1 << 16);
    Progress bar("verifying", tokens.num_tokens(), false);
    for (int64_t first = 0; first < tokens.num_tokens(); first += int64_t(piece.size())) {
        piece.resize(size_t(std::min(tokens.num_tokens() - first, int64_t(piece.size()))));
        tokens.read(first, piece);
        largest = std::max(largest, *std::max_element(piece.begin(), piece.end()));
        bar.update(first);
    }
    for (const char* name : {"max_token", "vocab_size"}) {
        if (!file.has_attribute(name)) continue;
        const int64_t said = file.int_attribute(name) - (std::string(name) == "vocab_size");
        if (largest > said)
            throw ConfigError("{} is damaged: it holds the id {}, its attribute {} allows {}", tokens.path(),
                              largest, name, said);
    }
    line("verified", fmt::format("the largest id is {}", with_commas(largest)));
}

void show_token_file(const std::string& path, const hdf5::File& file, bool verified) {
    const TokenFile tokens(path);
    fmt::print("{}: token file, {}\n", path, file_size(path));
    line("tokens", fmt::format("{} ({})", with_commas(tokens.num_tokens()),
                               hdf5::name_of(file.dataset("tokens").type())));
    line("documents", with_commas(tokens.num_documents()));
    line("loss mask", tokens.has_loss_mask() ? "yes" : "no");
    for (const char* name : {"source", "tokenizer", "vocab_size"})
        if (file.has_attribute(name))
            line(name, std::string(name) == "vocab_size" ? with_commas(file.int_attribute(name))
                                                         : file.string_attribute(name));
    if (verified) verify_tokens(tokens, file);
}

void show(const std::string& given, bool verified) {
    const std::string path = std::filesystem::is_directory(given) ? newest_weights(given) : given;
    const hdf5::File file = hdf5::File::open(path);
    if (file.has_attribute("format")) return show_checkpoint(path, verified);
    if (file.has("tokens")) return show_token_file(path, file, verified);
    throw ConfigError("{} is neither a checkpoint nor a token file: it has {}", path,
                      file.names().empty() ? "nothing" : join(file.names(), ", "));
}

Flags info_flags() {
    Flags flags("info", "FILE... [--verify]", "a checkpoint or token file",
                "Says what a checkpoint or token file holds; of a folder, its newest checkpoint.");
    flags.add_switch("verify",
                     "also read everything: every checksum of a checkpoint, every id of a token file");
    return flags;
}

}  // namespace

void info_help() {
    info_flags().print_help();
}

int info(const Arguments& arguments) {
    Flags flags = info_flags();
    flags.parse(arguments);
    for (const std::string& file : flags.words()) show(file, flags.given("verify"));
    return 0;
}

}  // namespace coeus::apps
